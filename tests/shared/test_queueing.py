"""RQ behind a signature and one allowed function, on a real Redis with RQ's own worker."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from rq import Callback, Queue, SimpleWorker
from rq.exceptions import NoSuchJobError
from rq.timeouts import TimerDeathPenalty

from photocall import keys, queueing
from photocall.errors import BadSignature, MalformedMessage, RefusedFunction
from photocall.messages import DecideRequest, Prepared
from photocall.queueing import PrepareJob, PrepQueues, SignedSerializer
from photocall.wire import Wire

WIRE = Wire(b"a key for tests", "test")


@pytest.fixture
def queues(redis_client: redis.Redis) -> PrepQueues:
    return PrepQueues(redis_client, WIRE)


def counters(client: redis.Redis) -> dict[bytes, bytes]:
    return cast("dict[bytes, bytes]", client.hgetall(keys.COUNTERS))


def work(client: redis.Redis, queues: PrepQueues) -> None:
    """RQ's own worker over what is queued now."""
    worker = SimpleWorker([queues.queue("interactive")], connection=client, serializer=queues.serializer)
    worker.job_class = PrepareJob
    worker.death_penalty_class = TimerDeathPenalty
    worker.work(burst=True, logging_level="CRITICAL")


def test_enqueue_names_the_attempt_and_nothing_else(redis_client: redis.Redis, queues: PrepQueues) -> None:
    assert queues.enqueue("j1", 2, "interactive") == "prep-j1-2"
    assert queues.enqueue("j2", 1, "batch") == "prep-j2-1"
    assert queues.waiting() == {"interactive": 1, "batch": 1}
    job = PrepareJob.fetch("prep-j1-2", connection=redis_client, serializer=queues.serializer)
    assert (job.func_name, job.args, job.kwargs, job.origin) == (keys.PREPARE_JOB, ("j1", 2), {}, "prep")
    assert job.retries_left is None
    raw = cast("dict[bytes, bytes]", redis_client.hgetall("rq:job:prep-j1-2"))
    assert {raw[b"result_ttl"], raw[b"failure_ttl"]} == {b"0", b"60"}


def test_the_allowed_function_runs(
    redis_client: redis.Redis, queues: PrepQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[Any, ...]] = []
    monkeypatch.setattr(queueing, "import_attribute", lambda name: lambda *args: called.append((name, *args)))
    queues.enqueue("j1", 1, "interactive")
    work(redis_client, queues)
    assert called == [(keys.PREPARE_JOB, "j1", 1)]
    assert redis_client.exists("rq:job:prep-j1-1") == 0


def test_a_planted_pickle_is_refused_and_counted(redis_client: redis.Redis, queues: PrepQueues, tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    Queue("prep", connection=redis_client).enqueue(os.system, f"touch {witness}")
    work(redis_client, queues)
    assert not witness.exists()
    assert int(counters(redis_client)[b"bad_signature"]) >= 1


def test_a_planted_os_system_is_refused_and_counted_even_when_signed(
    redis_client: redis.Redis, queues: PrepQueues, tmp_path: Path
) -> None:
    witness = tmp_path / "ran"
    planted = Queue("prep", connection=redis_client, serializer=queues.serializer)
    planted.enqueue("os.system", f"touch {witness}")
    work(redis_client, queues)
    assert not witness.exists()
    assert counters(redis_client) == {b"refused_function": b"1"}


def test_the_same_plant_runs_under_stock_rq(redis_client: redis.Redis, queues: PrepQueues, tmp_path: Path) -> None:
    """What the two tests above guard against is real."""
    witness = tmp_path / "ran"
    queue = Queue("stock", connection=redis_client)
    queue.enqueue("os.system", f"touch {witness}")
    worker = SimpleWorker([queue], connection=redis_client)
    worker.death_penalty_class = TimerDeathPenalty
    worker.work(burst=True, logging_level="CRITICAL")
    assert witness.exists()


def test_callbacks_and_webhooks_in_the_hash_are_ignored(
    redis_client: redis.Redis, queues: PrepQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queueing, "import_attribute", lambda name: lambda *args: None)
    queue = Queue("prep", connection=redis_client, serializer=queues.serializer)
    queue.enqueue(
        keys.PREPARE_JOB,
        args=("j1", 1),
        job_id="prep-j1-1",
        on_success=Callback("os.abort"),
        on_failure=Callback("os.abort"),
        on_stopped=Callback("os.abort"),
    )
    job = PrepareJob.fetch("prep-j1-1", connection=redis_client, serializer=queues.serializer)
    assert (job.success_callback, job.failure_callback, job.stopped_callback, job.webhooks) == (None, None, None, [])
    work(redis_client, queues)  # would end this process


def test_of_a_hash_only_the_work_is_read(redis_client: redis.Redis, queues: PrepQueues) -> None:
    """A worker of ours takes an entry as it may lie there, and refuses one that inflates to more than ours can."""
    queues.enqueue("j1", 1, "interactive")
    hashed = cast("dict[bytes, bytes]", redis_client.hgetall("rq:job:prep-j1-1"))
    job = PrepareJob("prep-j1-1", connection=redis_client, serializer=queues.serializer)
    job.restore_work({b"data": hashed[b"data"], b"created_at": b"never", b"success_callback_name": b"os.abort"})
    assert (job.func_name, job.args, job.success_callback) == (keys.PREPARE_JOB, ("j1", 1), None)
    for wrong in (b"plain", b"\0", hashed[b"data"][:20]):
        job.restore_work({b"data": wrong})
        with pytest.raises(BadSignature):
            _ = job.func
    with pytest.raises(MalformedMessage):
        job.restore_work({b"data": zlib.compress(bytes(queueing.MAX_DATA_BYTES + 1))})
    with pytest.raises(NoSuchJobError):
        job.restore_work({})


def test_an_entry_aside_is_enqueued_once_and_forgotten(redis_client: redis.Redis, queues: PrepQueues) -> None:
    for _ in range(2):
        queues.enqueue_aside(keys.FORGET_JOB, "a" * 64)
    assert queues.waiting()["interactive"] == 1
    (entry_id,) = (raw.decode() for raw in cast("list[bytes]", redis_client.lrange("rq:queue:prep", 0, -1)))
    assert 0 < redis_client.ttl(f"rq:job:{entry_id}") <= queueing.ASIDE_TTL_S
    assert [queue.name for queue in Queue.all(redis_client)] == ["prep"], "RQ's own tools see the queue"


def test_a_full_redis_enqueues_nothing(redis_client: redis.Redis, queues: PrepQueues) -> None:
    redis_client.config_set("maxmemory", 1)
    try:
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            queues.enqueue("j1", 1, "interactive")
    finally:
        redis_client.config_set("maxmemory", 0)
    assert not redis_client.exists("rq:job:prep-j1-1", "rq:queue:prep", "rq:queues")


def test_func_of_another_name(redis_client: redis.Redis, queues: PrepQueues) -> None:
    job = PrepareJob.create("os.getcwd", connection=redis_client, serializer=queues.serializer)
    with pytest.raises(RefusedFunction) as refused:
        _ = job.func
    assert refused.value.data == {"function": "os.getcwd"}


def test_serializer_carries_values_and_refuses_the_rest() -> None:
    serializer = SignedSerializer(WIRE)
    assert serializer.loads(serializer.dumps({"a": [1, None]})) == {"a": [1, None]}
    call: tuple[Any, ...] = ("f", None, ("j", 1), {})
    assert serializer.loads(serializer.dumps(call)) == call
    with pytest.raises(MalformedMessage):
        serializer.dumps(("f", None, (), {"keyword": 1}))
    with pytest.raises(MalformedMessage):
        serializer.loads(WIRE.encode(Prepared("j", 1, [])))
    with pytest.raises(BadSignature):
        serializer.loads(Wire(b"another key", "x").encode(DecideRequest("f", [])))


def test_an_entry_enqueued_again_has_no_expiry(redis_client: redis.Redis, queues: PrepQueues) -> None:
    queues.enqueue("j1", 1, "interactive")
    redis_client.expire("rq:job:prep-j1-1", 5)
    queues.enqueue("j1", 1, "interactive")
    assert redis_client.ttl("rq:job:prep-j1-1") == -1
