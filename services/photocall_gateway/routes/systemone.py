"""System One's shape: POST /v1/systemone, answered or refused while the caller waits."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from photocall_gateway.described import Described
from photocall_gateway.openapi_parts import ref
from photocall_gateway.openapi_schemas import json_or_form
from photocall_gateway.parsing import parse_systemone
from photocall_gateway.sync_route import Shape, answered, sync_operation

SHAPE = Shape("systemone", parse_systemone, lambda record: record.result or {})


async def answer(request: Request) -> Response:
    """One request, one complete answer."""
    return await answered(request, SHAPE)


ROUTES = [
    Described(
        "/v1/systemone",
        answer,
        "POST",
        sync_operation(
            "Ask, and wait for the answers",
            ref("SystemOneResponse"),
            json_or_form("SystemOneRequest"),
            "SystemOneError",
            (529,),
        ),
    )
]
