"""How busy the whole service is: where a job stands in the queue, and when it is worth coming back.

Read from Redis, so that every gateway says the same. The drain rate is measured: jobs that ended in the last minute.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import redis.asyncio

from photocall import keys

RATE_WINDOW_S = 60.0
_RATE_AGE_S = 1.0
MIN_RETRY_S = 0.5
MAX_RETRY_S = 20.0  # from 30 s on, the official client does not try again at all


@dataclass(frozen=True, slots=True)
class Place:
    """`position` unfinished jobs have an earlier deadline; `eta_s` is None while nothing ends."""

    position: int
    eta_s: float | None


class Load:
    """Queue figures, for answers and for Retry-After. `job_ttl_s` is that of the job records."""

    def __init__(self, client: redis.asyncio.Redis, job_ttl_s: float, now: Callable[[], float] = time.time) -> None:
        self._redis = client
        self._job_ttl_s = job_ttl_s
        self._now = now
        self._rate = 0.0
        self._rate_at = float("-inf")

    async def drain_rate(self) -> float:
        """Jobs that ended per second, over the last minute; read at most once a second."""
        now = self._now()
        if now - self._rate_at > _RATE_AGE_S:
            last = now + self._job_ttl_s  # ended jobs stand by the end of their time to live
            ended = await cast(Any, self._redis.zcount(keys.ENDED, last - RATE_WINDOW_S, "+inf"))
            self._rate, self._rate_at = int(ended) / RATE_WINDOW_S, now
        return self._rate

    async def place(self, job_id: str) -> Place | None:
        """None when the job does not wait."""
        rank = await cast(Any, self._redis.zrank(keys.DEADLINES, job_id))
        if rank is None:
            return None
        rate = await self.drain_rate()
        return Place(int(rank), round((int(rank) + 1) / rate, 1) if rate else None)

    async def retry_after_s(self, excess: int = 1) -> float:
        """When a refused caller should come back: the time until `excess` more jobs have ended, within bounds."""
        rate = await self.drain_rate()
        if not rate:
            return 2.0
        return min(MAX_RETRY_S, max(MIN_RETRY_S, excess / rate))
