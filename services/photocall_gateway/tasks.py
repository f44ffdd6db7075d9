"""Ending a task for certain."""

from __future__ import annotations

import asyncio
from typing import Any

_AGAIN_S = 0.2


async def stop(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait for its end. An error it ended with is nobody's: whoever wanted it has left.

    One cancellation is not enough: on Python 3.11, `asyncio.wait_for`, here or in a library, drops it when what it
    waited for is done in the same moment.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait((task,), timeout=_AGAIN_S)
    if not task.cancelled():
        task.exception()  # or asyncio would report it as never retrieved
