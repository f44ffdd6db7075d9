"""System One's shape: POST /v1/systemone, answered or refused while the caller waits."""

from __future__ import annotations

import asyncio
import time

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from photocall.errors import CodedError
from photocall.jobs import JobRecord
from photocall_gateway.parsing import parse_systemone
from photocall_gateway.prefer import while_connected
from photocall_gateway.reading import read_body
from photocall_gateway.routes.jobs import INLINE_PARSE_BYTES
from photocall_gateway.server_timing import server_timing, stages_ms
from photocall_gateway.services import Services, owner, services

LEAST_WAIT_S = 0.5  # even for a body that took long to arrive


async def answer(request: Request) -> Response:
    """One request, one complete answer."""
    s = services(request)
    started = time.monotonic()
    body = await read_body(request, s.settings.max_body_bytes)
    if len(body.data) <= INLINE_PARSE_BYTES:
        parsed = parse_systemone(body, s.limits)
    else:
        parsed = await asyncio.to_thread(parse_systemone, body, s.limits)
    s.dispatcher.check_model(parsed)
    wait_s = max(LEAST_WAIT_S, s.settings.sync_wait_s - (time.monotonic() - started))
    work = s.sync_calls.answer(parsed, owner=owner(request), wait_s=wait_s)
    try:
        async with asyncio.timeout(wait_s + 1.0):  # a store that hangs is no reason to keep the caller longer
            record = await while_connected(request, work)
    except TimeoutError as error:
        raise CodedError("unavailable", "The store does not answer") from error
    return _answered(s, record)


def _answered(s: Services, record: JobRecord) -> Response:
    stages = stages_ms(record)
    for stage, duration in stages.items():
        s.metrics.stage_ms.labels(stage).observe(duration)
    headers = {"server-timing": server_timing(stages), "cache-control": "no-store"}
    return JSONResponse(record.result, headers=headers)


ROUTES = [Route("/v1/systemone", answer, methods=["POST"])]
