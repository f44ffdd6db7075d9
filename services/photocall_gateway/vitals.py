"""Vitals: the service at a glance: queue, engines, pace and latency, of all callers together.

However many look, Redis is asked at most once a second, and for a bounded number of things. What a rate is measured
over are the engines' own counts in their heartbeats, so that every gateway says the same after a moment.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import redis.asyncio

from photocall import keys
from photocall.messages import EngineInfo
from photocall_gateway.fresh import Fresh
from photocall_gateway.load import Load
from photocall_gateway.readiness import AWAY, CHECK_TIMEOUT_S, NOBODY, Readiness, State

AGE_S = 1.0  # what was read is shown so long
WINDOW_S = 30.0  # rates are of so long
LATENCY_WINDOW_S = 300.0
LATENCY_JOBS = 64  # at most, the last ones

_UNKNOWN_RATES: dict[str, float | None] = {
    "window_s": None,
    "requests_per_s": None,
    "images_per_s": None,
    "rows_per_step": None,
}
# What is shown of a service whose Redis is away, whether it was so before the first read or went between two.
_AWAY: dict[str, Any] = {
    **NOBODY.shown(),
    "queue": {"depth": None, "bytes": None, "eta_s": None},
    "rates": _UNKNOWN_RATES,
    "latency": {"window_s": LATENCY_WINDOW_S, "count": None, "p50_ms": None, "p90_ms": None},
}


@dataclass(frozen=True, slots=True)
class Counts:
    """What an engine has counted since its start."""

    started_at: float
    steps: int
    rows: int
    answered: int
    pictures: int

    @classmethod
    def of(cls, info: EngineInfo) -> Counts:
        return cls(info.started_at, info.steps, info.rows, info.answered, info.pictures)


@dataclass(frozen=True, slots=True)
class Sample:
    """The counts of every engine at one moment of the clock."""

    at: float
    engines: dict[str, Counts]


class Vitals:
    """Reads and remembers. `job_ttl_s` is that of the job records; `now` gives seconds since the epoch.

    `clock` never goes back: what was read is old by it, and rates are over its seconds.
    """

    def __init__(
        self,
        client: redis.asyncio.Redis,
        readiness: Readiness,
        load: Load,
        job_ttl_s: float,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._redis = client
        self._readiness = readiness
        self._load = load
        self._job_ttl_s = job_ttl_s
        self._now = now
        self._clock = clock
        self._samples: deque[Sample] = deque()
        self._shown = Fresh(self._read, AGE_S, clock)

    async def shown(self) -> dict[str, Any]:
        """What is the same for every caller, at most a second old; nobody may change it.

        Never raises: Redis away is a state, with None for what only it knows.
        """
        return await self._shown.value()

    async def shown_to(self, owner: str) -> dict[str, Any]:
        """The same, and how much of the queue is this owner's own, as it is now."""
        shown, yours = await self.shown(), None
        if shown["redis"]:
            try:
                async with asyncio.timeout(CHECK_TIMEOUT_S):
                    yours = int(await cast(Any, self._redis.hget(keys.DEPTH, f"jobs:{owner}")) or 0)
            except AWAY:
                shown = _AWAY
        return {**shown, "queue": {**shown["queue"], "yours": yours}}

    async def _read(self) -> dict[str, Any]:
        began = self._clock()
        state = await self._readiness.state()
        if state.store is None:
            return _AWAY
        try:
            async with asyncio.timeout(CHECK_TIMEOUT_S):
                return {**state.shown(), **await self._figures(began, state)}
        except AWAY:
            return _AWAY

    async def _figures(self, began: float, state: State) -> dict[str, Any]:
        depth, kept = await cast(Any, self._redis.hmget(keys.DEPTH, "jobs", "bytes"))
        pace_s = await self._load.pace_s()
        latency = await self._latency(self._now())
        unfinished = int(depth or 0)
        return {
            "queue": {
                "depth": unfinished,
                "bytes": int(kept or 0),
                "eta_s": None if pace_s is None else round(unfinished * pace_s, 1),
            },
            "rates": self._rates(began, state),
            "latency": latency,
        }

    def _rates(self, at: float, state: State) -> dict[str, float | None]:
        """Since the oldest sample of the window; None where there is no other, or nothing to divide by."""
        self._samples.append(Sample(at, {engine.engine_id: Counts.of(engine) for engine in state.engines}))
        while at - self._samples[0].at > WINDOW_S:
            self._samples.popleft()
        first, last = self._samples[0], self._samples[-1]
        over_s = last.at - first.at
        if over_s < AGE_S:
            return _UNKNOWN_RATES
        steps = rows = answered = pictures = 0
        for engine_id, counts in last.engines.items():
            before = first.engines.get(engine_id)
            if before is None or before.started_at != counts.started_at:
                before = Counts(counts.started_at, 0, 0, 0, 0)  # begun since: all that it counted is of the window
            steps += counts.steps - before.steps
            rows += counts.rows - before.rows
            answered += counts.answered - before.answered
            pictures += counts.pictures - before.pictures
        return {
            "window_s": round(over_s, 1),
            "requests_per_s": round(answered / over_s, 2),
            "images_per_s": round(pictures / over_s, 2),
            "rows_per_step": round(rows / steps, 1) if steps else None,
        }

    async def _latency(self, now: float) -> dict[str, Any]:
        """From accepted to ended, of the last jobs that were answered; rows of batches are none of them."""
        since = now + self._job_ttl_s - LATENCY_WINDOW_S  # ended jobs stand by the end of their time to live
        members = await cast(Any, self._redis.zrevrangebyscore(keys.ENDED, "+inf", since, 0, LATENCY_JOBS))
        async with self._redis.pipeline(transaction=False) as pipe:
            for member in members:
                pipe.hmget(keys.job(keys.job_of_ended(member)), "status", "created_at", "completed_at")
            found = await pipe.execute()
        took = sorted(float(end) - float(begin) for status, begin, end in found if status == b"succeeded")
        shares = {"p50_ms": 0.5, "p90_ms": 0.9}
        ranked = {name: took[round(share * (len(took) - 1))] if took else None for name, share in shares.items()}
        in_ms = {name: None if value is None else round(value * 1000, 1) for name, value in ranked.items()}
        return {"window_s": LATENCY_WINDOW_S, "count": len(took), **in_ms}
