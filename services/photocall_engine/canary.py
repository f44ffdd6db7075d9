"""Canary: the question of the start, asked again while nobody else is there, and whether its bits are still the same.

Weights, kernels and memory may go bad under a running engine; an answer that differs by one bit shows it. It goes
through the engine like any request, on the pools that all use, and no other one waits for more than one step of it.
Its picture has another name each time, so that neither the tower's work nor the prefix is found in a cache; that costs
the caches one picture's room.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from photocall.grid import Grid
from photocall_engine.edges import Answered, EngineRequest, HandedBack, Intake, Outcome, Outlet
from photocall_engine.self_test import question

log = logging.getLogger(__name__)

JOB = "canary"


def asking(grid: Grid | None) -> Callable[[int], EngineRequest]:
    """Makes the start's question, as one that anybody else goes before."""

    def ask(number: int) -> EngineRequest:
        return replace(question(grid, number), job_id=JOB, owner=JOB, priority="batch")

    return ask


class Canary:
    """Stands between an engine and its edges. `ask` makes the n-th question; `expected` are the answers of the start.

    `every_s`: between two questions, and at least so long has nobody else asked before one; 0: none is asked.
    """

    def __init__(
        self,
        intake: Intake,
        outlet: Outlet,
        ask: Callable[[int], EngineRequest],
        expected: Mapping[str, Any],
        every_s: float,
        quiet_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._intake = intake
        self._outlet = outlet
        self._ask = ask
        self._expected = expected
        self._every_s = every_s
        self._quiet_s = quiet_s
        self._clock = clock
        self._busy_at = self._asked_at = clock()
        self._number = 0
        self.runs: Counter[str] = Counter()  # same, different, failed
        self.same = True
        self.took_s = 0.0  # the last answer

    def take(self, limit: int, wait_s: float) -> list[EngineRequest]:
        """See Intake. Only an engine that has nothing to do waits."""
        taken = self._intake.take(limit, wait_s)
        now = self._clock()
        if taken or not wait_s:
            self._busy_at = now
            return taken
        if not self._every_s or now - self._asked_at < self._every_s or now - self._busy_at < self._quiet_s:
            return []
        self._asked_at = now
        self._number += 1
        return [self._ask(self._number)]

    def cancelled(self, job_ids: Collection[str]) -> set[str]:
        """See Intake."""
        return self._intake.cancelled(job_ids)

    def publish(self, request: EngineRequest, outcome: Outcome) -> None:
        """See Outlet."""
        if request.job_id == JOB:
            self._compare(outcome)
        else:
            self._outlet.publish(request, outcome)

    def event(self, request: EngineRequest, kind: str, data: Mapping[str, Any]) -> None:
        """See Outlet."""
        if request.job_id != JOB:
            self._outlet.event(request, kind, data)

    def released(self, session_id: str) -> None:
        """See Outlet."""
        self._outlet.released(session_id)

    def _compare(self, outcome: Outcome) -> None:
        if isinstance(outcome, HandedBack):
            return  # the engine is leaving
        self.took_s = self._clock() - self._asked_at
        if not isinstance(outcome, Answered):
            self.runs["failed"] += 1
            log.error("the canary has no answer: %s", outcome)
            return
        answers = outcome.body["answers"]
        self.same = answers == self._expected
        self.runs["same" if self.same else "different"] += 1
        if not self.same:
            log.error("the canary's answer is not what it was at the start: %s, then %s", answers, self._expected)
