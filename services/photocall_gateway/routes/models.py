"""GET /v1/models."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from photocall_gateway.services import services


async def listing(request: Request) -> Response:
    """Every name a request may use, in both clients' shapes."""
    return JSONResponse(services(request).models.listing())


ROUTES = [Route("/v1/models", listing, methods=["GET"])]
