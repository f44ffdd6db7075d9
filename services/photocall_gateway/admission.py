"""Admission of synchronous calls: who would wait too long in the queue is told at once, not when the time is over.

An answer that comes after its caller has left is work that another caller's answer waited for, so a queue of accepted
calls must not grow longer than they wait. How long a new one would wait is how many unfinished jobs are before it over
how fast jobs have ended of late. That pace says how fast the service can be only while it was busy, so it counts only
where the queue has been about as long for as long as the pace was measured: a crowd that comes all at once is let in,
up to the bounds on depth, and those behind it are not.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

import redis.asyncio

from photocall import keys
from photocall.together import Together

MEASURED_S = 3.0
_READ_EVERY_S = 0.25
_UNSEEN_S = 1.0  # nobody looked for so long: what the queue was meanwhile is not known
_APART_S = 0.005  # of two round trips


class Admission:
    """Estimates waits. `job_ttl_s` is that of the job records.

    `now` gives seconds since the epoch, as records have them; `clock` never goes back, and dates what was seen.
    """

    def __init__(
        self,
        client: redis.asyncio.Redis,
        job_ttl_s: float,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reads = Together(client, _APART_S)
        self._job_ttl_s = job_ttl_s
        self._now = now
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()  # how many were unfinished, for MEASURED_S

    async def wait_s(self, deadline_at: float) -> float:
        """Seconds until all that come before a job with this deadline have ended; 0.0 where that is not known.

        Raises Redis' errors.
        """
        began = self._clock()
        before = int(await self._reads.ask("ZCOUNT", keys.DEADLINES, "-inf", repr(deadline_at)))
        busy = self._busy(began, before)
        if not busy:
            return 0.0
        since = self._now() + self._job_ttl_s - MEASURED_S  # ended jobs stand by the end of their time to live
        ended = int(await self._reads.ask("ZCOUNT", keys.ENDED, repr(round(since, 1)), "+inf"))
        return before * MEASURED_S / ended if ended else 0.0  # nothing ends: an engine that starts, or none

    def _busy(self, now: float, before: int) -> bool:
        """The queue has been at least half as long for as long as the pace is measured."""
        seen = self._seen
        if seen and now - seen[-1][0] > _UNSEEN_S:
            seen.clear()
        if not seen or now - seen[-1][0] >= _READ_EVERY_S:
            seen.append((now, before))
        while len(seen) > 1 and seen[1][0] <= now - MEASURED_S:
            seen.popleft()
        return seen[0][0] <= now - MEASURED_S and all(2 * count >= before for _, count in seen)
