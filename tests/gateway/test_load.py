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
            return await call(Load(client, TTL_S, lambda: NOW, lambda: NOW))
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


def test_who_has_as_many_jobs_as_its_key_may_waits_for_one_of_them(
    redis_server: RedisServer, redis_client: redis.Redis
) -> None:
    """One in ten of those that end is the key's own; within the bounds that everybody has."""
    assert ask(redis_server, lambda load: load.key_retry_after_s(0.1)) == 2.0
    end_jobs(redis_client, 120, ago_s=10)
    assert ask(redis_server, lambda load: load.key_retry_after_s(0.1)) == pytest.approx(5.0)
    assert ask(redis_server, lambda load: load.key_retry_after_s(1.0)) == MIN_RETRY_S
    assert ask(redis_server, lambda load: load.key_retry_after_s(0.001)) == MAX_RETRY_S


def test_place_and_eta(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    redis_client.zadd(keys.DEADLINES, {"a": 1, "b": 2, "c": 3})
    assert ask(redis_server, lambda load: load.place("c")) == Place(2, None)
    end_jobs(redis_client, 30, ago_s=10)
    assert ask(redis_server, lambda load: load.place("c")) == Place(2, 6.0)
    assert ask(redis_server, lambda load: load.place("none")) is None


@pytest.mark.parametrize(("ended", "seconds"), [(0, 2.0), (1, 5.0), (5, 1.0), (60_000, MIN_RETRY_S)])
def test_retry_after(redis_server: RedisServer, redis_client: redis.Redis, ended: int, seconds: float) -> None:
    """What ended in the last five seconds says more than the minute before it, when the service was idle."""
    if ended:
        end_jobs(redis_client, ended, ago_s=1)
    assert ask(redis_server, Load.retry_after_s) == pytest.approx(seconds)


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


def test_refused_callers_come_back_one_after_another(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    """All were told the end of the next job: they came back at once, and all but one in vain."""
    end_jobs(redis_client, 30, ago_s=10)  # one every two seconds

    async def refused(load: Load) -> list[float]:
        return [await load.retry_after_s() for _ in range(12)]

    told = ask(redis_server, refused)
    assert told[:9] == pytest.approx([2.0 * n for n in range(1, 10)])
    assert told[9:] == [MAX_RETRY_S] * 3
