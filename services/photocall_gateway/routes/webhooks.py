"""The caller's own webhook secret."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from photocall.webhooks import secret_of
from photocall_gateway.described import Described, operation
from photocall_gateway.openapi_parts import obj, ref
from photocall_gateway.services import owner, services


async def secret(request: Request) -> Response:
    """What the deliveries to this API key's webhooks are signed with."""
    found = secret_of(services(request).settings.signing_key(), owner(request))
    return JSONResponse({"object": "webhook.secret", "secret": found}, headers={"cache-control": "no-store"})


ROUTES = [
    Described(
        "/v1/webhooks/secret",
        secret,
        "GET",
        operation("What the deliveries to your webhooks are signed with", {200: ref("WebhookSecret")}),
        {
            "WebhookSecret": obj(
                ("object", "secret"),
                object={"const": "webhook.secret"},
                secret={
                    "type": "string",
                    "description": "`whsec_` and base64, as libraries of Standard Webhooks take it.",
                },
            )
        },
    ),
]
