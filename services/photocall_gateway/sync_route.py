"""What the routes of the synchronous shapes have in common: read, parse, wait, answer within the time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from photocall.errors import CodedError
from photocall.jobs import JobRecord
from photocall_gateway.body import Body, Limits
from photocall_gateway.parsing import ParsedRequest
from photocall_gateway.prefer import while_connected
from photocall_gateway.reading import read_body
from photocall_gateway.server_timing import server_timing, stages_ms
from photocall_gateway.services import Services, owner, services
from photocall_gateway.uploads import idempotency_key

LEAST_WAIT_S = 0.5  # even for a body that took long to arrive
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
    wait_s = max(LEAST_WAIT_S, s.settings.sync_wait_s - (time.monotonic() - started))
    work = s.sync_calls.answer(parsed, shape=shape.name, owner=owner(request), wait_s=wait_s, key=key)
    try:
        async with asyncio.timeout(wait_s + 1.0):  # a store that hangs is no reason to keep the caller longer
            record = await while_connected(request, work)
    except TimeoutError as error:
        raise CodedError("unavailable", "The store does not answer") from error
    return _response(s, shape, record)


def _response(s: Services, shape: Shape, record: JobRecord) -> Response:
    stages = stages_ms(record)
    for stage, duration in stages.items():
        s.metrics.stage_ms.labels(stage).observe(duration)
    headers = {"server-timing": server_timing(stages), "cache-control": "no-store"}
    return JSONResponse(shape.answer(record), headers=headers)
