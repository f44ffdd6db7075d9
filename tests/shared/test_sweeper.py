"""The sweeper: wall clock, ended leases, outbox, index; each once, whoever sweeps."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import replace
from typing import Any, cast

import pytest
import redis

from photocall import keys
from photocall import sweeper as sweeper_module
from photocall.images import ImageStore
from photocall.jobs import Answered, JobStatus, Lease, NewJob
from photocall.messages import Error, InterruptRequest, Message, Prepared, Status
from photocall.operations import Policy
from photocall.queueing import PrepQueues
from photocall.records import Records
from photocall.scripts import run
from photocall.sweeper import Sweeper, Swept, run_sweeper
from photocall.wire import Wire

WIRE = Wire(b"a key for tests", "test")
T0 = 1_000_000.0
PICTURE = b"bytes"
SHA = hashlib.sha256(PICTURE).hexdigest()


class Bench:
    """Records, queues and a sweeper on one clock."""

    def __init__(self, client: redis.Redis) -> None:
        self.now = T0
        self.redis = client
        self.records = Records(client, WIRE, Policy(), lambda: self.now)
        self.queues = PrepQueues(client, WIRE)
        self.sweeper = Sweeper(self.records, self.queues)

    def accept(self, **changes: Any) -> None:
        ImageStore(self.redis).put(SHA, PICTURE, "local")
        new = NewJob("j1", "local", "job", b"ask", (SHA,), "interactive", self.now, self.now + 1000, "h", body_bytes=1)
        self.records.accept(replace(new, **changes))

    def sweep(self, after: float = 0.0) -> Swept:
        self.now += after
        return self.sweeper.sweep(self.now)

    def lease(self, stage: Any) -> Lease:
        lease = self.records.lease("j1", stage)
        assert lease is not None
        return lease

    def messages(self, stream: str) -> list[Message]:
        return [WIRE.decode(values[b"m"]).message for _, values in cast(Any, self.redis.xrange(stream))]


@pytest.fixture
def bench(redis_client: redis.Redis) -> Bench:
    return Bench(redis_client)


def test_nothing_to_do(bench: Bench) -> None:
    assert bench.sweep() == Swept()


def test_a_crash_between_accept_and_enqueue_is_made_good(bench: Bench) -> None:
    bench.accept()
    assert bench.sweep(1.9) == Swept()
    assert bench.sweep(0.2) == Swept(enqueued=1)
    assert bench.queues.waiting() == {"interactive": 1, "batch": 0}
    assert bench.redis.exists("rq:job:prep-j1-1") == 1
    assert bench.sweep(10) == Swept()


def test_an_enqueue_clears_the_outbox(bench: Bench) -> None:
    bench.accept()
    bench.queues.enqueue("j1", 1, "interactive")
    bench.records.clear_outbox("j1")
    assert bench.sweep(10) == Swept()


def test_a_batch_job_goes_to_its_own_queue(bench: Bench) -> None:
    bench.accept(priority="batch")
    bench.sweep(3)
    assert bench.queues.waiting() == {"interactive": 0, "batch": 1}


def test_a_claimed_entry_is_due_again_when_its_sweeper_dies(bench: Bench) -> None:
    bench.accept()
    bench.now += 3
    assert bench.sweeper._enqueue(bench.now, bench.now) == 1
    bench.accept(job_id="j2")
    bench.now += 3
    claim = bench.records.operations.claim_outbox("j2", bench.now)

    assert run(bench.redis, claim) is not None
    assert run(bench.redis, claim) is None  # another sweeper, the same second
    assert bench.sweep(1) == Swept()
    assert bench.sweep(2) == Swept(enqueued=1)


def test_clearing_after_an_enqueue_keeps_a_later_entry(bench: Bench) -> None:

    bench.accept()
    bench.now += 3
    claimed = run(bench.redis, bench.records.operations.claim_outbox("j1", bench.now))
    assert claimed is not None
    bench.records.hand_back(bench.lease("preparing"), "preparing")
    assert not run(bench.redis, bench.records.operations.clear_outbox("j1", claimed[2]))
    assert bench.sweep(1) == Swept(enqueued=1)


def test_an_enqueue_that_is_slow_to_clear_keeps_a_later_entry(bench: Bench) -> None:
    """The gateway stalls between enqueue and clear while prep and the engine are done with the first round."""
    bench.accept()
    bench.queues.enqueue("j1", 1, "interactive")
    bench.records.hand_back(bench.lease("preparing"), "preparing")
    bench.records.clear_outbox("j1")
    assert bench.sweep(1) == Swept(enqueued=1)


def test_an_ended_lease_in_prep_is_enqueued_as_the_next_attempt(bench: Bench) -> None:
    bench.accept()
    lease = bench.lease("preparing")
    assert bench.sweep(5.9) == Swept()
    assert bench.sweep(0.2) == Swept(requeued=1, enqueued=1)
    assert bench.redis.exists("rq:job:prep-j1-2") == 1
    assert not bench.records.renew(lease)
    assert not bench.records.prepared(lease, [])
    record = bench.records.get("j1")
    assert (record.status, record.failures) == (JobStatus.QUEUED, 1)
    assert bench.lease("preparing").attempt == 2


def test_an_ended_lease_in_the_engine_is_offered_again(bench: Bench) -> None:
    bench.accept(images=())
    lease = bench.lease("running")
    bench.sweep(7)
    assert bench.messages(keys.engine_stream("interactive")) == [Prepared("j1", 1, []), Prepared("j1", 2, [])]
    assert not bench.records.publish(lease, Answered({}))
    again = bench.lease("running")
    assert again.attempt == 2
    assert bench.records.publish(again, Answered({}))


def test_a_renewed_lease_is_left_alone(bench: Bench) -> None:
    bench.accept(images=())
    lease = bench.lease("running")
    for _ in range(5):
        bench.now += 2
        assert bench.records.renew(lease)
        assert bench.sweep() == Swept()


def test_the_third_failure_is_poison(bench: Bench) -> None:
    bench.accept(images=())
    for _ in range(2):
        bench.lease("running")
        assert bench.sweep(7) == Swept(requeued=1)
    bench.lease("running")
    assert bench.sweep(7) == Swept(poisoned=1)
    record = bench.records.get("j1")
    assert (record.status, record.attempts, record.failures) == (JobStatus.FAILED, 3, 3)
    assert record.error is not None
    assert record.error["code"] == "poison"
    assert bench.messages(keys.events("j1"))[-2:] == [
        Error("j1", "failed", record.error),
        Status("j1", "idle", "running"),
    ]
    assert bench.sweep(7) == Swept()
    assert bench.redis.hget(keys.COUNTERS, "poison") == b"1"


def test_handing_back_is_no_failure(bench: Bench) -> None:
    bench.accept(images=())
    for _ in range(5):
        bench.records.hand_back(bench.lease("running"), "running")
    assert bench.records.get("j1").failures == 0


def test_a_cancelled_job_whose_holder_died_ends(bench: Bench) -> None:
    bench.accept(images=())
    bench.lease("running")
    bench.records.cancel("j1")
    assert bench.sweep(7) == Swept(cancelled=1)
    assert bench.records.get("j1").status is JobStatus.CANCELLED


@pytest.mark.parametrize("held", [False, True])
def test_the_wall_clock_ends_a_job(bench: Bench, held: bool) -> None:
    bench.accept(images=(), deadline_at=T0 + 4)
    lease = bench.lease("running") if held else None
    assert bench.sweep(3.9) == Swept()
    assert bench.sweep(0.2) == Swept(expired=1)
    record = bench.records.get("j1")
    assert record.status is JobStatus.EXPIRED
    assert record.error == {"code": "deadline_exceeded", "message": "not finished 4 s after it was accepted"}
    assert bench.messages(keys.CONTROL) == ([InterruptRequest(["j1"])] if held else [])
    assert lease is None or not bench.records.publish(lease, Answered({}))
    assert bench.sweep(7) == Swept()


def test_the_index_forgets_a_job_with_its_record(bench: Bench) -> None:
    bench.accept(images=(), owner="o/1")
    bench.records.publish(bench.lease("running"), Answered({}))
    assert bench.sweep(3599) == Swept()
    assert bench.redis.zcard(keys.index("o/1")) == 1
    assert bench.sweep(2) == Swept(forgotten=1)
    assert bench.redis.exists(keys.index("o/1"), keys.ENDED) == 0


def test_two_sweepers_act_once(bench: Bench) -> None:
    bench.accept(images=())
    bench.lease("running")
    record = bench.records.get("j1")

    bench.now += 7
    assert run(bench.redis, bench.records.operations.end_lease(record, bench.now)) == "queued"
    assert run(bench.redis, bench.records.operations.end_lease(record, bench.now)) is None
    assert bench.records.get("j1").failures == 1


def test_leftovers_of_deleted_jobs_are_cleared(bench: Bench) -> None:
    bench.redis.zadd(keys.LEASES, {"nobody": T0})
    bench.redis.zadd(keys.DEADLINES, {"nobody": T0})
    bench.redis.zadd(keys.OUTBOX, {"nobody": T0})
    assert bench.sweep(1) == Swept()
    assert bench.redis.exists(keys.LEASES, keys.DEADLINES, keys.OUTBOX) == 0


@pytest.mark.parametrize(("name", "value"), [("status", b"paused"), ("metadata", b"\xc1"), ("deadline_at", b"soon")])
def test_a_record_that_cannot_be_read_holds_up_nobody_else(bench: Bench, name: str, value: bytes) -> None:
    """It came first in every sweep, which then ended there: no lease was given on any more, no outbox served."""
    bench.accept()
    bench.accept(job_id="j2", deadline_at=T0 + 2000)
    bench.lease("preparing")
    assert bench.records.lease("j2", "preparing") is not None
    bench.redis.hset(keys.job("j1"), name, value)
    assert bench.sweep(6.1) == Swept(requeued=1, enqueued=1)
    assert bench.records.get("j2").failures == 1
    assert bench.sweep(2000) == Swept(expired=1)


def test_an_outage_is_no_process_death(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three long outages made a poison of a job whose process had been there all the time."""
    monkeypatch.setattr(sweeper_module, "GRACE_S", 0.2)

    class Noting(Sweeper):
        """Fails at its 40th sweep, and stops the loop at its last."""

        def __init__(self) -> None:
            super().__init__(bench.records, bench.queues)
            self.swept: list[tuple[float, bool]] = []

        def sweep(self, now: float | None = None, end_leases: bool = True) -> Swept:
            self.swept.append((time.monotonic(), end_leases))
            if len(self.swept) == 40:
                raise redis.ConnectionError("away")
            if len(self.swept) == 80:
                stopped.set()
            return Swept()

    stopped, sweeper = threading.Event(), Noting()
    began = time.monotonic()
    thread = threading.Thread(target=run_sweeper, args=(sweeper, stopped, 0.01))
    thread.start()
    thread.join(20)
    assert not thread.is_alive()
    for since, sweeps in ((began, sweeper.swept[:40]), (sweeper.swept[40][0], sweeper.swept[40:])):
        first = next(at for at, end_leases in sweeps if end_leases)
        assert first - since >= 0.2, "whoever lives has not had the time to renew"
        assert all(end_leases for at, end_leases in sweeps if at >= first)
