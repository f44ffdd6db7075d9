"""The measured pace, and what is told to a caller that is sent away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis

from photocall import keys
from photocall.connections import connect_async
from photocall.redis_server import RedisServer
from photocall_gateway.load import MAX_RETRY_S, MIN_RETRY_S, Load, Place

TTL_S = 100.0
NOW = 1_000_000.0


def ask(server: RedisServer, call: Callable[[Load], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        client = connect_async(server.url)
        try:
            return await call(Load(client, TTL_S, lambda: NOW))
        finally:
            await client.aclose()

    return asyncio.run(run())


def end_jobs(client: redis.Redis, count: int, ago_s: float) -> None:
    client.zadd(keys.ENDED, {f"local/{ago_s}-{i}": NOW - ago_s + TTL_S for i in range(count)})


def test_the_pace_counts_the_last_minute_only(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    end_jobs(redis_client, 30, ago_s=10)
    end_jobs(redis_client, 500, ago_s=61)
    assert ask(redis_server, Load.pace_s) == pytest.approx(2.0)


def test_an_idle_server_is_as_fast_as_its_last_jobs(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    """One job in a minute is no minute a job: it said `eta_s: 60` where an answer took 0.05 s."""
    end_jobs(redis_client, 3, ago_s=10)
    redis_client.hset(keys.job("10-0"), mapping={"started_at": NOW - 11, "completed_at": NOW - 10.5})
    redis_client.hset(keys.job("10-1"), mapping={"started_at": NOW - 10.7, "completed_at": NOW - 10.6})
    redis_client.hset(keys.job("10-2"), mapping={"started_at": 0, "completed_at": NOW - 10})  # cancelled as it waited
    assert ask(redis_server, Load.pace_s) == pytest.approx(0.3)
    end_jobs(redis_client, 597, ago_s=20)  # many at once end faster than one takes
    assert ask(redis_server, Load.pace_s) == pytest.approx(0.1)


def test_place_and_eta(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    redis_client.zadd(keys.DEADLINES, {"a": 1, "b": 2, "c": 3})
    assert ask(redis_server, lambda load: load.place("c")) == Place(2, None)
    end_jobs(redis_client, 30, ago_s=10)
    assert ask(redis_server, lambda load: load.place("c")) == Place(2, 6.0)
    assert ask(redis_server, lambda load: load.place("none")) is None


@pytest.mark.parametrize(
    ("ended", "excess", "seconds"), [(0, 1, 2.0), (60, 3, 3.0), (60_000, 1, MIN_RETRY_S), (1, 10, MAX_RETRY_S)]
)
def test_retry_after(
    redis_server: RedisServer, redis_client: redis.Redis, ended: int, excess: int, seconds: float
) -> None:
    if ended:
        end_jobs(redis_client, ended, ago_s=1)
    assert ask(redis_server, lambda load: load.retry_after_s(excess)) == pytest.approx(seconds)


def test_one_reads_the_pace_for_all_who_find_it_old(
    redis_server: RedisServer, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds who came in the same moment each read it, and the pool of connections ran out (503)."""
    end_jobs(redis_client, 30, ago_s=10)
    reads = []
    whole = Load._took_s

    async def took_s(self: Load) -> float:
        reads.append(self)
        return await whole(self)

    monkeypatch.setattr(Load, "_took_s", took_s)

    async def many(load: Load) -> list[float | None]:
        return list(await asyncio.gather(*(load.pace_s() for _ in range(300))))

    assert ask(redis_server, many) == [pytest.approx(2.0)] * 300
    assert len(reads) == 1
