"""The engine's proof that it can answer: one real request with one picture, before it says that it is ready."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from photocall.asks import Ask
from photocall.grid import Grid
from photocall.questions import Noul
from photocall_engine.edges import Answered, EngineRequest, Intake, Outcome, Outlet
from photocall_engine.engine import Engine
from photocall_engine.runner import PatchImage

TIMEOUT_S = 120.0
KEY = "picture"


class SelfTestError(Exception):
    """The engine did not answer its own question; the message says what happened instead."""


class _Once:
    """An intake of one request, and an outlet that keeps its outcome."""

    def __init__(self, request: EngineRequest) -> None:
        self._waiting = [request]
        self.outcome: Outcome | None = None

    def take(self, limit: int, wait_s: float) -> list[EngineRequest]:
        taken, self._waiting = self._waiting, []
        return taken

    def cancelled(self, job_ids: Collection[str]) -> set[str]:
        return set()

    def publish(self, request: EngineRequest, outcome: Outcome) -> None:
        self.outcome = outcome

    def event(self, request: EngineRequest, kind: str, data: Mapping[str, Any]) -> None:
        """Nobody listens."""

    def released(self, session_id: str) -> None:
        """No session is asked."""


@dataclass(frozen=True, slots=True)
class Passed:
    """What a self-test found: the seconds it took, and the answers, to the last bit."""

    took_s: float
    answers: Mapping[str, Any]


def run_self_test(build: Callable[[Intake, Outlet], Engine], grid: Grid | None) -> Passed:
    """Ask a yes-no question about a grey picture (about text where the model sees none).

    Raises SelfTestError. The engine made for it shares the runner, and is done with it afterwards.
    """
    began = time.monotonic()
    once = _Once(question(grid))
    engine = build(once, once)
    while once.outcome is None:
        engine.step()
        if time.monotonic() - began > TIMEOUT_S:
            raise SelfTestError(f"no answer within {TIMEOUT_S:.0f} s")
    if not isinstance(once.outcome, Answered):
        raise SelfTestError(f"answered with {once.outcome}")
    answers = once.outcome.body["answers"]
    probability = answers["grey"]["noul"]
    if not 0.0 <= probability <= 1.0:
        raise SelfTestError(f"a probability of {probability}")
    engine.check()
    return Passed(time.monotonic() - began, answers)


def question(grid: Grid | None, number: int = 0) -> EngineRequest:
    """The request. `number` names its picture: a new one is another picture to caches, with the same pixels."""
    asked = Noul("grey", "Is it grey?")
    if grid is None:
        return EngineRequest("self-test", Ask(None, "text alone", (asked,), {}), {})
    patches = np.full((grid.num_patches, 768), 128, dtype=np.uint8)
    name = f"{number:064x}"
    image = PatchImage(patches, grid.height, grid.width)
    return EngineRequest("self-test", Ask(None, KEY, (asked,), {KEY: name}), {name: image})
