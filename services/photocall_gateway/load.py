"""How busy the whole service is: where a job stands in the queue, and when it is worth coming back.

Read from Redis, so that every gateway says the same. The pace is measured: how many jobs ended in the last minute, or,
where few were asked for, how long the last ones took. Callers that are refused are told different moments, one for each
job that ends: told the same one they would all come back at once, and all but one in vain.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import redis.asyncio

from photocall import keys
from photocall.together import Together
from photocall_gateway.fresh import Fresh

RATE_WINDOW_S = 60.0
_SHORT_WINDOW_S = 5.0  # of a service that was idle a moment ago, the short one says more
_PACE_AGE_S = 1.0
_LAST_JOBS = 8
MIN_RETRY_S = 0.5
MAX_RETRY_S = 20.0  # from 30 s on, the official client does not try again at all


@dataclass(frozen=True, slots=True)
class Place:
    """`position` unfinished jobs have an earlier deadline; `eta_s` is None while nothing ends."""

    position: int
    eta_s: float | None


class Load:
    """Queue figures, for answers and for Retry-After. `job_ttl_s` is that of the job records.

    `now` gives seconds since the epoch, as records have them; `clock` never goes back: by it is old what was read.
    """

    def __init__(
        self,
        client: redis.asyncio.Redis,
        job_ttl_s: float,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._redis = client
        self._reads = Together(client)
        self._job_ttl_s = job_ttl_s
        self._now = now
        self._clock = clock
        self._pace = Fresh(self._read_pace, _PACE_AGE_S, clock)
        self._promised_at = float("-inf")  # when the caller that was refused last was told to come back

    async def pace_s(self) -> float | None:
        """Seconds until one more job ends, as of late; None when none has ended. Read at most once a second."""
        return await self._pace.value()

    async def _read_pace(self) -> float | None:
        windows_s = (RATE_WINDOW_S, _SHORT_WINDOW_S)
        last = self._now() + self._job_ttl_s  # ended jobs stand by the end of their time to live
        async with self._redis.pipeline(transaction=False) as pipe:
            for window_s in windows_s:
                pipe.zcount(keys.ENDED, last - window_s, "+inf")
            ended = await pipe.execute()
        rates = [window_s / count for window_s, count in zip(windows_s, ended, strict=True) if count]
        return min(*rates, await self._took_s()) if rates else None

    async def _took_s(self) -> float:
        """Seconds from start to end of the last jobs, on average; without end when none of them had started."""
        members = await cast(Any, self._redis.zrevrange(keys.ENDED, 0, _LAST_JOBS - 1))
        async with self._redis.pipeline(transaction=False) as pipe:
            for member in members:
                pipe.hmget(keys.job(keys.job_of_ended(member)), "started_at", "completed_at")
            times = await pipe.execute()
        took = [float(end) - float(start) for start, end in times if start and end and float(start)]
        return sum(took) / len(took) if took else math.inf

    async def place(self, job_id: str) -> Place | None:
        """None when the job does not wait."""
        rank = await self._reads.ask("ZRANK", keys.DEADLINES, job_id)
        return None if rank is None else await self.place_at(int(rank))

    async def place_at(self, rank: int) -> Place:
        """The place of a job that has `rank` unfinished ones before it."""
        pace_s = await self.pace_s()
        return Place(rank, None if pace_s is None else round((rank + 1) * pace_s, 1))

    async def retry_after_s(self) -> float:
        """When a refused caller should come back: once a job more has ended than those refused before it wait for.

        Within bounds. Each call is another caller's.
        """
        pace_s = await self.pace_s()
        if pace_s is None:
            return 2.0
        now = self._clock()
        self._promised_at = min(max(self._promised_at, now) + pace_s, now + MAX_RETRY_S)
        return max(MIN_RETRY_S, self._promised_at - now)

    async def key_retry_after_s(self, share: float) -> float:
        """When a caller should come back that has as many jobs as its key may: once one of these has ended.

        `share` is the part that they are of all unfinished jobs. Within bounds.
        """
        pace_s = await self.pace_s()
        return 2.0 if pace_s is None else min(MAX_RETRY_S, max(MIN_RETRY_S, pace_s / share))
