"""How long a new synchronous call would wait: known only of a queue that was long while its pace was measured."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis
from starlette.testclient import TestClient

from photocall import keys
from photocall.connections import connect_async
from photocall.redis_server import RedisServer
from photocall_gateway import sync_calls
from photocall_gateway.admission import MEASURED_S, Admission
from tests.gateway.fake_backend import FakeBackend

TTL_S = 100.0
TEXT = {"state": "text", "questions": {"q": {"type": "noul", "instructions": "Is it?"}}}


class Clock:
    now = 1_000_000.0


def with_admission(server: RedisServer, scenario: Callable[[Admission, Clock], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        client = connect_async(server.url)
        clock = Clock()
        try:
            return await scenario(Admission(client, TTL_S, lambda: clock.now, lambda: clock.now), clock)
        finally:
            await client.aclose()
            await client.connection_pool.disconnect()

    return asyncio.run(run())


def queue(client: redis.Redis, count: int) -> None:
    client.delete(keys.DEADLINES)
    client.zadd(keys.DEADLINES, {f"j{i}": Clock.now + 10 for i in range(count)})


def end_jobs(client: redis.Redis, at: float, count: int) -> None:
    client.zadd(keys.ENDED, {f"local/{at}-{i}": at + TTL_S for i in range(count)})


async def watch(admission: Admission, clock: Clock, seconds: float, deadline: float = Clock.now + 60) -> float:
    """Calls that come every quarter of a second; what the last one is told."""
    told = 0.0
    for _ in range(int(seconds * 4)):
        clock.now += 0.25
        told = await admission.wait_s(deadline)
    return told


def test_a_wait_is_the_queue_over_the_pace(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    async def scenario(admission: Admission, clock: Clock) -> None:
        queue(redis_client, 100)
        assert await watch(admission, clock, MEASURED_S - 0.5) == 0.0  # not long enough to know
        assert await watch(admission, clock, 3.0) == 0.0  # nothing ends: an engine that starts
        end_jobs(redis_client, clock.now - 2, 60)
        end_jobs(redis_client, clock.now - MEASURED_S - 5, 500)
        assert await watch(admission, clock, 0.25) == pytest.approx(100 * MEASURED_S / 60)
        # Those whose deadline is later are answered later.
        assert await admission.wait_s(Clock.now + 5) == 0.0

    with_admission(redis_server, scenario)


def test_a_crowd_on_an_idle_service_is_let_in(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    """Two jobs in three seconds are what was asked for, not what the service can do."""

    async def scenario(admission: Admission, clock: Clock) -> None:
        queue(redis_client, 1)
        await watch(admission, clock, 10)
        end_jobs(redis_client, clock.now - 1, 2)
        queue(redis_client, 64)
        assert await watch(admission, clock, MEASURED_S - 0.5) == 0.0
        end_jobs(redis_client, clock.now, 30)
        assert await watch(admission, clock, 1.0) == pytest.approx(64 * MEASURED_S / 30)

    with_admission(redis_server, scenario)


def test_what_nobody_watched_is_not_known(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    async def scenario(admission: Admission, clock: Clock) -> None:
        queue(redis_client, 100)
        await watch(admission, clock, 5)
        clock.now += 60  # the queue may have been empty meanwhile
        end_jobs(redis_client, clock.now, 1)
        assert await watch(admission, clock, 1) == 0.0

    with_admission(redis_server, scenario)


def test_who_would_wait_too_long_is_told_at_once_and_who_joins_is_let_in(
    client: TestClient,
    backend: FakeBackend,
    redis_client: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., Any],
) -> None:
    backend.hold.set()
    wait_s = 0.0

    async def estimate(self: Admission, deadline_at: float) -> float:
        return wait_s

    monkeypatch.setattr(Admission, "wait_s", estimate)
    found: list[Any] = []
    callers = [threading.Thread(target=lambda: found.append(client.post("/v1/systemone", json=TEXT))) for _ in range(2)]
    callers[0].start()
    eventually(lambda: redis_client.zcard(keys.DEADLINES))
    wait_s = 3.5
    refused = client.post("/v1/systemone", json={**TEXT, "state": "another"})
    assert (refused.status_code, refused.json()["detail"]["error_type"]) == (529, "overloaded")
    assert "3.5 s" in refused.json()["detail"]["message"]
    assert 0 < float(refused.headers["retry-after"]) < 30
    assert redis_client.zcard(keys.DEADLINES) == 1
    callers[1].start()  # the same again: it adds no work
    backend.hold.clear()
    for caller in callers:
        caller.join(30)
    assert [answer.status_code for answer in found] == [200, 200]
    assert len(backend.seen) == 1


def test_a_repeat_that_no_answer_is_left_for_is_new_work(
    client: TestClient, backend: FakeBackend, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key outlives its answer: under overload it is refused like any new call, not let in as one that joins."""
    wait_s = 0.0

    async def estimate(self: Admission, deadline_at: float) -> float:
        return wait_s

    monkeypatch.setattr(Admission, "wait_s", estimate)
    monkeypatch.setattr(sync_calls, "_useful", lambda record: False)
    assert client.post("/v1/systemone", json=TEXT).status_code == 200
    wait_s = 9.0
    assert client.post("/v1/systemone", json=TEXT).status_code == 529
    assert len(backend.seen) == 1
