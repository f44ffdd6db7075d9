"""What waits in front of prep and the engines, for the metrics: how many entries, and how long the first has waited."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

import redis.asyncio
from redis.exceptions import ResponseError
from rq import Queue

from photocall import keys


@dataclass(frozen=True, slots=True)
class Waiting:
    """Entries that nobody has taken; `age_s` is 0 where there are none."""

    queue: Literal["prep", "engine"]
    lane: keys.Lane
    entries: int
    age_s: float


async def waiting_entries(client: redis.asyncio.Redis, now: Callable[[], float] = time.time) -> list[Waiting]:
    """Of each queue and lane. Raises redis' errors. What waits in the own stream of an engine is not counted."""
    found: list[Waiting] = []
    for lane in keys.LANES:
        entries, since = await _for_prep(client, lane)
        found.append(Waiting("prep", lane, entries, max(0.0, now() - since) if since else 0.0))
        entries, since = await _for_engine(client, lane)
        found.append(Waiting("engine", lane, entries, max(0.0, now() - since) if since else 0.0))
    return found


async def _for_prep(client: redis.asyncio.Redis, lane: keys.Lane) -> tuple[int, float]:
    """How many, and when the first one's job was accepted; 0.0: there is none, or it is gone."""
    queue = f"{Queue.redis_queue_namespace_prefix}{keys.PREP_QUEUE[lane]}"
    async with client.pipeline(transaction=False) as pipe:
        pipe.llen(queue)
        pipe.lindex(queue, 0)
        entries, first = await pipe.execute()
    job_id = keys.job_of_rq_id(first.decode()) if first else None
    if job_id is None:
        return int(entries), 0.0
    return int(entries), float(await cast(Any, client.hget(keys.job(job_id), "created_at")) or 0.0)


async def _for_engine(client: redis.asyncio.Redis, lane: keys.Lane) -> tuple[int, float]:
    """How many, and when the first one was offered. What an engine has taken stays in the stream until its answer."""
    stream = keys.engine_stream(lane)
    try:
        groups = await cast(Any, client.xinfo_groups(stream))
    except ResponseError:  # no stream yet
        return 0, 0.0
    group = next((each for each in groups if each["name"] == keys.ENGINE_GROUP.encode()), None)
    last, taken = (group["last-delivered-id"].decode(), int(group["pending"])) if group else ("0-0", 0)
    async with client.pipeline(transaction=False) as pipe:
        pipe.xlen(stream)
        pipe.xrange(stream, min=f"({last}", count=1)
        length, first = await pipe.execute()
    if not first:
        return 0, 0.0
    return max(1, int(length) - taken), int(first[0][0].partition(b"-")[0]) / 1000
