"""OpenAI's Decisions shape: POST /v1/decisions, answered or refused while the caller waits."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from photocall_gateway import openapi_decisions
from photocall_gateway.decisions import parse_decisions
from photocall_gateway.decisions_answer import decisions_body
from photocall_gateway.described import Described, json_body
from photocall_gateway.openapi_parts import ref
from photocall_gateway.sync_route import Shape, answered, sync_operation

SHAPE = Shape("decisions", parse_decisions, decisions_body)


async def answer(request: Request) -> Response:
    """One request, one complete answer."""
    return await answered(request, SHAPE)


ROUTES = [
    Described(
        "/v1/decisions",
        answer,
        "POST",
        sync_operation(
            "Ask in the shape of OpenAI's Decisions, and wait for the answers",
            ref("DecisionsResponse"),
            json_body("DecisionsRequest"),
            "DecisionsError",
        ),
        openapi_decisions.SCHEMAS,
    )
]
