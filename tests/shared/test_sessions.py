"""Sessions in Redis: turns one after another, what is held, transcripts, and their end."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import redis
import redis.asyncio

from photocall import keys
from photocall.asks import Ask
from photocall.connections import connect_async
from photocall.errors import QueueFull, SessionFull, UnknownSession
from photocall.images import ImageStore
from photocall.jobs import Answered, Holding, JobStatus, Lease, NewJob, Refused, StreamRef, TurnLeft
from photocall.messages import InterruptRequest, Prepared, ReleaseRequest, Status, TurnRequest
from photocall.operations import Policy
from photocall.questions import Noul
from photocall.queueing import PrepQueues
from photocall.records import AsyncRecords, Records
from photocall.redis_server import RedisServer
from photocall.sessions import AsyncSessions, Remembered, SessionRecord, read_transcript
from photocall.sweeper import Sweeper
from photocall.wire import Wire, pack

WIRE = Wire(b"a key for tests", "test")
QUESTION = Noul("q", "Is it so?")
ASK = Ask(None, "state", (QUESTION,), {})
BODY = {"model": "m", "answers": {}, "usage": {}}
SESSION = SessionRecord("ses_1", "local", 1000.0, 600, "every", True, {"rules": "few"}, {"a": "b"})
HELD = Holding("engine-1", 100, 4096, 30.0, 2000.0)
POLICY = Policy(max_turns_waiting=4, max_turns=3)


class Line:
    """Records and sessions over one Redis, and engines that take what is offered."""

    def __init__(self, client: redis.Redis, url: str) -> None:
        self.redis = client
        self.url = url
        self.records = Records(client, WIRE, POLICY)
        self.turns = 0

    def run(self, work: Callable[[AsyncSessions], Any]) -> Any:
        """One call of the gateway's side."""

        async def go() -> Any:
            client = connect_async(self.url)
            try:
                return await work(AsyncSessions(AsyncRecords(client, WIRE, POLICY), WIRE))
            finally:
                await client.aclose()

        return asyncio.run(go())

    def turn(self, **changes: Any) -> str:
        """Accept a turn; its id."""
        self.turns += 1
        job_id = f"t{self.turns}"
        now = time.time()
        new = NewJob(job_id, "local", "turn", pack(ASK.to_content()), (), "interactive", now, now + 100, "h",
                     session_id="ses_1", body_bytes=1)  # fmt: skip
        self.records.accept(replace(new, **changes))
        return job_id

    def offered(self, lane: str = "interactive") -> list[str]:
        """Turns on a stream, by job id."""
        entries = cast(Any, self.redis.xrange(keys.engine_stream(lane)))
        messages = [WIRE.decode(values[b"m"]).message for _, values in entries]
        assert all(isinstance(message, TurnRequest) and message.session_id == "ses_1" for message in messages)
        return [cast(TurnRequest, message).job_id for message in messages]

    def begin(self, job_id: str, lane: str = "interactive") -> tuple[Lease, StreamRef]:
        [(entry_id, _)] = cast(Any, self.redis.xrange(keys.engine_stream(lane)))
        lease = self.records.lease(job_id, "running")
        assert lease is not None
        return lease, StreamRef(lane, entry_id.decode())

    def answer(self, job_id: str, left: TurnLeft | None = None, lane: str = "interactive") -> None:
        lease, ref = self.begin(job_id, lane)
        assert self.records.publish(lease, Answered(BODY, turn=left), ref)

    def view(self) -> Any:
        return self.run(lambda sessions: sessions.view("ses_1"))


@pytest.fixture
def line(redis_client: redis.Redis, redis_server: RedisServer) -> Line:
    found = Line(redis_client, redis_server.url)
    found.run(lambda sessions: sessions.create(SESSION))
    return found


def stored(line: Line, data: bytes) -> str:
    """The hash of a picture that the caller has uploaded."""
    sha256 = hashlib.sha256(data).hexdigest()
    ImageStore(line.redis).put(sha256, data, "local")
    return sha256


def entry(line: Line, job_id: str, *images: dict[str, Any]) -> bytes:
    return Remembered(line.records.get(job_id).turn, job_id, ASK.to_content(), ["A"], list(images)).pack()


def test_a_session_reads_as_it_was_made(line: Line) -> None:
    assert line.run(lambda sessions: sessions.get("ses_1")) == SESSION
    view = line.view()
    assert (view.record, view.line, view.remembered, view.holding, view.notices) == (SESSION, [], 0, None, [])
    assert 590 < view.expires_in_s <= 600
    assert line.run(lambda sessions: sessions.of_owner("local", None, 10)) == [SESSION]
    assert line.run(lambda sessions: sessions.of_owner("other", None, 10)) == []
    with pytest.raises(UnknownSession):
        line.run(lambda sessions: sessions.get("ses_2"))


def test_one_owner_has_only_so_many_and_those_that_are_gone_do_not_count(line: Line) -> None:
    second = replace(SESSION, session_id="ses_2")
    with pytest.raises(SessionFull) as caught:
        line.run(lambda sessions: sessions.create(second, limit=1))
    assert caught.value.data == {"limit": "sessions of this key", "held": 1, "allowed": 1}
    line.redis.delete(keys.session("ses_1"))  # its time to live has ended
    line.run(lambda sessions: sessions.create(second, limit=1))
    assert line.run(lambda sessions: sessions.of_owner("local", None, 10)) == [second]


def test_turns_go_to_the_engine_one_after_another(line: Line) -> None:
    first, second, third = line.turn(), line.turn(), line.turn()
    assert [line.records.get(job_id).turn for job_id in (first, second, third)] == [1, 2, 3]
    assert line.offered() == [first]
    assert line.view().line == [first, second, third]
    line.answer(first)
    assert line.offered() == [second]
    assert line.records.get(second).status is JobStatus.QUEUED
    line.answer(second)
    assert line.offered() == [third]
    line.answer(third)
    assert line.offered() == []
    assert line.view().line == []
    assert line.view().record.answered == 3


@pytest.mark.parametrize("end", ["cancelled", "deleted", "expired", "failed", "poison"])
def test_however_a_turn_ends_the_next_one_is_called(line: Line, end: str) -> None:
    first, second = line.turn(), line.turn()
    if end == "cancelled":
        line.records.cancel(first)
    elif end == "deleted":
        line.records.delete(first)
    elif end == "expired":
        line.redis.hset(keys.job(first), "deadline_at", "1")
        line.redis.zadd(keys.DEADLINES, {first: 1})
        Sweeper(line.records, PrepQueues(line.redis, WIRE)).sweep()
    elif end == "failed":
        lease, ref = line.begin(first)
        line.records.publish(lease, Refused("internal", "no"), ref)
    else:
        lease, _ = line.begin(first)
        line.redis.hset(keys.job(first), mapping={"lease_until": "1", "failures": "2"})
        line.redis.zadd(keys.LEASES, {first: 1})
        Sweeper(line.records, PrepQueues(line.redis, WIRE)).sweep()
        assert line.records.get(first).error["code"] == "poison"  # type: ignore[index]
    assert line.offered()[-1] == second
    assert line.view().line == [second]


def test_a_turn_that_is_taken_out_of_the_line_calls_nobody(line: Line) -> None:
    first, second, third = line.turn(), line.turn(), line.turn()
    line.records.cancel(second)
    assert line.offered() == [first]
    line.answer(first)
    assert line.offered() == [third]


def test_a_turn_with_pictures_is_prepared_while_it_waits_and_offered_when_it_is_both_ready_and_first(
    line: Line,
) -> None:
    sha256 = stored(line, b"picture")
    first = line.turn()
    pictured = line.turn(images=(sha256,))
    last = line.turn(images=(sha256,))
    described = {"sha256": sha256, "blob_key": "b", "grid_height": 3, "grid_width": 6, "num_soft": 2}

    def prepare(job_id: str) -> None:
        lease = line.records.lease(job_id, "preparing")
        assert lease is not None
        assert line.records.prepared(lease, [described])

    prepare(last)
    prepare(pictured)
    assert line.offered() == [first]
    line.answer(first)
    assert line.offered() == [pictured]
    events = cast(Any, line.redis.xrange(keys.events(pictured)))
    assert Prepared(pictured, 1, [described]) in [WIRE.decode(values[b"m"]).message for _, values in events]
    late = line.turn(images=(sha256,))
    line.answer(pictured)
    line.answer(last)
    assert line.offered() == []  # the next one is not ready
    prepare(late)
    assert line.offered() == [late]


def test_a_transcript_grows_with_the_answer_and_with_nothing_else(line: Line) -> None:
    first = line.turn()
    line.answer(first, TurnLeft(entry(line, first)))
    second = line.turn(remember=False)
    assert not line.records.get(second).remember
    line.answer(second, TurnLeft())
    lease, ref = (line.turn(), None), None
    line.records.cancel(lease[0])
    assert ref is None
    session, remembered = read_transcript(line.redis, "ses_1")
    assert (session.state, session.turns, session.answered) == ({"rules": "few"}, 3, 2)
    assert [(turn.turn, turn.job_id, Ask.from_content(turn.ask), turn.said) for turn in remembered] == [
        (1, first, ASK, ["A"])
    ]


def test_an_answer_under_an_old_fence_leaves_nothing_in_the_transcript(line: Line) -> None:
    first = line.turn()
    old, ref = line.begin(first)
    line.redis.hset(keys.job(first), "lease_until", "1")
    line.redis.zadd(keys.LEASES, {first: 1})
    Sweeper(line.records, PrepQueues(line.redis, WIRE)).sweep()
    left = TurnLeft(entry(line, first), HELD, True)
    assert not line.records.publish(old, Answered(BODY, turn=left), ref)
    assert read_transcript(line.redis, "ses_1")[1] == []
    assert line.view().holding is None
    new, ref = line.begin(first)
    assert line.records.publish(new, Answered(BODY, turn=left), ref)
    assert len(read_transcript(line.redis, "ses_1")[1]) == 1


def test_a_turn_goes_to_the_engine_that_holds_its_prefix_while_that_lives(line: Line) -> None:
    line.redis.set(keys.heartbeat("engine-1"), b"beat")
    line.answer(line.turn(), TurnLeft(holding=HELD, says_held=True, reused=0))
    assert line.view().holding == HELD
    near = line.turn()
    waits = line.turn()
    assert (line.offered("engine-1"), line.offered()) == ([near], [])
    line.answer(near, TurnLeft(holding=HELD, says_held=True, reused=100), lane="engine-1")
    assert (line.offered("engine-1"), line.offered()) == ([waits], [])
    assert (line.view().record.reused_turns, line.view().record.reused_tokens) == (1, 100)
    behind = line.turn()
    line.redis.delete(keys.heartbeat("engine-1"))
    assert line.view().holding is None  # it is gone, and what it held too
    line.answer(waits, lane="engine-1")
    assert line.offered() == [behind]


def test_what_is_held_ends_with_its_lease(line: Line) -> None:
    line.redis.set(keys.heartbeat("engine-1"), b"beat")
    line.answer(line.turn(), TurnLeft(holding=replace(HELD, lease_s=0.05), says_held=True))
    time.sleep(0.1)
    assert line.view().holding is None
    line.answer(line.turn(), TurnLeft(holding=HELD, says_held=True))
    line.answer(line.turn(), TurnLeft(says_held=True), lane="engine-1")
    assert line.view().holding is None


def test_notices_are_kept_the_first_and_the_last(line: Line) -> None:
    lease, ref = line.begin(line.turn())
    line.records.publish(lease, Refused("internal", "no", turn=TurnLeft(notices=("Backend: x", "it failed"))), ref)
    assert line.view().notices == ["Backend: x", "it failed"]
    for number in range(250):
        line.redis.rpush(keys.session_notices("ses_1"), pack([f"notice {number}"]))
    line.answer(line.turn(), TurnLeft(notices=("the last",)))
    notices = line.view().notices
    assert notices[:2] == ["Backend: x", "it failed"]
    assert notices[-1] == "the last"


def test_the_events_of_all_turns_are_the_sessions(line: Line) -> None:
    first, second = line.turn(), line.turn()
    for job_id in (first, second):
        line.answer(job_id)
    events = cast(Any, line.redis.xrange(keys.session_events("ses_1")))
    messages = [WIRE.decode(values[b"m"]).message for _, values in events]
    assert [cast(Any, message).job_id for message in messages] == [first, first, second, second]
    assert messages[-1] == Status(second, "idle", "running")


def test_a_newer_turn_replaces_those_that_no_engine_is_at(line: Line) -> None:
    running = line.turn()
    line.begin(running)
    waiting = line.turn()
    sha256 = stored(line, b"picture")
    preparing = line.turn(images=(sha256,))
    held = line.records.lease(preparing, "preparing")
    assert held is not None
    newest = line.turn()
    line.run(lambda sessions: sessions.replace_waiting("ses_1", newest))
    assert line.records.get(running).status is JobStatus.RUNNING
    record = line.records.get(waiting)
    assert record.status is JobStatus.CANCELLED
    assert record.error == {
        "code": "replaced", "message": "replaced by a newer turn of its session", "replaced_by": newest
    }  # fmt: skip
    assert line.records.get(preparing).status is JobStatus.CANCELLING
    assert not line.records.prepared(held, [])
    assert line.records.get(preparing).error == record.error  # the reason that was given first
    assert line.view().line == [running, newest]


def test_bounds_of_a_session(line: Line) -> None:
    turns = [line.turn() for _ in range(4)]
    with pytest.raises(QueueFull) as waiting:
        line.turn()
    assert waiting.value.data == {"limit": "turns of this session", "held": 4, "allowed": 4}
    for job_id in turns:
        line.answer(job_id, TurnLeft(entry(line, job_id)))
    with pytest.raises(SessionFull) as full:
        line.turn()
    assert full.value.data["allowed"] == 3


@pytest.mark.parametrize("changes", [{"owner": "other"}, {"session_id": "ses_2"}])
def test_nobody_elses_session(line: Line, changes: dict[str, Any]) -> None:
    with pytest.raises(UnknownSession):
        line.turn(**changes)
    assert line.redis.exists(keys.job("t1")) == 0
    assert line.view().line == []


def test_time_to_live_runs_only_while_no_turn_does(line: Line) -> None:
    first = line.turn()
    assert line.view().expires_in_s is None
    line.answer(first, TurnLeft(entry(line, first), notices=("x",)))
    assert 590 < line.view().expires_in_s <= 600
    for key in (keys.session_transcript, keys.session_events, keys.session_notices):
        assert 590 < line.redis.ttl(key("ses_1")) <= 600
    line.turn()
    assert line.redis.ttl(keys.session_transcript("ses_1")) == -1


def test_interrupt_ends_the_turn_that_runs_or_all(line: Line) -> None:
    turns = [line.turn() for _ in range(3)]
    line.begin(turns[0])
    assert line.run(lambda sessions: sessions.interrupt("ses_1", waiting=False)) == [turns[0]]
    assert line.records.get(turns[0]).status is JobStatus.CANCELLING
    [(_, control)] = cast(Any, line.redis.xrange(keys.CONTROL))
    assert WIRE.decode(control[b"m"]).message == InterruptRequest([turns[0]])
    assert line.run(lambda sessions: sessions.interrupt("ses_1", waiting=True)) == turns
    assert [line.records.get(job_id).status for job_id in turns[1:]] == [JobStatus.CANCELLED] * 2
    assert line.view().line == turns[:1]  # until its engine has let go


def test_a_closed_session_leaves_nothing_and_a_turn_that_still_runs_brings_nothing_back(line: Line) -> None:
    line.redis.set(keys.heartbeat("engine-1"), b"beat")
    line.answer(line.turn(), TurnLeft(entry(line, "t1"), HELD, True, 0, ("x",)))
    running = line.turn()
    lease, ref = line.begin(running, "engine-1")
    waiting = line.turn()
    line.run(lambda sessions: sessions.close(SESSION))
    assert line.records.get(waiting).status is JobStatus.CANCELLED
    assert not line.records.publish(lease, Answered(BODY, turn=TurnLeft(entry(line, running), HELD, True)), ref)
    assert line.records.get(running).status is JobStatus.CANCELLED
    assert list(line.redis.scan_iter(match=f"{keys.session('ses_1')}*")) == []
    assert line.run(lambda sessions: sessions.of_owner("local", None, 10)) == []
    control = [WIRE.decode(values[b"m"]).message for _, values in cast(Any, line.redis.xrange(keys.CONTROL))]
    assert control[-1] == ReleaseRequest(["ses_1"])


def test_a_turn_that_needs_more_pictures_than_its_record_names_goes_back_with_all_of_them(line: Line) -> None:
    """A turn that waited learns of an earlier one's pictures only when its transcript is read."""
    one, two = stored(line, b"one"), stored(line, b"two")
    job_id = line.turn(images=(one,), to_prepare=False)
    lease, ref = line.begin(job_id)
    assert line.records.hand_back(lease, "preparing", ref, (one, two))
    record = line.records.get(job_id)
    assert (record.stage, record.images, record.returns) == ("preparing", (one, two), 1)
    refs = [cast(Any, line.redis.hget(keys.image(sha), "refs")) for sha in record.images]
    assert refs == [b"1", b"1"]
    line.records.cancel(job_id)
    assert [cast(Any, line.redis.hget(keys.image(sha), "refs")) for sha in record.images] == [b"0", b"0"]
    assert line.view().line == []
