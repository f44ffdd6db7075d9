"""GET /v1/keys: for an admin, every key of the service: what it may do and what it does. Never the key itself."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from photocall.api_keys import SCOPES
from photocall_gateway.described import Described, operation
from photocall_gateway.openapi_parts import Schema, obj, ref
from photocall_gateway.services import services


async def listing(request: Request) -> Response:
    """Every key, in the order of the file."""
    s = services(request)
    keys = {key.id: key for key in s.keys.keys}  # lines of one id are one owner
    depth, used = await s.records.depth(), await s.key_uses.read(list(keys))
    data = [
        {
            "id": key.id,
            "object": "key",
            "scopes": [scope for scope in SCOPES if scope in key.scopes],
            "limits": {
                "rate": key.limits.rate.shown if key.limits.rate else None,
                "burst": key.limits.rate.burst if key.limits.rate else None,
                "concurrency": key.limits.concurrency,
            },
            "jobs": depth.get(f"jobs:{key.id}", 0),
            "bytes": depth.get(f"bytes:{key.id}", 0),
            "last_used_at": at,
        }
        for key, at in zip(keys.values(), used, strict=True)
    ]
    return JSONResponse({"object": "list", "data": data}, headers={"cache-control": "no-store"})


_COUNT: Schema = {"type": ["integer", "null"], "minimum": 1}
_KEY: Schema = obj(
    ("id", "object", "scopes", "limits", "jobs", "bytes", "last_used_at"),
    id={"type": "string", "description": "What is asked with the key belongs to this id."},
    object={"const": "key"},
    scopes={"type": "array", "items": {"enum": list(SCOPES)}},
    limits=obj(
        ("rate", "burst", "concurrency"),
        rate={"type": ["string", "null"], "description": "Calls in a time: `10/s`."},
        burst={**_COUNT, "description": "Calls at once, after a pause."},
        concurrency={**_COUNT, "description": "Unfinished jobs at most."},
    ),
    jobs={"type": "integer", "description": "Unfinished jobs, rows of batches among them."},
    bytes={"type": "integer", "description": "Bytes kept for these."},
    last_used_at={"type": ["number", "null"], "description": "Seconds since the epoch, a minute exact."},
)

ROUTES = [
    Described(
        "/v1/keys",
        listing,
        "GET",
        operation("Every API key, for one with the scope `admin`", {200: ref("KeyList")}),
        {
            "Key": _KEY,
            "KeyList": obj(("object", "data"), object={"const": "list"}, data={"type": "array", "items": ref("Key")}),
        },
    )
]
