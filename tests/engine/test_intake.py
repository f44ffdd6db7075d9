"""RedisIntake on a real Redis: what is taken, what goes back, what is a replay, what is a dead letter."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import redis
from redis.exceptions import OutOfMemoryError, ResponseError

from photocall import keys
from photocall.asks import Ask
from photocall.blobs import DirBlobs
from photocall.images import ImageStore
from photocall.jobs import Answered, JobStatus, StreamRef
from photocall.messages import Prepared, Result, Status
from photocall.queueing import PrepQueues
from photocall.sweeper import Sweeper
from photocall.views import View
from photocall.wire import Wire, pack
from photocall_engine import intake as intake_module
from photocall_engine.intake import MAX_RETURNS, Ticket
from photocall_engine.lease_book import LeaseBook
from tests.engine.queue_bench import BODY, HASH, QUESTION, WIRE, QueueBench, until


@pytest.fixture
def bench(redis_client: redis.Redis, tmp_path: Path) -> Iterator[QueueBench]:
    bench = QueueBench(redis_client, tmp_path / "blobs")
    bench.intake.start()
    yield bench
    bench.intake.stop()


def test_a_text_job(bench: QueueBench) -> None:
    bench.accept_text("j1", owner="key-1", deadline_at=time.time() + 50)
    [request] = bench.take()
    assert (request.job_id, request.owner, request.priority, request.images) == ("j1", "key-1", "interactive", {})
    assert request.ask.questions == (QUESTION,)
    assert 40 < request.deadline_at - time.time() < 50
    assert isinstance(request.ticket, Ticket)
    record = bench.records.get("j1")
    assert record.status is JobStatus.RUNNING
    assert record.lease_until > time.time() + 4
    assert bench.events("j1") == [Status("j1", "busy", "running")]
    assert "j1" in bench.leases


def test_a_picture_job(bench: QueueBench) -> None:
    patches = bench.accept_picture("j1")
    [request] = bench.take()
    [image] = request.images.values()
    assert (image.grid_height, image.grid_width, image.num_soft) == (3, 6, 2)
    assert image.patches.dtype == np.uint8
    assert image.patches.tobytes() == patches
    assert request.images.keys() == set(bench.records.get("j1").images)


def test_a_job_with_two_pages_of_one_file(bench: QueueBench) -> None:
    sha256 = hashlib.sha256(b"file").hexdigest()
    ImageStore(bench.redis).put(sha256, b"file", "local")
    ask = Ask(None, "one two", (QUESTION,), {"one": sha256, "two": sha256}, views={"two": View(frame=1)})
    bench.accept_text("j1", images=(sha256,), ask=pack(ask.to_content()))
    lease = bench.records.lease("j1", "preparing")
    assert lease is not None
    told: list[dict[str, Any]] = []
    views: tuple[dict[str, Any], ...] = ({}, {"view": "frame=1"})
    for seed, view in enumerate(views, 1):
        blob_key = keys.blob_key(sha256, f"140fast_f{seed}", HASH)
        bench.blobs.put(blob_key, bench.patches(seed))
        told.append({"sha256": sha256, **view, "blob_key": blob_key, "grid_height": 3, "grid_width": 6, "num_soft": 2})
    assert bench.records.prepared(lease, told)
    [request] = bench.take()
    assert {name: image.patches.tobytes() for name, image in request.images.items()} == {
        sha256: bench.patches(1),
        f"{sha256}?frame=1": bench.patches(2),
    }
    assert isinstance(request.ticket, Ticket)
    assert request.ticket.prepared == told


def test_a_job_whose_time_is_over_is_not_taken(bench: QueueBench) -> None:
    """Its entry goes, nothing is loaded, and the sweeper ends it."""
    bench.accept_text("late", deadline_at=time.time() - 0.01)
    bench.accept_text("in-time")
    assert [request.job_id for request in bench.take()] == ["in-time"]
    record = bench.records.get("late")
    assert (record.status, record.started_at) == (JobStatus.QUEUED, 0.0)
    pending = cast(Any, bench.redis.xpending(keys.engine_stream("interactive"), keys.ENGINE_GROUP))
    assert pending["pending"] == 1


def test_interactive_comes_first(bench: QueueBench) -> None:
    bench.intake.stop()
    for number in range(3):
        bench.accept_text(f"batch-{number}", priority="batch")
    for number in range(2):
        bench.accept_text(f"now-{number}")
    bench.intake = bench.new_intake("engine-2")
    assert bench.intake.take(4, 0.0) == []  # says how much room there is
    bench.intake.start()
    until(lambda: len(bench.leases) == 4, "four to be fetched")
    bench.intake.stop()
    assert [r.job_id for r in bench.intake.take(9, 0.0)] == ["now-0", "now-1", "batch-0", "batch-1"]


def test_neither_its_own_stream_nor_the_lane_starves_the_other(bench: QueueBench) -> None:
    """With room for one at a time, whichever was always looked at first would be all that is taken."""
    bench.intake.stop()
    for number in range(4):
        bench.accept_text(f"own-{number}", priority=cast(Any, "engine-2"))
        bench.accept_text(f"lane-{number}")
    bench.intake = bench.new_intake("engine-2")
    bench.intake.start()
    order = [request.job_id for _ in range(8) for request in bench.take(limit=1)]
    kinds = [job_id.partition("-")[0] for job_id in order]
    assert kinds in (["own", "lane"] * 4, ["lane", "own"] * 4)


def test_no_more_than_there_is_room_for(bench: QueueBench) -> None:
    for number in range(6):
        bench.accept_text(f"j{number}")
    bench.intake.take(2, 0.0)
    until(lambda: len(bench.leases) == 2, "two to be fetched")
    for _ in range(20):
        bench.intake.take(0, 0.0)
        time.sleep(0.01)
    assert len(bench.leases) == 2


def test_a_record_that_cannot_be_read_fails_its_own_job(bench: QueueBench) -> None:
    bench.intake.stop()
    bench.accept_text("j1", ask=b"\xc1 not msgpack")
    bench.accept_text("j2")
    bench.intake = bench.new_intake("engine-2")
    bench.intake.start()
    assert [request.job_id for request in bench.take()] == ["j2"]
    record = bench.records.get("j1")
    assert record.status is JobStatus.FAILED
    assert record.error is not None
    assert record.error["code"] == "internal"
    assert "j1" not in bench.leases


def test_nothing_to_take_waits_as_long_as_told(bench: QueueBench) -> None:
    began = time.monotonic()
    assert bench.intake.take(5, 0.2) == []
    assert 0.2 <= time.monotonic() - began < 2
    began = time.monotonic()
    assert bench.intake.take(5, 0.0) == []
    assert time.monotonic() - began < 0.1


@pytest.mark.parametrize("end", ["cancelled", "deleted", "held"])
def test_a_message_for_a_job_that_is_not_to_be_run_is_a_replay(bench: QueueBench, end: str) -> None:
    bench.intake.stop()  # so that the message is still there when its job ends
    bench.accept_text("j1")
    if end == "cancelled":
        bench.records.cancel("j1")
    elif end == "deleted":
        bench.records.delete("j1")
    else:
        assert bench.records.lease("j1", "running") is not None
    bench.intake = bench.new_intake("engine-2")
    bench.intake.start()
    assert bench.take(within_s=0.5) == []
    assert bench.entries() == 0
    assert bench.pending() == 0


def test_a_vanished_blob_sends_the_job_back_to_prep_and_is_no_attempt(bench: QueueBench) -> None:
    bench.accept_picture("j1", store=False)
    assert bench.take(within_s=1.0) == []
    record = bench.records.get("j1")
    assert (record.status, record.stage, record.failures, record.returns) == (JobStatus.QUEUED, "preparing", 0, 1)
    assert bench.redis.zscore(keys.OUTBOX, "j1") is not None
    assert bench.entries() == 0
    assert "j1" not in bench.leases
    bench.prepare("j1")
    [request] = bench.take()
    assert cast(Ticket, request.ticket).lease.attempt == 1


def test_a_blob_for_another_checkpoint_goes_back(bench: QueueBench) -> None:
    bench.accept_picture("j1", processor_hash="0" * 16)
    assert bench.take(within_s=1.0) == []
    assert bench.records.get("j1").stage == "preparing"


def test_half_a_blob_goes_back(bench: QueueBench) -> None:
    patches = bench.accept_picture("j0")
    [request] = bench.take()
    [sha256] = request.images
    bench.blobs.put(keys.blob_key(sha256, "140fast", HASH), patches[:-1])
    bench.accept_picture("j1", store=False)
    assert bench.take(within_s=1.0) == []
    assert bench.records.get("j1").stage == "preparing"


def test_prep_and_engine_that_never_agree_fail_the_job_in_the_end(bench: QueueBench) -> None:
    bench.accept_picture("j1", store=False)
    for returned in range(1, MAX_RETURNS + 1):
        assert bench.take(within_s=0.3) == []
        until(lambda seen=returned: bench.records.get("j1").returns == seen, "it to come back")  # type: ignore[misc]
        bench.prepare("j1", store=False)
    until(lambda: bench.intake.take(5, 0.05) or bench.records.get("j1").status.terminal, "the job to end")
    record = bench.records.get("j1")
    assert record.status is JobStatus.FAILED
    assert record.error is not None
    assert "share their blobs" in record.error["message"]
    assert bench.pending() == 0


def test_a_bad_signature_is_refused_and_counted_and_hurts_nobody(bench: QueueBench) -> None:
    stranger = Wire(b"another key", "x").encode(Prepared("j1", 1, []))
    for data in (stranger, b"", b"rubbish"):
        bench.redis.xadd(keys.engine_stream("interactive"), {"m": data})
    bench.redis.xadd(keys.engine_stream("interactive"), {"other": "field"})
    bench.redis.xadd(keys.engine_stream("interactive"), {"m": WIRE.encode(Result("j1"))})
    bench.accept_text("j1")
    assert [request.job_id for request in bench.take()] == ["j1"]
    until(lambda: bench.counters() == {b"bad_signature": b"4", b"malformed": b"1"}, "the others to be refused")
    assert bench.redis.xlen(keys.DEAD) == 5
    assert bench.pending() == 1


def test_an_unknown_version_is_left_for_a_newer_process(bench: QueueBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("photocall.messages.VERSION", "2.0")
    data = WIRE.encode(Prepared("j1", 1, []))
    monkeypatch.undo()
    bench.redis.xadd(keys.engine_stream("interactive"), {"m": data})
    assert bench.take(within_s=0.5) == []
    assert bench.entries() == 1
    assert bench.redis.xlen(keys.DEAD) == 0


def test_entries_of_an_engine_that_died_before_its_lease_are_taken_over(
    bench: QueueBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.intake.stop()
    bench.redis.flushall()  # with the group, whether or not it was made by now
    monkeypatch.setattr(intake_module, "RECLAIM_IDLE_MS", 1)
    bench.accept_text("j1")
    stream = keys.engine_stream("interactive")
    bench.redis.xgroup_create(stream, keys.ENGINE_GROUP, id="0")
    bench.redis.xreadgroup(keys.ENGINE_GROUP, "died", cast(Any, {stream: ">"}))
    time.sleep(0.01)
    bench.intake = bench.new_intake("engine-2")
    bench.intake.start()
    [request] = bench.take()
    assert request.job_id == "j1"
    assert bench.records.get("j1").failures == 0


def test_a_job_of_an_engine_that_died_with_its_lease_runs_again_once(bench: QueueBench) -> None:
    bench.accept_text("j1")
    [first] = bench.take()
    bench.redis.hset(keys.job("j1"), "lease_until", str(time.time() - 1))
    bench.redis.zadd(keys.LEASES, {"j1": time.time() - 1})
    bench.drop_lease("j1")  # its book went with it
    Sweeper(bench.records, PrepQueues(bench.redis, WIRE)).sweep()
    [second] = bench.take()
    tickets = [cast(Ticket, first.ticket), cast(Ticket, second.ticket)]
    assert [ticket.lease.attempt for ticket in tickets] == [1, 2]
    assert not bench.records.publish(tickets[0].lease, Answered(BODY), tickets[0].ref)
    assert bench.records.publish(tickets[1].lease, Answered(BODY), tickets[1].ref)
    assert (bench.entries(), bench.pending()) == (0, 0)


def test_suspects_run_alone(bench: QueueBench) -> None:
    """Two jobs that were in an engine when it died, and one that was not."""
    for name in ("s1", "s2"):
        bench.accept_text(name)
        until(lambda: bench.take(), "it to be taken")
        bench.redis.hset(keys.job(name), "lease_until", str(time.time() - 1))
        bench.redis.zadd(keys.LEASES, {name: time.time() - 1})
        bench.drop_lease(name)
    Sweeper(bench.records, PrepQueues(bench.redis, WIRE)).sweep()
    bench.accept_text("new")
    order = []
    for _ in range(3):
        [request] = bench.take()
        assert bench.take(within_s=0.3) == []
        order.append(request.job_id)
        ticket = cast(Ticket, request.ticket)
        bench.records.publish(ticket.lease, Answered(BODY), ticket.ref)
        bench.drop_lease(request.job_id)
    assert set(order) == {"s1", "s2", "new"}
    bench.accept_text("n1")
    bench.accept_text("n2")
    bench.take(limit=1)
    until(lambda: bench.intake.take(5, 0.05) or len(bench.leases) == 2, "the two to be together again")


def test_a_suspect_that_ends_while_it_is_looked_for_ends_nothing_else(
    bench: QueueBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The outlet drops the lease of the one that runs alone at any moment, so also between two looks at the book."""
    answers = iter([True])
    monkeypatch.setattr(LeaseBook, "__contains__", lambda book, job_id: next(answers, False))
    bench.accept_text("j1")
    assert [request.job_id for request in bench.take()] == ["j1"]
    assert next(answers, None) is None, "the look that came too late has happened"


def test_a_blob_directory_that_fails_costs_an_attempt_and_not_the_engine(
    bench: QueueBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the thread that fetches had died of it, the engine would go on looking alive and take nothing more."""

    def get(blobs: DirBlobs, key: str) -> bytes:
        raise PermissionError(13, "not yours", key)

    monkeypatch.setattr(DirBlobs, "get", get)
    bench.accept_picture("j1")
    until(lambda: bench.take(within_s=0.05) == [] and bench.records.get("j1").fence == 2, "its lease to be taken")
    until(lambda: len(bench.leases) == 0, "its lease to be left to the sweeper")
    assert bench.records.get("j1").status is JobStatus.RUNNING
    bench.accept_text("j2")
    assert [request.job_id for request in bench.take()] == ["j2"]


def test_streams_that_are_deleted_come_back(bench: QueueBench) -> None:
    bench.accept_text("j1")
    assert len(bench.take()) == 1
    bench.redis.flushall()
    bench.accept_text("j2")
    assert [request.job_id for request in bench.take()] == ["j2"]


def test_a_full_redis_is_waited_out(bench: QueueBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It refuses to read for a group while its disk is full: the thread that takes requests outlives that."""
    refusals = iter([OutOfMemoryError("MISCONF"), ResponseError("something else")])
    read = bench.intake._redis.xreadgroup

    def refuse(*args: Any, **kwargs: Any) -> Any:
        for error in refusals:
            raise error
        return read(*args, **kwargs)

    monkeypatch.setattr(bench.intake._redis, "xreadgroup", refuse)
    bench.accept_text("j1")
    assert [request.job_id for request in bench.take()] == ["j1"]
    assert next(refusals, None) is None


def test_idle_consumers_are_forgotten(bench: QueueBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "CONSUMER_IDLE_MS", 50)
    bench.accept_text("j1")
    bench.take()
    stream = keys.engine_stream("interactive")
    bench.redis.xgroup_createconsumer(stream, keys.ENGINE_GROUP, "long-gone")

    def names() -> set[bytes]:
        bench.intake.take(5, 0.05)
        return {consumer["name"] for consumer in cast(Any, bench.redis.xinfo_consumers(stream, keys.ENGINE_GROUP))}

    until(lambda: names() == {b"engine-1"}, "the other to be forgotten")


def test_what_was_fetched_and_not_taken_is_there_after_stop(bench: QueueBench) -> None:
    bench.intake.take(3, 0.0)
    for number in range(3):
        bench.accept_text(f"j{number}")
    until(lambda: len(bench.leases) >= 1, "a fetch")
    bench.intake.stop()
    held = len(bench.leases)
    assert len(bench.intake.take(10, 0.0)) == held


def test_hand_back_acknowledges_the_entry(bench: QueueBench) -> None:
    bench.accept_text("j1")
    [request] = bench.take()
    ticket = cast(Ticket, request.ticket)
    assert ticket.ref == StreamRef("interactive", ticket.ref.entry_id)
    bench.drop_lease("j1")
    bench.records.hand_back(ticket.lease, "running", ticket.ref)
    [again] = bench.take()
    assert again.job_id == "j1"
    assert (bench.entries(), bench.pending()) == (1, 1)
