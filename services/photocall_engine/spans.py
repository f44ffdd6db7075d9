"""What an engine says of a request in its trace: waiting for room, its steps, and the writing of its answer."""

from __future__ import annotations

import time

from photocall.tracing import Spans, parent_of
from photocall_engine.edges import Answered, EngineRequest, Refused
from photocall_engine.intake import Ticket

USAGE = ("steps", "prompt_rows", "decode_rows", "cached_rows", "image_tokens")


def record_spans(
    spans: Spans, request: EngineRequest, outcome: Answered | Refused, ticket: Ticket, publish_at: float
) -> None:
    """Its answer was handed over to be written at `publish_at`, and is written. Called by the thread that wrote it."""
    parent, job = parent_of(ticket.lease.cause), request.job_id
    if not parent:
        return
    if isinstance(outcome, Answered):
        times, usage = outcome.timings, outcome.body["usage"]
        admitted_at = request.arrived_at + times["queue"]
        prefilled_at = admitted_at + times["prefill"]
        spans.record("engine wait", parent, ticket.offered_at, admitted_at, job=job)
        about = {name: usage[name] for name in USAGE if name in usage}
        steps = spans.record("steps", parent, admitted_at, publish_at, job=job, pictures=len(ticket.prepared), **about)
        spans.record("prefill", steps, admitted_at, prefilled_at, job=job)
        spans.record("readout", steps, prefilled_at, prefilled_at + times["readout"], job=job)
    else:
        spans.record("engine", parent, ticket.offered_at, publish_at, job=job, code=outcome.code)
    spans.record("publish", parent, publish_at, time.time(), job=job)
