"""Flight: a step on its way through the runner, issued once and collected once.

An error while it is issued is kept until it is collected: whatever was issued before can still be answered first.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from photocall_engine.readout import Floats
from photocall_engine.runner import ModelRunner
from photocall_engine.steps import Step


class BadLogits(RuntimeError):
    """The model said something that is no number."""


@dataclass(frozen=True, slots=True)
class Flight:
    """A step that was issued, at a time of `perf_counter`; `reading` is the runner's. `error`: it could not be, and
    nothing of it counts."""

    step: Step
    issued_at: float
    reading: object = None
    error: Exception | None = None


def issue(runner: ModelRunner, step: Step) -> Flight:
    """All of a step, its reads included. A device works on while the caller does."""
    issued_at = time.perf_counter()
    try:
        runner.set_sliding_map(*step.map_changes)
        if step.encode:
            runner.encode_images([image for _, image, _ in step.encode], [base for _, _, base in step.encode])
        if len(step.copy_from):
            runner.copy_pages(step.copy_from, step.copy_to)
        runner.forward(step.batch)
        return Flight(step, issued_at, runner.read(step.asked.reads))
    except Exception as error:
        return Flight(step, issued_at, error=error)


def collect(runner: ModelRunner, flight: Flight) -> list[Floats]:
    """Wait for a step; what each of its readers asked for, in their order. Raises whatever went wrong."""
    if flight.error is not None:
        raise flight.error
    values = runner.collect(flight.reading)
    if not values.finite:
        raise BadLogits("logits that are not finite")
    return list(flight.step.asked.apart(values))
