"""RedisOutlet on a real Redis: in order, off the engine's thread, patient while Redis is away or full."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import redis

from photocall.jobs import JobStatus
from photocall.messages import Error, Progress, Result, Status, StreamText
from photocall.records import Records
from photocall_engine.edges import Answered, Cancelled, EngineRequest, HandedBack, Refused
from photocall_engine.intake import Ticket
from photocall_engine.outlet import RedisOutlet
from tests.engine.queue_bench import BODY, QueueBench, until


@pytest.fixture
def bench(redis_client: redis.Redis, tmp_path: Path) -> Iterator[QueueBench]:
    bench = QueueBench(redis_client, tmp_path / "blobs")
    bench.intake.start()
    yield bench
    bench.intake.stop()


@pytest.fixture
def outlet(bench: QueueBench) -> Iterator[RedisOutlet]:
    outlet = RedisOutlet(bench.records, bench.leases, "engine-1")
    outlet.start()
    yield outlet
    outlet.stop(5)


def taken(bench: QueueBench, job_id: str = "j1") -> EngineRequest:
    bench.accept_text(job_id)
    [request] = bench.take()
    return request


def ended(bench: QueueBench, job_id: str = "j1") -> JobStatus:
    until(lambda: bench.records.get(job_id).status.terminal, "the job to end")
    return bench.records.get(job_id).status


def test_an_answer(bench: QueueBench, outlet: RedisOutlet) -> None:
    outlet.publish(taken(bench), Answered(BODY, {"queue": 0.5, "prefill": 0.25}))
    assert ended(bench) is JobStatus.SUCCEEDED
    record = bench.records.get("j1")
    assert record.result == BODY
    assert record.timings["prefill"] == 0.25
    assert 0.5 <= record.timings["queue"] < 60
    assert record.timings["prepare"] == 0.0
    assert bench.events("j1") == [Status("j1", "busy", "running"), Result("j1"), Status("j1", "idle", "running")]
    until(lambda: "j1" not in bench.leases, "the lease to leave the book")
    assert (bench.entries(), bench.pending()) == (0, 0)


def test_time_in_prep_is_told_apart(bench: QueueBench, outlet: RedisOutlet) -> None:
    bench.accept_picture("j1")
    [request] = bench.take()
    outlet.publish(request, Answered(BODY))
    ended(bench)
    assert bench.records.get("j1").timings["prepare"] > 0


def test_a_refusal(bench: QueueBench, outlet: RedisOutlet) -> None:
    outlet.publish(taken(bench), Refused("prompt_too_long", "too long", {"tokens": 9, "limit": 8}))
    assert ended(bench) is JobStatus.FAILED
    record = bench.records.get("j1")
    assert record.error == {"code": "prompt_too_long", "message": "too long", "tokens": 9, "limit": 8}
    assert bench.events("j1")[1] == Error("j1", "failed", record.error)


def test_a_deadline_that_passed_in_the_engine_is_expired(bench: QueueBench, outlet: RedisOutlet) -> None:
    outlet.publish(taken(bench), Refused("deadline_exceeded", "late"))
    assert ended(bench) is JobStatus.EXPIRED


def test_cancelled(bench: QueueBench, outlet: RedisOutlet) -> None:
    request = taken(bench)
    bench.records.cancel("j1")
    outlet.publish(request, Cancelled())
    assert ended(bench) is JobStatus.CANCELLED
    assert (bench.entries(), bench.pending()) == (0, 0)


def test_handed_back(bench: QueueBench, outlet: RedisOutlet) -> None:
    outlet.publish(taken(bench), HandedBack("shutting down"))
    until(lambda: bench.records.get("j1").status is JobStatus.QUEUED, "the job to go back")
    until(lambda: "j1" not in bench.leases, "the lease to leave the book")
    [again] = bench.take()
    assert cast(Ticket, again.ticket).lease.attempt == 1


def test_events_in_order_before_the_answer(bench: QueueBench, outlet: RedisOutlet) -> None:
    request = taken(bench)
    outlet.event(request, "stream", {"question": "t", "offset": 0, "text": "a b"})
    outlet.event(request, "progress", {"answered": 1, "questions": 2})
    outlet.event(request, "stream", {"question": "t", "offset": 3, "text": "ear"})
    outlet.publish(request, Answered(BODY))
    ended(bench)
    assert bench.events("j1")[1:] == [
        StreamText("j1", "t", 0, "a b"),
        Progress("j1", "running", 1, 2),
        StreamText("j1", "t", 3, "ear"),
        Result("j1"),
        Status("j1", "idle", "running"),
    ]
    assert bench.records.get("j1").progress == {"done": 1, "total": 2}


def test_a_full_store_is_waited_for_with_the_lease_kept(bench: QueueBench, outlet: RedisOutlet) -> None:
    request = taken(bench)
    bench.redis.config_set("maxmemory", 1)
    outlet.event(request, "progress", {"answered": 0, "questions": 1})
    outlet.publish(request, Answered(BODY))
    time.sleep(0.5)
    bench.leases.renew_all()
    assert "j1" in bench.leases
    record = bench.records.get("j1")
    assert (record.status, record.result) == (JobStatus.RUNNING, None)
    assert record.lease_until > time.time() + 5
    bench.redis.config_set("maxmemory", 0)
    assert ended(bench) is JobStatus.SUCCEEDED


class Away(Records):
    """Records whose server is away for a while."""

    failures = 3

    def publish(self, *args: object, **kwargs: object) -> bool:
        if self.failures:
            self.failures -= 1
            raise redis.ConnectionError("away")
        return super().publish(*args, **kwargs)  # type: ignore[arg-type]


def test_a_redis_that_is_away_is_waited_for(bench: QueueBench) -> None:
    outlet = RedisOutlet(Away(bench.redis, bench.records.operations.wire), bench.leases, "engine-1")
    outlet.start()
    outlet.publish(taken(bench), Answered(BODY))
    assert ended(bench) is JobStatus.SUCCEEDED
    assert outlet.stop(5)


def test_an_answer_nobody_wants_any_more_is_given_up(bench: QueueBench) -> None:
    away = Away(bench.redis, bench.records.operations.wire)
    away.failures = 10**6
    outlet = RedisOutlet(away, bench.leases, "engine-1")
    outlet.start()
    request = taken(bench)
    outlet.publish(request, Answered(BODY))
    bench.records.cancel("j1")
    bench.leases.renew_all()
    until(lambda: len(bench.leases) == 0, "it to be given up")
    assert outlet.stop(5)


def test_stop_in_time_leaves_the_rest_to_the_sweeper(bench: QueueBench) -> None:
    away = Away(bench.redis, bench.records.operations.wire)
    away.failures = 10**6
    outlet = RedisOutlet(away, bench.leases, "engine-1")
    outlet.start()
    outlet.publish(taken(bench), Answered(BODY))
    began = time.monotonic()
    assert not outlet.stop(0.3)
    assert time.monotonic() - began < 3
    assert bench.records.get("j1").status is JobStatus.RUNNING


def test_a_defect_in_one_write_does_not_stop_the_others(bench: QueueBench, outlet: RedisOutlet) -> None:
    outlet.event(taken(bench), "stream", {"not": "what is expected"})
    outlet.publish(taken(bench, "j2"), Answered(BODY))
    assert ended(bench, "j2") is JobStatus.SUCCEEDED
