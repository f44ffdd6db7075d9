"""The job record on a real Redis: every rule of PROTOCOL.md's "Life of a job" that a script enforces."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, cast

import pytest
import redis
from redis.exceptions import OutOfMemoryError

from photocall import keys
from photocall.connections import connect_async
from photocall.errors import IdempotencyMismatch, JobGone, QueueFull, StoreFull, UnknownImage, UnknownJob
from photocall.images import ImageStore
from photocall.jobs import Answered, JobStatus, Lease, NewJob, Refused, StreamRef
from photocall.messages import Error, InterruptRequest, Message, Prepared, Progress, Result, Status, StreamText
from photocall.operations import MAX_AGE_S, Policy
from photocall.records import AsyncRecords, Records
from photocall.redis_server import RedisServer
from photocall.wire import Wire, pack, unpack

WIRE = Wire(b"a key for tests", "test")
T0 = 1_000_000.0
PICTURE = b"not a picture, but bytes"
SHA = hashlib.sha256(PICTURE).hexdigest()
BODY = {"model": "photocall-mini", "answers": {"q": {"type": "noul", "noul": 0.9}}, "usage": {"input_tokens": 3}}


class Clock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now = T0

    def __call__(self) -> float:
        return self.now


@dataclass
class Bench:
    """Records with a clock of their own, and shorthands."""

    redis: redis.Redis
    clock: Clock
    records: Records

    def job(self, **changes: Any) -> NewJob:
        new = NewJob(
            job_id="j1",
            owner="local",
            shape="job",
            ask=b"ask",
            images=(SHA,),
            priority="interactive",
            created_at=self.clock.now,
            deadline_at=self.clock.now + 100,
            request_hash="h1",
            body_bytes=10,
        )
        return replace(new, **changes)

    def accepted(self, **changes: Any) -> str:
        ImageStore(self.redis).put(SHA, PICTURE, "local")
        return self.records.accept(self.job(**changes)).job_id

    def leased(self, job_id: str, stage: str) -> Lease:
        lease = self.records.lease(job_id, cast(Any, stage))
        assert lease is not None
        return lease

    def running(self, **changes: Any) -> Lease:
        """A job without pictures that the engine holds."""
        return self.leased(self.accepted(images=(), **changes), "running")

    def messages(self, stream: str) -> list[Message]:
        return [WIRE.decode(values[b"m"]).message for _, values in cast(Any, self.redis.xrange(stream))]

    def events(self, job_id: str = "j1") -> list[Message]:
        return self.messages(keys.events(job_id))

    def refs(self) -> int:
        return int(cast(Any, self.redis.hget(keys.image(SHA), "refs")))


@pytest.fixture
def bench(redis_client: redis.Redis) -> Bench:
    clock = Clock()
    return Bench(redis_client, clock, Records(redis_client, WIRE, clock=clock))


@pytest.fixture
def full(redis_client: redis.Redis) -> Iterator[Any]:
    """Call it to make the server refuse every write that needs memory; call with False to let it take them again."""

    def set_full(on: bool = True) -> None:
        redis_client.config_set("maxmemory", 1 if on else 0)

    yield set_full
    set_full(False)


def picture_images() -> list[dict[str, Any]]:
    return [{"sha256": SHA, "blob_key": "b", "grid_height": 3, "grid_width": 3, "num_soft": 1}]


# --- accept ------------------------------------------------------------------------------------------------------


def test_accept_writes_record_references_budget_index_and_outbox(bench: Bench) -> None:
    assert bench.accepted(metadata={"row": 7}) == "j1"
    record = bench.records.get("j1")
    assert (record.status, record.stage, record.attempts) == (JobStatus.QUEUED, "preparing", 0)
    assert record.metadata == {"row": 7}
    assert record.images == (SHA,)
    assert record.deadline_at == T0 + 100
    assert bench.refs() == 1
    assert bench.redis.ttl(keys.image(SHA)) == -1
    assert bench.redis.zscore(keys.OUTBOX, "j1") == T0 + 2
    assert bench.redis.zscore(keys.index("local"), "j1") == T0
    assert cast(Any, bench.redis.hgetall(keys.DEPTH)) == {
        b"jobs": b"1",
        b"jobs:local": b"1",
        b"bytes": b"10",
        b"bytes:local": b"10",
    }
    assert bench.redis.ttl(keys.job("j1")) == -1


def test_accept_without_pictures_goes_straight_to_the_engine(bench: Bench) -> None:
    bench.accepted(images=())
    assert bench.messages(keys.engine_stream("interactive")) == [Prepared("j1", 1, [])]
    assert bench.redis.zscore(keys.OUTBOX, "j1") is None
    assert bench.records.get("j1").stage == "running"


def test_accept_of_batch_uses_the_batch_lane(bench: Bench) -> None:
    bench.accepted(images=(), priority="batch")
    assert bench.redis.xlen(keys.engine_stream("interactive")) == 0
    assert bench.redis.xlen(keys.engine_stream("batch")) == 1


def test_accept_again_is_a_replay(bench: Bench) -> None:
    bench.accepted()
    again = bench.records.accept(bench.job())
    assert (again.job_id, again.created) == ("j1", False)
    assert bench.refs() == 1


def test_idempotency_key_gives_the_first_job(bench: Bench) -> None:
    bench.accepted(idempotency_key="k")
    again = bench.records.accept(bench.job(job_id="j2", idempotency_key="k"))
    assert (again.job_id, again.created) == ("j1", False)
    with pytest.raises(UnknownJob):
        bench.records.get("j2")


def test_idempotency_key_with_another_body_is_refused(bench: Bench) -> None:
    bench.accepted(idempotency_key="k")
    with pytest.raises(IdempotencyMismatch):
        bench.records.accept(bench.job(job_id="j2", idempotency_key="k", request_hash="h2"))


def test_idempotency_keys_are_per_owner(bench: Bench) -> None:
    bench.accepted(idempotency_key="k", images=())
    other = bench.records.accept(bench.job(job_id="j2", owner="o2", images=(), idempotency_key="k", request_hash="h2"))
    assert (other.job_id, other.created) == ("j2", True)


@pytest.mark.parametrize(
    ("policy", "limit"),
    [
        (Policy(max_jobs=1), "jobs"),
        (Policy(max_jobs_per_owner=1), "jobs of this key"),
        (Policy(max_bytes=15), "bytes"),
        (Policy(max_bytes_per_owner=15), "bytes of this key"),
    ],
)
def test_bounds_refuse_and_free_again(bench: Bench, policy: Policy, limit: str) -> None:
    bench.records = Records(bench.redis, WIRE, policy, bench.clock)
    bench.accepted(images=())
    with pytest.raises(QueueFull) as refused:
        bench.records.accept(bench.job(job_id="j2", images=()))
    assert refused.value.data["limit"] == limit
    with pytest.raises(UnknownJob):
        bench.records.get("j2")
    bench.records.cancel("j1")
    assert bench.records.accept(bench.job(job_id="j2", images=())).created


def test_accept_stops_at_a_share_of_memory(bench: Bench) -> None:
    used = cast(Any, bench.redis.info("memory"))["used_memory"]
    bench.redis.config_set("maxmemory", int(used / 0.9))  # 90 % used, above the 80 % of the policy, below the limit
    with pytest.raises(StoreFull) as refused:
        bench.records.accept(bench.job(images=()))
    assert refused.value.data["used"] > refused.value.data["allowed"]
    with pytest.raises(StoreFull):
        ImageStore(bench.redis).put(SHA, PICTURE, "local")
    bench.redis.config_set("maxmemory", used * 2)
    assert bench.records.accept(bench.job(images=())).created


def test_accept_needs_pictures_that_this_owner_uploaded(bench: Bench) -> None:
    with pytest.raises(UnknownImage):
        bench.records.accept(bench.job())
    ImageStore(bench.redis).put(SHA, PICTURE, "another")
    with pytest.raises(UnknownImage):
        bench.records.accept(bench.job())
    assert bench.redis.ttl(keys.image(SHA)) > 0


def test_a_live_job_has_a_maximum_age(bench: Bench) -> None:
    bench.accepted(deadline_at=T0 + 10 * MAX_AGE_S)
    assert bench.records.get("j1").deadline_at == T0 + MAX_AGE_S


# --- lease -------------------------------------------------------------------------------------------------------


def test_one_lease_at_a_time(bench: Bench) -> None:
    job_id = bench.accepted()
    lease = bench.leased(job_id, "preparing")
    assert (lease.fence, lease.attempt) == (1, 1)
    assert bench.records.lease(job_id, "preparing") is None
    record = bench.records.get(job_id)
    assert (record.status, record.started_at, record.lease_until) == (JobStatus.PREPARING, T0, T0 + 6)
    assert record.attempts == 1
    assert record.header == lease.cause


def test_a_lease_is_of_its_stage(bench: Bench) -> None:
    job_id = bench.accepted()
    assert bench.records.lease(job_id, "running") is None


def test_a_lease_clears_the_outbox(bench: Bench) -> None:
    bench.leased(bench.accepted(), "preparing")
    assert bench.redis.zscore(keys.OUTBOX, "j1") is None


def test_an_ended_lease_is_not_taken_over_without_the_sweeper(bench: Bench) -> None:
    bench.running()
    bench.clock.now += 7
    assert bench.records.lease("j1", "running") is None


def test_renewing_moves_the_end_but_never_past_the_deadline(bench: Bench) -> None:
    lease = bench.running(deadline_at=T0 + 9)
    bench.clock.now += 2
    assert bench.records.renew(lease)
    assert bench.records.get("j1").lease_until == T0 + 8
    bench.clock.now += 2
    assert bench.records.renew(lease)
    assert bench.records.get("j1").lease_until == T0 + 9
    assert bench.redis.zscore(keys.LEASES, "j1") == T0 + 9
    bench.clock.now = T0 + 9
    assert not bench.records.renew(lease)


def test_an_old_fence_renews_nothing(bench: Bench) -> None:
    lease = bench.running()
    assert not bench.records.renew(replace(lease, fence=lease.fence + 1))
    assert not bench.records.renew(replace(lease, fence=lease.fence - 1))


def test_leases_of_unknown_jobs(bench: Bench) -> None:
    assert bench.records.lease("nobody", "running") is None
    assert not bench.records.renew(Lease("nobody", 1, 1, bench.records.get(bench.accepted()).header))


# --- transition --------------------------------------------------------------------------------------------------


def test_transition_compares_state_and_fence(bench: Bench) -> None:
    lease = bench.running()
    move = bench.records.transition
    assert not move("j1", lease.fence, JobStatus.QUEUED, JobStatus.FAILED)
    assert not move("j1", lease.fence + 1, JobStatus.RUNNING, JobStatus.FAILED)
    assert not move("j1", None, JobStatus.RUNNING, JobStatus.FAILED)
    assert move("j1", lease.fence, JobStatus.RUNNING, JobStatus.FAILED, {"error": pack({"code": "internal"})})
    assert bench.records.get("j1").error == {"code": "internal"}


@pytest.mark.parametrize("terminal", [status for status in JobStatus if status.terminal])
def test_a_terminal_state_never_changes(bench: Bench, terminal: JobStatus) -> None:
    lease = bench.running()
    assert bench.records.transition("j1", lease.fence, JobStatus.RUNNING, terminal)
    before = bench.records.get("j1")
    for to in JobStatus:
        assert not bench.records.transition("j1", lease.fence, terminal, to)
        assert not bench.records.transition("j1", None, terminal, to)
    assert not bench.records.publish(lease, Answered(BODY))
    assert not bench.records.renew(lease)
    assert not bench.records.hand_back(lease, "running")
    assert bench.records.lease("j1", "running") is None
    bench.records.cancel("j1")
    assert bench.records.get("j1") == before


# --- prepared and hand back --------------------------------------------------------------------------------------


def test_prepared_hands_over_to_the_engine(bench: Bench) -> None:
    lease = bench.leased(bench.accepted(), "preparing")
    assert bench.records.prepared(lease, picture_images())
    record = bench.records.get("j1")
    assert (record.stage, record.lease_until, record.prepared) == ("running", 0.0, picture_images())
    assert bench.messages(keys.engine_stream("interactive")) == [Prepared("j1", 1, picture_images())]
    assert bench.events() == [Prepared("j1", 1, picture_images())]
    assert not bench.records.prepared(lease, picture_images())
    assert bench.redis.xlen(keys.engine_stream("interactive")) == 1
    assert bench.leased("j1", "running").fence == 2


def test_hand_back_to_prep_is_no_attempt(bench: Bench) -> None:
    bench.records.prepared(bench.leased(bench.accepted(), "preparing"), picture_images())
    [(entry_id, _)] = cast(Any, bench.redis.xrange(keys.engine_stream("interactive")))
    lease = bench.leased("j1", "running")
    assert bench.records.hand_back(lease, "preparing", StreamRef("interactive", entry_id.decode()))
    record = bench.records.get("j1")
    assert (record.status, record.stage, record.failures, record.prepared) == (JobStatus.QUEUED, "preparing", 0, [])
    assert bench.redis.zscore(keys.OUTBOX, "j1") == T0 + 0.5
    assert bench.redis.xlen(keys.engine_stream("interactive")) == 0
    assert bench.leased("j1", "preparing").attempt == 1


def test_hand_back_to_the_engine_offers_it_again(bench: Bench) -> None:
    bench.records.prepared(bench.leased(bench.accepted(), "preparing"), picture_images())
    lease = bench.leased("j1", "running")
    assert bench.records.hand_back(lease, "running")
    assert bench.messages(keys.engine_stream("interactive"))[-1] == Prepared("j1", 1, picture_images())
    assert bench.leased("j1", "running").attempt == 1
    assert not bench.records.publish(lease, Answered(BODY))


# --- a picture and the engine that knows it ----------------------------------------------------------------------


def alive(bench: Bench, *engines: str) -> None:
    """Engines with a heartbeat, and with a stream of their own."""
    for engine_id in engines:
        bench.redis.set(keys.heartbeat(engine_id), b"beat")
        bench.redis.sadd(keys.INBOXES, engine_id)


def offered(bench: Bench, job_id: str, blob_key: str = "b", **changes: Any) -> list[str]:
    """The streams that a job stands in once its picture is prepared."""
    lease = bench.leased(bench.accepted(job_id=job_id, **changes), "preparing")
    assert bench.records.prepared(lease, [{**picture_images()[0], "blob_key": blob_key}])
    streams = ("interactive", "batch", "e1", "e2")
    found = {stream: bench.messages(keys.engine_stream(stream)) for stream in streams}
    return [stream for stream in streams if job_id in [cast(Prepared, each).job_id for each in found[stream]]]


def answered_by(bench: Bench, engine_id: str, job_id: str = "j1", **changes: Any) -> None:
    """A job about the picture that an engine answers."""
    offered(bench, job_id, **changes)
    assert bench.records.publish(bench.leased(job_id, "running"), Answered(BODY, engine_id=engine_id))


def test_the_next_question_about_a_picture_goes_to_the_engine_that_answered_the_last(bench: Bench) -> None:
    alive(bench, "e1", "e2")
    answered_by(bench, "e2")
    assert bench.redis.hget(keys.job("j1"), "near") is None  # an ended record is as it was
    assert 0 < bench.redis.ttl(keys.near("b")) <= bench.records.operations.policy.near_s
    assert offered(bench, "j2") == ["e2"]
    assert offered(bench, "j3", blob_key="the same file with another budget") == ["interactive"]
    assert bench.records.publish(bench.leased("j2", "running"), Answered(BODY, engine_id="e1"))
    assert offered(bench, "j4") == ["e1"]


@pytest.mark.parametrize("why", ["its engine is gone or leaves", "jobs wait there", "it knows it no more", "batch"])
def test_a_question_about_a_known_picture_goes_to_any_engine(bench: Bench, why: str) -> None:
    alive(bench, "e1", "e2")
    answered_by(bench, "e2")
    if why == "its engine is gone or leaves":
        bench.redis.delete(keys.heartbeat("e2"))
    elif why == "jobs wait there":
        most = bench.records.operations.policy.near_jobs
        assert [offered(bench, f"w{number}") for number in range(most)] == [["e2"]] * most
    elif why == "it knows it no more":
        bench.redis.pexpire(keys.near("b"), 1)
        time.sleep(0.01)
    lane = "batch" if why == "batch" else "interactive"
    assert offered(bench, "j2", priority=lane) == [lane]


def test_one_engine_alone_writes_and_looks_up_nothing_about_pictures(bench: Bench) -> None:
    alive(bench, "e1", "e2")
    answered_by(bench, "e1")
    bench.redis.srem(keys.INBOXES, "e2")
    assert offered(bench, "j2") == ["interactive"]
    bench.redis.delete(keys.near("b"))
    assert bench.records.publish(bench.leased("j2", "running"), Answered(BODY, engine_id="e1"))
    assert bench.redis.exists(keys.near("b")) == 0


def test_only_an_answer_says_that_an_engine_knows_a_picture(bench: Bench, full: Any) -> None:
    alive(bench, "e1", "e2")
    offered(bench, "j1")
    lease = bench.leased("j1", "running")
    full()
    with pytest.raises(OutOfMemoryError):
        bench.records.publish(lease, Answered(BODY, engine_id="e1"))
    full(False)
    assert bench.records.publish(lease, Refused("prompt_too_long", "40123 of 32768"))
    answered_by(bench, "", "j2")
    offered(bench, "j3")
    lease = bench.leased("j3", "running")
    bench.records.cancel("j3")
    assert not bench.records.publish(lease, Answered(BODY, engine_id="e1"))
    assert bench.redis.exists(keys.near("b")) == 0


def test_a_full_store_still_hands_a_known_picture_over(bench: Bench, full: Any) -> None:
    alive(bench, "e1", "e2")
    answered_by(bench, "e1")
    lease = bench.leased(bench.accepted(job_id="j2"), "preparing")
    full()
    assert bench.records.prepared(lease, picture_images())
    assert bench.messages(keys.engine_stream("e1")) == [Prepared("j2", 1, picture_images())]


# --- publish -----------------------------------------------------------------------------------------------------


def test_publish_is_all_of_it(bench: Bench) -> None:
    bench.redis.xgroup_create(keys.engine_stream("interactive"), keys.ENGINE_GROUP, id="0", mkstream=True)
    bench.records.prepared(bench.leased(bench.accepted(idempotency_key="k"), "preparing"), picture_images())
    reply = cast(Any, bench.redis.xreadgroup(keys.ENGINE_GROUP, "c", {keys.engine_stream("interactive"): ">"}))
    entry_id = reply[0][1][0][0].decode()
    lease = bench.leased("j1", "running")
    bench.clock.now += 1
    assert bench.records.publish(lease, Answered(BODY, {"prefill": 0.25}), StreamRef("interactive", entry_id))
    record = bench.records.get("j1")
    assert record.status is JobStatus.SUCCEEDED
    assert record.result == BODY
    assert record.usage == {"input_tokens": 3}
    assert record.timings == {"prefill": 0.25}
    assert (record.completed_at, record.expires_at) == (T0 + 1, T0 + 1 + 3600)
    assert record.ask == b""
    assert bench.events()[-2:] == [Result("j1"), Status("j1", "idle", "running")]
    assert bench.refs() == 0
    for key in (keys.job("j1"), keys.events("j1"), keys.image(SHA), keys.idempotency("local", "k")):
        assert 3590 < bench.redis.ttl(key) <= 3600
    for zset in (keys.LEASES, keys.DEADLINES, keys.OUTBOX):
        assert bench.redis.zscore(zset, "j1") is None
    assert bench.redis.exists(keys.DEPTH) == 0
    assert bench.redis.xlen(keys.engine_stream("interactive")) == 0
    assert cast(Any, bench.redis.xpending(keys.engine_stream("interactive"), keys.ENGINE_GROUP))["pending"] == 0


def test_publish_of_a_refusal(bench: Bench) -> None:
    lease = bench.running()
    assert bench.records.publish(lease, Refused("prompt_too_long", "40123 of 32768", {"tokens": 40123}))
    record = bench.records.get("j1")
    assert record.status is JobStatus.FAILED
    assert record.error == {"code": "prompt_too_long", "message": "40123 of 32768", "tokens": 40123}
    assert bench.events()[0] == Error("j1", "failed", record.error)


def test_publish_with_an_old_fence_is_dropped_but_its_entry_goes(bench: Bench) -> None:
    lease = bench.running()
    [(entry_id, _)] = cast(Any, bench.redis.xrange(keys.engine_stream("interactive")))
    old = replace(lease, fence=lease.fence - 1)
    assert not bench.records.publish(old, Answered(BODY), StreamRef("interactive", entry_id.decode()))
    assert bench.records.get("j1").status is JobStatus.RUNNING
    assert bench.redis.xlen(keys.engine_stream("interactive")) == 0


def test_a_full_store_refuses_the_result_whole_and_keeps_the_lease(bench: Bench, full: Any) -> None:
    lease = bench.running()
    before = bench.records.get("j1")
    full()
    with pytest.raises(OutOfMemoryError):
        bench.records.publish(lease, Answered(BODY))
    assert bench.records.get("j1") == before
    bench.clock.now += 4
    assert bench.records.renew(lease)
    assert bench.records.get("j1").lease_until == bench.clock.now + 6
    full(False)
    assert bench.records.publish(lease, Answered(BODY))


def test_a_full_store_can_work_itself_empty(bench: Bench, full: Any) -> None:
    bench.accepted()
    bench.accepted(job_id="j2")
    full()
    lease = bench.leased("j1", "preparing")
    assert bench.records.prepared(lease, picture_images())
    assert bench.records.cancel("j1").status is JobStatus.CANCELLED
    bench.records.delete("j2")


def test_the_answer_wakes_whoever_waits(bench: Bench, redis_server: RedisServer) -> None:
    async def scenario() -> str:
        client = connect_async(redis_server.url)
        records = AsyncRecords(client, WIRE, clock=bench.clock)
        async with records.wakes() as wakes:
            bench.records.publish(lease, Answered(BODY))
            job_id = await asyncio.wait_for(anext(wakes), 30)
        await client.aclose()
        return job_id

    lease = bench.running()
    assert asyncio.run(scenario()) == "j1"


# --- cancel and delete -------------------------------------------------------------------------------------------


def test_cancelling_a_queued_job_is_terminal_at_once(bench: Bench) -> None:
    bench.accepted()
    record = bench.records.cancel("j1")
    assert record.status is JobStatus.CANCELLED
    assert record.error == {"code": "cancelled", "message": "the job was cancelled"}
    assert bench.events() == [Error("j1", "cancelled", record.error), Status("j1", "idle", "preparing")]
    assert bench.refs() == 0
    assert bench.records.lease("j1", "preparing") is None


def test_cancelling_a_held_job_tells_its_holder_and_drops_its_result(bench: Bench) -> None:
    lease = bench.running()
    assert bench.records.cancel("j1").status is JobStatus.CANCELLING
    assert bench.messages(keys.CONTROL) == [InterruptRequest(["j1"])]
    assert not bench.records.renew(lease)
    assert bench.records.cancel("j1").status is JobStatus.CANCELLING
    assert len(bench.messages(keys.CONTROL)) == 1
    assert not bench.records.publish(lease, Answered(BODY))
    record = bench.records.get("j1")
    assert (record.status, record.result) == (JobStatus.CANCELLED, None)


def test_cancelling_while_prepared_ends_there(bench: Bench) -> None:
    lease = bench.leased(bench.accepted(), "preparing")
    bench.records.cancel("j1")
    assert not bench.records.prepared(lease, picture_images())
    assert bench.records.get("j1").status is JobStatus.CANCELLED
    assert bench.redis.xlen(keys.engine_stream("interactive")) == 0


def test_hand_back_while_cancelling_ends_it(bench: Bench) -> None:
    lease = bench.running()
    bench.records.cancel("j1")
    assert not bench.records.hand_back(lease, "running")
    assert bench.records.get("j1").status is JobStatus.CANCELLED


def test_delete_leaves_a_tombstone(bench: Bench) -> None:
    lease = bench.leased(bench.accepted(idempotency_key="k"), "preparing")
    bench.records.delete("j1")
    with pytest.raises(JobGone):
        bench.records.get("j1")
    with pytest.raises(UnknownJob):
        bench.records.get("j2")
    assert bench.redis.ttl(keys.tombstone("j1")) == 7 * 86_400
    assert bench.refs() == 0
    assert bench.redis.exists(keys.events("j1"), keys.idempotency("local", "k"), keys.DEPTH, keys.index("local")) == 0
    assert bench.messages(keys.CONTROL) == [InterruptRequest(["j1"])]
    assert not bench.records.prepared(lease, picture_images())
    with pytest.raises(JobGone):
        bench.records.delete("j1")


def test_delete_of_a_finished_job(bench: Bench) -> None:
    bench.records.publish(bench.running(), Answered(BODY))
    bench.records.delete("j1")
    assert bench.redis.zcard(keys.ENDED) == 0
    with pytest.raises(JobGone):
        bench.records.get("j1")


def test_410_after_the_time_to_live(bench: Bench) -> None:
    bench.records = Records(bench.redis, WIRE, Policy(job_ttl_s=1))
    bench.records.publish(bench.running(created_at=time.time(), deadline_at=time.time() + 100), Answered(BODY))
    assert bench.records.get("j1").status is JobStatus.SUCCEEDED
    assert bench.redis.ttl(keys.tombstone("j1")) > 6 * 86_400
    time.sleep(1.2)
    with pytest.raises(JobGone):
        bench.records.get("j1")


def test_a_picture_stays_while_another_live_job_uses_it(bench: Bench) -> None:
    bench.accepted()
    bench.accepted(job_id="j2")
    assert bench.refs() == 2
    bench.records.cancel("j1")
    assert bench.redis.ttl(keys.image(SHA)) == -1
    bench.records.cancel("j2")
    assert bench.redis.ttl(keys.image(SHA)) > 0


# --- events ------------------------------------------------------------------------------------------------------


def test_events_carry_their_cause_and_stop_with_the_lease(bench: Bench) -> None:
    lease = bench.running()
    assert bench.records.event(lease, Status("j1", "busy", "running"))
    [(_, values)] = cast(Any, bench.redis.xrange(keys.events("j1")))
    assert WIRE.decode(values[b"m"]).parent_header == bench.records.get("j1").header
    assert not bench.records.event(replace(lease, fence=9), Status("j1", "busy", "running"))
    bench.records.cancel("j1")
    assert not bench.records.event(lease, Status("j1", "busy", "running"))


def test_progress_is_in_the_record_too(bench: Bench) -> None:
    lease = bench.running()
    assert bench.records.progress(lease, Progress("j1", "running", 1, 4), {"done": 1, "total": 4})
    assert bench.records.get("j1").progress == {"done": 1, "total": 4}


def test_a_second_attempt_repeats_no_text(bench: Bench) -> None:
    lease = bench.running()
    assert bench.records.event(lease, StreamText("j1", "q", 0, "ein Bär"))
    bench.records.hand_back(lease, "running")
    again = bench.leased("j1", "running")
    assert bench.records.event(again, StreamText("j1", "q", 0, "ein "))
    assert bench.records.event(again, StreamText("j1", "q", 4, "Bär schläft"))
    assert bench.records.event(again, StreamText("j1", "other", 0, "x"))
    assert bench.events() == [
        StreamText("j1", "q", 0, "ein Bär"),
        StreamText("j1", "q", 7, " schläft"),
        StreamText("j1", "other", 0, "x"),
    ]


def test_the_event_stream_is_capped(bench: Bench) -> None:
    bench.records = Records(bench.redis, WIRE, Policy(event_limit=5), bench.clock)
    lease = bench.running()
    for done in range(9):
        bench.records.event(lease, Progress("j1", "running", done, 9))
    assert [cast(Progress, event).done for event in bench.events()] == [4, 5, 6, 7, 8]


# --- lists -------------------------------------------------------------------------------------------------------


def test_list_pages_newest_first_and_filters(bench: Bench, redis_server: RedisServer) -> None:
    for number in range(5):
        bench.clock.now += 1
        bench.accepted(job_id=f"j{number}", images=())
    bench.accepted(job_id="foreign", owner="o2", images=())
    bench.records.cancel("j3")

    async def scenario() -> list[list[str]]:
        client = connect_async(redis_server.url)
        records = AsyncRecords(client, WIRE, clock=bench.clock)
        pages = [
            await records.list("local", limit=2),
            await records.list("local", after="j3", limit=2),
            await records.list("local", status=JobStatus.CANCELLED),
            await records.list("local", after="j0"),
        ]
        with pytest.raises(UnknownJob):
            await records.list("local", after="foreign")
        assert (await records.depth())["jobs"] == 5
        await client.aclose()
        return [[record.job_id for record in page] for page in pages]

    assert asyncio.run(scenario()) == [["j4", "j3"], ["j2", "j1"], ["j3"], []]


def test_async_records_do_the_same(bench: Bench, redis_server: RedisServer) -> None:
    async def scenario() -> None:
        client = connect_async(redis_server.url)
        records = AsyncRecords(client, WIRE, clock=bench.clock)
        assert (await records.accept(bench.job(images=()))).created
        assert (await records.get("j1")).status is JobStatus.QUEUED
        assert (await records.cancel("j1")).status is JobStatus.CANCELLED
        await records.delete("j1")
        with pytest.raises(JobGone):
            await records.get("j1")
        assert await records.counters() == {}
        await client.aclose()

    asyncio.run(scenario())


def test_the_version_changes_with_every_visible_change(bench: Bench) -> None:
    seen = []
    bench.accepted()
    seen.append(bench.records.get("j1").version)
    lease = bench.leased("j1", "preparing")
    seen.append(bench.records.get("j1").version)
    bench.records.renew(lease)
    assert bench.records.get("j1").version == seen[-1]
    bench.records.prepared(lease, picture_images())
    seen.append(bench.records.get("j1").version)
    bench.records.publish(bench.leased("j1", "running"), Answered(BODY))
    seen.append(bench.records.get("j1").version)
    assert seen == sorted(set(seen))


def test_a_packed_field_survives(bench: Bench) -> None:
    assert unpack(pack({"a": [1, 2.5, None, "é"], 3: b"x"})) == {"a": [1, 2.5, None, "é"], 3: b"x"}
