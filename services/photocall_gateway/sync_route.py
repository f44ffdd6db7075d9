"""What the routes of the synchronous shapes have in common: read, parse, wait, answer within the time.

A caller that prefers not to wait is told where its job is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from photocall.errors import CodedError
from photocall.jobs import JobRecord, JobStatus
from photocall_gateway.body import Body, Limits
from photocall_gateway.described import WRITE_ERRORS, header, operation
from photocall_gateway.dispatch import late_failure
from photocall_gateway.job_response import POLL_AFTER_S, job_response
from photocall_gateway.openapi_parts import Schema, ref
from photocall_gateway.parsing import ParsedRequest
from photocall_gateway.prefer import preferred_wait_s, prefers_async, while_connected
from photocall_gateway.reading import read_body
from photocall_gateway.server_timing import server_timing, stages_ms
from photocall_gateway.services import Services, owner, services
from photocall_gateway.uploads import MAX_KEY, idempotency_key
from photocall_gateway.waiting import ended, wait_for

LEAST_WAIT_S = 0.2  # even for a body that took long to arrive
REFUSAL_S = 0.5  # of the time is left for a last look and a refusal: it has arrived when the time is over
INLINE_PARSE_BYTES = 1 << 16  # a larger body is parsed in a thread, so that nobody else waits for it


@dataclass(frozen=True, slots=True)
class Shape:
    """A synchronous shape: its name in the job's record, its parser, and how its answer is written."""

    name: str
    parse: Callable[[Body, Limits], ParsedRequest]
    answer: Callable[[JobRecord], dict[str, Any]]


async def answered(request: Request, shape: Shape) -> Response:
    """One request, one complete answer; refused when it does not come in time."""
    s = services(request)
    started = time.monotonic()
    key = idempotency_key(request)
    body = await read_body(request, s.settings.max_body_bytes)
    if len(body.data) <= INLINE_PARSE_BYTES:
        parsed = shape.parse(body, s.limits)
    else:
        parsed = await asyncio.to_thread(shape.parse, body, s.limits)
    s.dispatcher.check_model(parsed)
    if prefers_async(request):
        return await _accepted(request, s, shape, parsed, key)
    wait_s = max(LEAST_WAIT_S, s.settings.sync_wait_s - REFUSAL_S - (time.monotonic() - started))
    work = s.sync_calls.answer(parsed, shape=shape.name, owner=owner(request), wait_s=wait_s, key=key)
    try:
        async with asyncio.timeout(wait_s + REFUSAL_S):  # a store that hangs is no reason to keep the caller longer
            record = await while_connected(request, work)
    except TimeoutError as error:
        raise CodedError("unavailable", "The store does not answer") from error
    return _response(s, shape, record)


async def _accepted(request: Request, s: Services, shape: Shape, parsed: ParsedRequest, key: str | None) -> Response:
    """202 with the place of the job, which is not given up when nobody waits; with `wait=N` the answer if in time."""
    caller = owner(request)
    if key is not None:
        await s.sync_calls.bind(caller, shape.name, key, parsed.hash)
    accepted = await s.dispatcher.accept(
        parsed,
        owner=caller,
        shape=shape.name,
        priority="interactive",
        deadline_s=s.settings.default_deadline_s,
        idempotency_key=None if key is None else f"async:{shape.name}:{key}",
    )
    wait_s = preferred_wait_s(request, s.settings.max_wait_s) or 0.0
    record = await while_connected(request, wait_for(s.records.look, s.wakes, accepted.job_id, ended, wait_s))
    if wait_s and record.status is JobStatus.SUCCEEDED:
        return _response(s, shape, record)
    if wait_s and record.status.terminal:
        raise late_failure(record.error)
    headers = {"location": f"/v1/jobs/{record.job_id}", "retry-after": str(POLL_AFTER_S)}
    return await job_response(s, record, 202, {**headers, "preference-applied": "respond-async"})


def _response(s: Services, shape: Shape, record: JobRecord) -> Response:
    stages = stages_ms(record)
    for stage, duration in stages.items():
        s.metrics.stage_seconds.labels(stage).observe(duration / 1000)
    headers = {"server-timing": server_timing(stages), "cache-control": "no-store"}
    return JSONResponse(shape.answer(record), headers=headers)


def sync_operation(summary: str, answer: Schema, body: Schema, error: str, errors: tuple[int, ...] = ()) -> Schema:
    """What the route of a synchronous shape says of itself."""
    parameters = [
        header(
            "Idempotency-Key",
            "Stands for one body; equal bodies share their work with or without it.",
            maxLength=MAX_KEY,
        ),
        header("Prefer", "`respond-async`: 202 and the job; with `wait=N` the answer if it comes in time."),
    ]
    ok: dict[int, Schema | None] = {200: answer, 202: ref("Job")}
    failures = (*WRITE_ERRORS, 409, 410, 504, *errors)
    return operation(summary, ok, failures, parameters=parameters, body=body, error=error)
