"""Where the time of a finished job went, for the Server-Timing header and the metrics."""

from __future__ import annotations

from collections.abc import Mapping

from photocall.jobs import JobRecord

# The stages in the order a request passes them; they do not overlap.
STAGES = ("queue", "prepare", "prefill", "readout")


def stages_ms(record: JobRecord) -> dict[str, float]:
    """Milliseconds by stage. `queue` is whatever was not work: waiting for prep, for the engine, for room in a step.

    The record's timings are seconds, written by the engine.
    """
    work = {stage: record.timings.get(stage, 0.0) * 1000 for stage in STAGES[1:]}
    total = max(0.0, record.completed_at - record.created_at) * 1000
    return {"queue": max(0.0, total - sum(work.values())), **work}


def server_timing(stages: Mapping[str, float]) -> str:
    """The header's value."""
    return ", ".join(f"{stage};dur={stages[stage]:.1f}" for stage in STAGES)
