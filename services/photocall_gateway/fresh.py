"""Fresh: one value that is dear to read, read again when it is asked for and old, once for all who ask meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Fresh(Generic[T]):
    """What `read` gave at most `age_s` seconds ago, counted from when it began, by a `clock` that never goes back."""

    def __init__(
        self, read: Callable[[], Coroutine[Any, Any, T]], age_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._age_s = age_s
        self._clock = clock
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._value: T

    async def value(self) -> T:
        """Raises what `read` raises; the next who asks reads again. Who stops waiting ends no reading of others."""
        if self._clock() - self._read_at > self._age_s:
            if self._reading is None or self._reading.done():
                self._reading = asyncio.create_task(self._renew())
            await asyncio.shield(self._reading)
        return self._value

    async def _renew(self) -> None:
        began = self._clock()
        self._value = await self._read()
        self._read_at = began
