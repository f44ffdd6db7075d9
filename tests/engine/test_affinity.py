"""Two engines on one queue: a picture is asked about again where its prefix is, and nothing hangs on that engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from photocall import keys
from photocall.jobs import JobStatus
from photocall_engine import intake as intake_module
from photocall_engine.calibration import Calibration
from photocall_engine.engine import build_engine
from photocall_engine.fake_runner import FakeRunner
from photocall_engine.outlet import RedisOutlet
from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.queue_bench import HASH, QueueBench, until


class Member:
    """An engine with a model that computes nothing, on a thread of its own, alive until it is killed."""

    def __init__(self, client: redis.Redis, directory: Path, tokenizer: ChatTokenizer, name: str) -> None:
        self.name = name
        self.bench = QueueBench(client, directory / "blobs")
        self.bench.intake = self.bench.new_intake(name)
        self._outlet = RedisOutlet(self.bench.records, self.bench.leases, name)
        runner = FakeRunner(vocab_size=tokenizer.vocab_size)
        edges = (self.bench.intake, self._outlet)
        self.engine = build_engine(
            *edges, runner, tokenizer, Calibration(), "m", time.time, token_budget=256, max_requests=4
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self.engine.run, args=(self._stopped.is_set,))
        client.set(keys.heartbeat(name), b"beat")
        for part in (self.bench.intake, self._outlet, self._thread):
            part.start()

    @property
    def seen(self) -> int:
        """Pictures that its tower has seen: those that its caches did not have."""
        return self.engine.tally.encoded_pictures

    def kill(self) -> None:
        """It does nothing more. Its heartbeat is left to run out."""
        if not self._stopped.is_set():
            self._stopped.set()
            self.bench.intake.stop()
            self._thread.join()
            self._outlet.stop(5)


class Crew:
    """Two of them, and whoever asks."""

    def __init__(self, client: redis.Redis, directory: Path, tokenizer: ChatTokenizer) -> None:
        self.redis = client
        self.members = [Member(client, directory, tokenizer, name) for name in ("engine-1", "engine-2")]
        self.bench = QueueBench(client, directory / "blobs")
        self._count = 0
        until(lambda: client.scard(keys.INBOXES) == 2, "both to have a stream")

    def offer(self, picture: int) -> str:
        """A question about a picture, prepared; its job."""
        self._count += 1
        job_id = f"j{self._count}"
        self.bench.accept_picture(job_id, picture)
        return job_id

    def ask(self, picture: int) -> None:
        self.answered(self.offer(picture))

    def answered(self, job_id: str) -> None:
        until(lambda: self.bench.records.get(job_id).status.terminal, "an answer")
        assert self.bench.records.get(job_id).status is JobStatus.SUCCEEDED

    def forget(self) -> None:
        """Nobody knows any more which engine answered about what."""
        for key in self.redis.scan_iter(keys.near("*")):
            self.redis.delete(key)

    @property
    def seen(self) -> int:
        return sum(member.seen for member in self.members)


@pytest.fixture
def crew(redis_client: redis.Redis, tmp_path: Path, tokenizer: ChatTokenizer) -> Iterator[Crew]:
    made = Crew(redis_client, tmp_path, tokenizer)
    yield made
    for member in made.members:
        member.kill()


def test_every_question_about_a_picture_finds_it_where_it_was_seen_first(crew: Crew) -> None:
    for _ in range(3):
        for picture in range(9):  # an odd number: two that take turns would each see all of them
            crew.ask(picture)
    assert crew.seen == 9  # once each, by one of the two


def test_without_the_hint_both_engines_see_the_picture(crew: Crew) -> None:
    """What the hint is for; and it is a hint only: every answer comes all the same."""

    def asked_until_both_saw_it() -> bool:
        crew.forget()
        crew.ask(1)
        return crew.seen == 2

    until(asked_until_both_saw_it, "the other engine to be asked", 30)


@pytest.mark.parametrize("read", [False, True])
def test_what_was_offered_to_an_engine_that_dies_is_answered_by_the_other(
    crew: Crew, monkeypatch: pytest.MonkeyPatch, read: bool
) -> None:
    monkeypatch.setattr(intake_module, "RECLAIM_EVERY_S", 0.05)
    monkeypatch.setattr(intake_module, "RECLAIM_IDLE_MS", 1)
    crew.ask(1)
    [dies] = [member for member in crew.members if member.seen]
    [stays] = [member for member in crew.members if not member.seen]
    dies.kill()
    left = crew.offer(1)
    own = cast(Any, dies.name)
    assert crew.bench.entries(own) == 1
    if read:  # and not leased
        crew.redis.xreadgroup(keys.ENGINE_GROUP, dies.name, {keys.engine_stream(own): ">"})
    crew.redis.delete(keys.heartbeat(dies.name))  # its time is over
    crew.answered(left)
    assert [event.msg_type for event in crew.bench.events(left)].count("result") == 1
    assert stays.seen == 1
    until(lambda: not crew.redis.exists(keys.engine_stream(own)), "its stream to go")
    assert crew.redis.hget(keys.near(blob_key(crew, left)), "stream") == keys.engine_stream(stays.name).encode()
    crew.ask(1)
    assert stays.seen == 1


def blob_key(crew: Crew, job_id: str) -> str:
    """What the picture of a job is called as the model sees it."""
    [sha256] = crew.bench.records.get(job_id).images
    return keys.blob_key(sha256, "140fast", HASH)
