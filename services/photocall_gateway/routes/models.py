"""GET /v1/models."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from photocall_gateway.described import Described, operation
from photocall_gateway.openapi_parts import ref
from photocall_gateway.services import services


async def listing(request: Request) -> Response:
    """Every name a request may use, in both clients' shapes."""
    return JSONResponse(services(request).models.listing())


ROUTES = [
    Described(
        "/v1/models",
        listing,
        "GET",
        operation("The names a request may use", {200: ref("Models")}, (403,), error="SystemOneError"),
    )
]
