"""The Prefer header (RFC 7240): `wait=N`, `respond-async`, and the waiting for a caller who may leave."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from photocall.errors import CodedError
from photocall_gateway.caller import caller_of
from photocall_gateway.tasks import stop

T = TypeVar("T")
_WAIT = re.compile(r"(?:^|[,;])\s*wait\s*=\s*\"?([0-9]+)\"?\s*(?=$|[,;])", re.IGNORECASE)

_ASYNC = re.compile(r"(?:^|[,;])\s*respond-async\s*(?=$|[,;])", re.IGNORECASE)


def preferred_wait_s(request: Request, longest_s: float) -> float | None:
    """The seconds a caller wants to wait, within bounds; None when it did not say."""
    found = _WAIT.search(",".join(request.headers.getlist("prefer")))
    return None if found is None else min(float(found.group(1)), longest_s)


def prefers_async(request: Request) -> bool:
    """Whether a caller wants to be told where the answer will be instead of waiting for it."""
    return _ASYNC.search(",".join(request.headers.getlist("prefer"))) is not None


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is cancelled when the caller leaves; then raises ClientDisconnect.

    Or when the caller's key is revoked; then raises CodedError `bad_key`. The request's body must have been read.
    """
    gone = caller_of(request).gone
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    waits = (working, leaving) if gone is None else (working, leaving, gone)
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        if gone is not None and gone.done():
            raise CodedError("bad_key", "The API key has been revoked")
        raise ClientDisconnect
    finally:
        for task in (working, leaving):
            await stop(task)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
