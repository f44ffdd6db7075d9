"""OpenAI's Decisions shape: POST /v1/decisions, answered or refused while the caller waits."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from photocall_gateway.decisions import parse_decisions
from photocall_gateway.decisions_answer import decisions_body
from photocall_gateway.sync_route import Shape, answered

SHAPE = Shape("decisions", parse_decisions, decisions_body)


async def answer(request: Request) -> Response:
    """One request, one complete answer."""
    return await answered(request, SHAPE)


ROUTES = [Route("/v1/decisions", answer, methods=["POST"])]
