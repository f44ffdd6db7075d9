"""System One's shape: POST /v1/systemone, answered or refused while the caller waits."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from photocall_gateway.parsing import parse_systemone
from photocall_gateway.sync_route import Shape, answered

SHAPE = Shape("systemone", parse_systemone, lambda record: record.result or {})


async def answer(request: Request) -> Response:
    """One request, one complete answer."""
    return await answered(request, SHAPE)


ROUTES = [Route("/v1/systemone", answer, methods=["POST"])]
