"""What waits in front of prep and the engines, and since when."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
import redis

from photocall import keys
from photocall.asks import Ask
from photocall.connections import connect_async
from photocall.jobs import NewJob
from photocall.questions import Noul
from photocall.queueing import PrepQueues
from photocall.records import Records
from photocall.redis_server import RedisServer
from photocall.wire import Wire, pack
from photocall_gateway.queues import Waiting, waiting_entries

WIRE = Wire(b"a key for tests", "tests")


def looked(server: RedisServer, later_s: float = 0.0) -> dict[tuple[str, str], Waiting]:
    async def look() -> list[Waiting]:
        client = connect_async(server.url)
        try:
            return await waiting_entries(client, lambda: time.time() + later_s)
        finally:
            await client.aclose()

    return {(each.queue, each.lane): each for each in asyncio.run(look())}


def accept(client: redis.Redis, job_id: str, age_s: float, lane: keys.Lane, to_prepare: bool = False) -> None:
    now = time.time() - age_s
    ask = pack(Ask(None, "state", (Noul("q", "Is it so?"),), {}).to_content())
    new = NewJob(job_id, "local", "job", ask, (), lane, now, now + 1000, "h", to_prepare=to_prepare)
    Records(client, WIRE).accept(new)


def test_nothing_waits_at_first(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    found = looked(redis_server)
    assert set(found) == {(queue, lane) for queue in ("prep", "engine") for lane in keys.LANES}
    assert all((each.entries, each.age_s) == (0, 0.0) for each in found.values())


def test_for_prep_since_the_first_job_was_accepted(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    queues = PrepQueues(redis_client, WIRE)
    for job_id, age_s in (("job_a", 50.0), ("job_b", 5.0)):
        accept(redis_client, job_id, age_s, "batch", to_prepare=True)
        queues.enqueue(job_id, 1, "batch")
    waiting = looked(redis_server)["prep", "batch"]
    assert waiting.entries == 2
    assert 50 <= waiting.age_s < 60
    redis_client.delete(keys.job("job_a"))  # deleted by its caller: its entry is taken and dropped some time
    assert looked(redis_server)["prep", "batch"] == Waiting("prep", "batch", 2, 0.0)
    assert looked(redis_server)["prep", "interactive"].entries == 0


def test_work_aside_has_no_age(redis_server: RedisServer, redis_client: redis.Redis) -> None:
    PrepQueues(redis_client, WIRE).enqueue_aside(keys.FORGET_JOB, "0" * 64)
    assert looked(redis_server)["prep", "interactive"] == Waiting("prep", "interactive", 1, 0.0)


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_for_an_engine_what_none_has_taken(redis_server: RedisServer, redis_client: redis.Redis, taken: int) -> None:
    """Entries stay in the stream until they are answered: those that an engine has do not wait."""
    for number in range(3):
        accept(redis_client, f"job_{number}", 0, "interactive")
    stream = keys.engine_stream("interactive")
    if taken:
        redis_client.xgroup_create(stream, keys.ENGINE_GROUP, id="0")
        read: Any = redis_client.xreadgroup(keys.ENGINE_GROUP, "e", {stream: ">"}, count=taken)
        assert len(read[0][1]) == taken
    waiting = looked(redis_server, later_s=30)["engine", "interactive"]
    assert waiting.entries == 3 - taken
    assert (30 <= waiting.age_s < 40) == (taken < 3)
