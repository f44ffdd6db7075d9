"""Tally: what an engine has done, as plain numbers: nothing here takes a lock, so a step pays next to nothing for it.

The engine's loop counts steps, the outlet's thread counts outcomes, each its own fields; `metrics.py` reads them from a
third thread. What a number means stands in `photocall.metrics`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

from photocall import metrics
from photocall_engine.steps import Step

TOKENS = {"prompt": "prompt_rows", "decode": "decode_rows", "cached": "cached_rows", "image": "image_tokens"}


class Distribution:
    """How many values fell into each bucket, and their sum: one thread adds, others may read."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """One more; a value on a bound belongs below it."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value


class Tally:
    """One engine's numbers since its start."""

    def __init__(self) -> None:
        self.step_rows = Distribution(metrics.STEP_ROWS)
        self.step_seconds = Distribution(metrics.STEP_S)
        self.failed_steps = 0
        self.encoded_pictures = 0
        self.outcomes: Counter[tuple[str, str]] = Counter()  # by outcome and code
        self.pictures = 0
        self.questions: Counter[tuple[str, str]] = Counter()  # by type and status
        self.tokens: Counter[str] = Counter()
        self.lookups: Counter[str] = Counter()
        self.stages: defaultdict[str, Distribution] = defaultdict(lambda: Distribution(metrics.STAGE_S))
        self.label_mass: defaultdict[str, Distribution] = defaultdict(lambda: Distribution(metrics.SHARES))

    def began(self, step: Step) -> None:
        """A step is issued."""
        self.step_rows.add(step.batch.num_rows)
        self.encoded_pictures += len(step.encode)

    def ended(self, seconds: float) -> None:
        """Its values are there."""
        self.step_seconds.add(seconds)

    def answered(self, body: Mapping[str, Any], timings: Mapping[str, float], pictures: int) -> None:
        """An answer that counts is written. `body` is the response's, `timings` are seconds by stage."""
        self.outcomes["answered", ""] += 1
        self.pictures += pictures
        usage = body["usage"]
        for kind, name in TOKENS.items():
            self.tokens[kind] += usage.get(name, 0)
        self.lookups["hit" if usage.get("cached_rows") else "miss"] += 1
        for stage, seconds in timings.items():
            self.stages[stage].add(seconds)
        for answer in body["answers"].values():
            self.questions[answer["type"], answer.get("answer_status", "answered")] += 1
            if (mass := answer.get("label_mass")) is not None:
                self.label_mass[answer["type"]].add(mass)
