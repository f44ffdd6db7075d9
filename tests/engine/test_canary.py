"""The canary: asked when nobody else is there, computed anew each time, and told apart from others on both edges."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest

from photocall.grid import grid_for
from photocall.questions import Noul
from photocall.settings import EngineSettings
from photocall_engine.__main__ import _info
from photocall_engine.calibration import Calibration
from photocall_engine.canary import Canary, asking
from photocall_engine.engine import Answered, Engine, HandedBack, Refused, build_engine
from photocall_engine.fake_runner import FakeRunner, drawn_logits
from photocall_engine.self_test import run_self_test
from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.harness import Bench, Clock, bench, picture

GRID = grid_for(640, 480, 70)
EVERY_S = 300.0


@dataclass
class Watched:
    """A served engine with a canary in front of a bench's lists."""

    tokenizer: ChatTokenizer
    bad: bool = False  # the model says something else than at the start
    clock: Clock = field(default_factory=Clock)
    outer: Bench = field(init=False)
    canary: Canary = field(init=False)
    engine: Engine = field(init=False)
    runner: FakeRunner = field(init=False)

    def __post_init__(self) -> None:
        def logits(history: int, tokens: list[int]) -> Any:
            found = drawn_logits(history, self.tokenizer.vocab_size)
            return found * np.float32(1.001) if self.bad else found

        self.runner = FakeRunner(vocab_size=self.tokenizer.vocab_size, logits=logits, sliding_pages=64)
        self.outer = Bench(self.runner, self.tokenizer)
        build = partial(
            build_engine,
            runner=self.runner,
            tokenizer=self.tokenizer,
            calibration=Calibration(),
            model="tiny",
            clock=self.clock,
            token_budget=256,
            max_requests=16,
        )
        passed = run_self_test(build, GRID)
        self.canary = Canary(self.outer, self.outer, asking(GRID), passed.answers, EVERY_S, clock=self.clock)
        self.engine = build(self.canary, self.canary)

    def idle(self, seconds: float) -> None:
        """Time passes, and the engine looks round until it has nothing to do."""
        self.clock.now += seconds
        while self.engine.step():
            pass
        self.engine.check()


@pytest.fixture
def watched(tokenizer: ChatTokenizer) -> Watched:
    return Watched(tokenizer)


def test_an_idle_engine_asks_again_and_again_and_computes_each_time(watched: Watched) -> None:
    encoded = watched.runner.encoded
    watched.idle(EVERY_S - 1)
    assert not watched.canary.runs
    for times in (1, 2):
        watched.idle(EVERY_S)
        assert watched.canary.runs == {"same": times}
        assert watched.runner.encoded == encoded + times
    assert watched.canary.same
    assert (watched.outer.outcomes, watched.outer.events) == ({}, [])
    beat = _info(watched.engine, EngineSettings(), "e", "tiny", [])()
    assert (beat.answered, beat.pictures) == (0, 0), "an idle engine showed pictures a second that nobody had sent"


def test_other_bits_are_told_until_they_are_the_same_again(watched: Watched, caplog: pytest.LogCaptureFixture) -> None:
    watched.bad = True
    with caplog.at_level(logging.ERROR):
        watched.idle(EVERY_S)
    assert watched.canary.runs == {"different": 1}
    assert not watched.canary.same
    assert "not what it was at the start" in caplog.text
    watched.bad = False
    watched.idle(EVERY_S)
    assert watched.canary.same


def test_nobody_else_notices(watched: Watched, tokenizer: ChatTokenizer) -> None:
    """Requests that come while it runs get the answers that they get without it, and it gets its own."""
    alone = bench(tokenizer, sliding_pages=64)
    for found in (alone, watched.outer):
        for number in range(3):
            found.ask(f"job-{number}", "see pic", Noul("q", "Is it?"), images={"pic": picture(number)})
    answers = {job: alone.body(job)["answers"] for job in alone.run()}
    waiting, watched.outer.incoming = watched.outer.incoming, []
    watched.clock.now += EVERY_S
    # it asks, and before it has been planned the others are there
    [request] = watched.canary.take(8, 0.2)
    watched.outer.incoming = [*waiting, request]
    while watched.engine.step():
        pass
    assert {job: watched.outer.body(job)["answers"] for job in watched.outer.outcomes} == answers
    assert watched.canary.runs == {"same": 1}


def test_an_engine_that_is_busy_or_was_a_moment_ago_is_left_alone(watched: Watched) -> None:
    watched.clock.now += EVERY_S
    watched.outer.ask("job", "words", Noul("q", "Is it?"))
    watched.idle(0)
    assert list(watched.outer.outcomes) == ["job"]
    watched.idle(0.5)
    assert not watched.canary.runs
    watched.idle(0.6)
    assert watched.canary.runs == {"same": 1}


def test_none_is_asked_where_it_is_off(watched: Watched) -> None:
    watched.canary._every_s = 0.0
    watched.idle(10 * EVERY_S)
    assert not watched.canary.runs


def test_one_that_fails_is_no_drift_and_one_handed_back_is_nothing(watched: Watched) -> None:
    request = asking(GRID)(7)
    watched.canary.publish(request, Refused("internal", "broken"))
    watched.canary.publish(request, HandedBack("the engine is shutting down"))
    assert watched.canary.runs == {"failed": 1}
    assert watched.canary.same
    watched.canary.publish(request, Answered({"answers": {}}))
    assert watched.canary.runs == {"failed": 1, "different": 1}
