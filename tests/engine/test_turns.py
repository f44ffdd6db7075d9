"""Turns between Redis and the engine: transcripts read, pictures found, answers written, and engines that are gone."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from photocall import keys
from photocall.asks import Ask
from photocall.connections import connect_async
from photocall.images import ImageStore
from photocall.jobs import JobStatus, NewJob
from photocall.messages import ReleaseRequest
from photocall.questions import Noul, Text
from photocall.records import AsyncRecords
from photocall.redis_server import RedisServer
from photocall.sessions import AsyncSessions, Remembered, SessionRecord, read_transcript
from photocall.wire import pack
from photocall_engine import intake as intake_module
from photocall_engine.calibration import Calibration
from photocall_engine.control import Control
from photocall_engine.edges import EngineRequest
from photocall_engine.engine import Engine, build_engine
from photocall_engine.fake_runner import FakeRunner
from photocall_engine.intake import Ticket
from photocall_engine.outlet import RedisOutlet
from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.queue_bench import HASH, WIRE, QueueBench, until

QUESTION = Noul("q", "Is it so?")
SESSION = SessionRecord("ses_1", "local", 1000.0, 600, "every", True, "Be brief.", {})


class Turns:
    """One or more engines over one Redis, run by hand."""

    def __init__(self, client: redis.Redis, url: str, directory: Path, tokenizer: ChatTokenizer) -> None:
        self.bench = QueueBench(client, directory / "blobs")
        self.redis = client
        self.url = url
        self.tokenizer = tokenizer
        self.count = 0
        self.outlets: list[RedisOutlet] = []
        self.gateway(lambda sessions: sessions.create(SESSION))

    def gateway(self, work: Callable[[AsyncSessions], Any]) -> Any:
        async def go() -> Any:
            client = connect_async(self.url)
            try:
                return await work(AsyncSessions(AsyncRecords(client, WIRE), WIRE))
            finally:
                await client.aclose()

        return asyncio.run(go())

    def engine(self, name: str) -> Engine:
        """An engine with threads of its own, alive."""
        self.redis.set(keys.heartbeat(name), b"beat")
        intake = self.bench.new_intake(name)
        outlet = RedisOutlet(self.bench.records, self.bench.leases, name)
        engine = build_engine(intake, outlet, FakeRunner(vocab_size=self.tokenizer.vocab_size), self.tokenizer,
                              Calibration(), "m", time.time, token_budget=256, max_requests=4)  # fmt: skip
        intake.start()
        outlet.start()
        self.bench.intake = intake
        self.outlets.append(outlet)
        return engine

    def turn(self, state: Any, picture: int | None = None, **changes: Any) -> str:
        """Accept a turn as the gateway does; its id."""
        self.count += 1
        assets = {}
        if picture is not None:
            data = b"picture %d" % picture
            assets = {"pic": hashlib.sha256(data).hexdigest()}
            ImageStore(self.redis).put(assets["pic"], data, "local")
        known = self.gateway(lambda sessions: sessions.pictures("ses_1"))
        own = tuple(assets.values())
        ask = Ask(None, state, (QUESTION,), assets)
        images = tuple(dict.fromkeys((*(image["sha256"] for image in known), *own)))
        now = time.time()
        new = NewJob(f"t{self.count}", "local", "turn", pack(ask.to_content()), images, "interactive", now, now + 100,
                     "h", body_bytes=1, session_id="ses_1", to_prepare=bool(own))  # fmt: skip
        self.bench.records.accept(replace(new, **changes))
        return new.job_id

    def prepare(self, job_id: str, *seeds: int, store: bool = True) -> None:
        """What prep does with a turn's pictures."""
        lease = self.bench.records.lease(job_id, "preparing")
        assert lease is not None
        described = []
        for seed in seeds:
            sha256 = hashlib.sha256(b"picture %d" % seed).hexdigest()
            blob_key = keys.blob_key(sha256, "140fast", HASH)
            if store:
                self.bench.blobs.put(blob_key, QueueBench.patches(seed))
            described.append({"sha256": sha256, "blob_key": blob_key, "grid_height": 3, "grid_width": 6, "num_soft": 2})
        assert self.bench.records.prepared(lease, described)

    def run(self, engine: Engine, job_id: str) -> dict[str, Any]:
        """Until a turn has ended; its report."""

        def ended() -> bool:
            engine.step()
            return self.bench.records.get(job_id).status.terminal

        until(ended, f"{job_id} to end")
        record = self.bench.records.get(job_id)
        assert record.status is JobStatus.SUCCEEDED, record.error
        assert record.result is not None
        return cast("dict[str, Any]", record.result["session"])

    def die(self, name: str) -> None:
        """The engine last made is killed: its threads stop, its heartbeat runs out."""
        self.bench.intake.stop()
        self.redis.delete(keys.heartbeat(name))

    def view(self) -> Any:
        return self.gateway(lambda sessions: sessions.view("ses_1"))


@pytest.fixture
def turns(
    redis_client: redis.Redis, redis_server: RedisServer, tmp_path: Path, tokenizer: ChatTokenizer
) -> Iterator[Turns]:
    made = Turns(redis_client, redis_server.url, tmp_path, tokenizer)
    yield made
    if made.bench.intake._thread.is_alive():
        made.bench.intake.stop()
    for outlet in made.outlets:
        outlet.stop(5)


def test_turns_with_pictures_go_on_from_what_is_held(turns: Turns) -> None:
    engine = turns.engine("engine-1")
    first = turns.turn("see pic", picture=1)
    turns.prepare(first, 1)
    report = turns.run(engine, first)
    assert (report["turn"], report["reused"], report["notices"]) == (1, 0, ["Backend: fake (no model)"])
    holding = turns.view().holding
    assert (holding.engine_id, holding.tokens, holding.bytes) == (
        "engine-1", report["held"]["tokens"], report["held"]["bytes"]
    )  # fmt: skip
    assert turns.view().notices == ["Backend: fake (no model)"]
    second = turns.turn(None)
    assert turns.bench.entries("interactive") == 0
    report = turns.run(engine, second)
    assert (report["reused"], len(report["notices"])) == (holding.tokens, 1)
    assert turns.view().notices == ["Backend: fake (no model)"]
    assert (turns.bench.entries(cast(Any, "engine-1")), turns.bench.pending(cast(Any, "engine-1"))) == (0, 0)
    session, remembered = read_transcript(turns.redis, "ses_1")
    assert [(turn.turn, turn.job_id) for turn in remembered] == [(1, first), (2, second)]
    assert [len(turn.images) for turn in remembered] == [1, 0]
    assert session.reused_tokens == holding.tokens


def test_the_engine_that_held_the_prefix_dies(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that was left in its stream is taken by another engine, which prefills again and says so."""
    monkeypatch.setattr(intake_module, "RECLAIM_EVERY_S", 0.05)
    engine = turns.engine("engine-1")
    turns.run(engine, turns.turn("One."))
    turns.die("engine-1")
    turns.redis.set(keys.heartbeat("engine-1"), b"beat")  # for as long as nobody knows
    left = turns.turn("Two.")
    assert turns.bench.entries(cast(Any, "engine-1")) == 1
    turns.redis.delete(keys.heartbeat("engine-1"))
    other = turns.engine("engine-2")
    report = turns.run(other, left)
    assert report["reused"] == 0
    assert any("prefilled again from the transcript" in notice for notice in report["notices"])
    assert turns.view().holding.engine_id == "engine-2"
    assert turns.view().notices[-1] == report["notices"][-1]
    until(lambda: other.step() or not turns.redis.exists(keys.engine_stream("engine-1")), "its stream to go")
    assert turns.redis.smembers(keys.INBOXES) == {b"engine-2"}


def test_an_entry_that_a_dead_engine_had_read_is_taken_over(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "RECLAIM_EVERY_S", 0.05)
    monkeypatch.setattr(intake_module, "RECLAIM_IDLE_MS", 1)
    turns.run(turns.engine("engine-1"), turns.turn("One."))
    turns.die("engine-1")
    turns.redis.set(keys.heartbeat("engine-1"), b"beat")
    left = turns.turn("Two.")
    stream = keys.engine_stream("engine-1")
    turns.redis.xreadgroup(keys.ENGINE_GROUP, "engine-1", {stream: ">"})
    turns.redis.delete(keys.heartbeat("engine-1"))
    time.sleep(0.01)
    assert turns.run(turns.engine("engine-2"), left)["turn"] == 2


def test_the_stream_of_a_living_engine_is_left_alone(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake_module, "RECLAIM_EVERY_S", 0.01)
    turns.run(turns.engine("engine-1"), turns.turn("One."))
    turns.die("engine-1")
    turns.redis.set(keys.heartbeat("engine-1"), b"beat")
    left = turns.turn("Two.")
    engine = turns.engine("engine-2")
    for _ in range(10):
        engine.step()
    assert turns.bench.records.get(left).status is JobStatus.QUEUED


def test_a_blob_of_an_earlier_turn_that_has_vanished_is_made_again(turns: Turns) -> None:
    engine = turns.engine("engine-1")
    first = turns.turn("see pic", picture=1)
    turns.prepare(first, 1)
    turns.run(engine, first)
    sha256 = hashlib.sha256(b"picture 1").hexdigest()
    turns.bench.blobs._path(keys.blob_key(sha256, "140fast", HASH)).unlink()
    second = turns.turn("And?")

    def back() -> bool:
        engine.step()
        return turns.bench.records.get(second).stage == "preparing"

    until(back, "it to go back to prep")
    assert turns.bench.records.get(second).images == (sha256,)
    turns.prepare(second, 1)
    assert turns.run(engine, second)["reused"] > 0


def test_a_turn_that_waited_behind_a_picture_learns_of_it(turns: Turns) -> None:
    """It was accepted before the picture was in the transcript, so its record does not name it."""
    engine = turns.engine("engine-1")
    first = turns.turn("see pic", picture=1)
    second = turns.turn("And?")
    assert turns.bench.records.get(second).images == ()
    turns.prepare(first, 1)
    turns.run(engine, first)
    assert turns.run(engine, second)["reused"] > 0


def test_a_turn_of_a_session_that_was_closed_meanwhile(turns: Turns) -> None:
    job_id = turns.turn("One.")
    turns.redis.delete(keys.session("ses_1"))  # its time to live, say
    engine = turns.engine("engine-1")

    def ended() -> bool:
        engine.step()
        return turns.bench.records.get(job_id).status.terminal

    until(ended, "it to end")
    record = turns.bench.records.get(job_id)
    assert record.status is JobStatus.CANCELLED
    assert record.error == {"code": "cancelled", "message": "the session was closed"}


def test_what_is_let_go_is_said_at_once_but_not_for_another_engine(turns: Turns) -> None:
    engine = turns.engine("engine-1")
    turns.run(engine, turns.turn("One."))
    assert turns.view().holding is not None
    outlet = RedisOutlet(turns.bench.records, turns.bench.leases, "engine-2")
    outlet.start()
    outlet.released("ses_1")
    assert outlet.stop(5)
    assert turns.view().holding is not None
    engine.held.ask_release(["ses_1"])
    engine.step()
    until(lambda: turns.view().holding is None, "it to be said")


def test_the_control_channel_closes_sessions(turns: Turns) -> None:
    released: list[str] = []
    control = Control(turns.redis, WIRE, "engine-1", turns.bench.leases, lambda reason: None, released.extend)
    control.start()
    time.sleep(0.05)

    def sent() -> bool:
        turns.redis.xadd(keys.CONTROL, {"m": WIRE.encode(ReleaseRequest(["ses_1"]))})
        return "ses_1" in released

    until(sent, "the word to arrive")
    control.stop()


def test_a_remembered_turn_survives_its_packing() -> None:
    ask = Ask("m", {"a": [1, "img"]}, (QUESTION, Text("t", "Say.", 9)), {"img": "f" * 64})
    turn = Remembered(3, "job_1", ask.to_content(), ["A", "words"], [{"sha256": "f" * 64, "num_soft": 2}])
    assert Remembered.unpack(turn.pack()) == turn
    assert Ask.from_content(Remembered.unpack(turn.pack()).ask) == ask


def test_a_ticket_says_what_was_prepared_for_the_turn_itself(turns: Turns) -> None:
    first = turns.turn("see pic", picture=1)
    turns.prepare(first, 1)
    turns.bench.intake = turns.bench.new_intake("engine-1")
    turns.bench.intake.start()
    [request] = turns.bench.take()
    assert isinstance(request, EngineRequest)
    assert request.turn is not None
    assert (request.turn.base, request.turn.number, request.turn.history) == ("Be brief.", 1, ())
    assert [image["num_soft"] for image in cast(Ticket, request.ticket).prepared] == [2]
