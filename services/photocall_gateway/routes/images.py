"""Pictures once: PUT /v1/images/{sha256}, then questions name them by hash."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from photocall.errors import UnknownImage
from photocall.images import check
from photocall.questions import InvalidField
from photocall_gateway.compression import decompress
from photocall_gateway.described import Described, in_path, operation
from photocall_gateway.formats import picture_format
from photocall_gateway.openapi_parts import ref
from photocall_gateway.openapi_schemas import SHA256
from photocall_gateway.pictures import picture, stored
from photocall_gateway.reading import read_body
from photocall_gateway.services import owner, services


async def put(request: Request) -> Response:
    """Keep a picture: 201, or 200 when it was there already, with its time to live started again."""
    s = services(request)
    sha256, limit = stored(request.path_params["sha256"], ("sha256",)).sha256, s.settings.max_image_bytes
    body = await read_body(request, limit)
    data = decompress(body.data, body.content_encoding, limit)
    await asyncio.to_thread(_check, sha256, data, limit)
    known = await s.images.owned(sha256, owner(request))
    await s.images.put(sha256, data, owner(request))
    shown = {
        "object": "image",
        "sha256": sha256,
        "bytes": len(data),
        "format": picture_format(data),
        "kept_s": s.settings.image_ttl_s,
    }
    return JSONResponse(shown, 200 if known else 201, {"location": f"/v1/images/{sha256}"})


def _check(sha256: str, data: bytes, limit: int) -> None:
    """The hash first: bytes cut short on the way are rather that than no picture."""
    check(sha256, data)
    picture(data, "The picture", ("body",), limit)


async def head(request: Request) -> Response:
    """Whether a question may name it: 200, with its time to live started again, or 404."""
    s = services(request)
    sha256 = request.path_params["sha256"]
    try:
        found = await s.images.touch(stored(sha256, ("sha256",)).sha256, owner(request))
    except InvalidField:
        found = False
    if not found:
        raise UnknownImage(sha256[:64])
    return Response(headers={"etag": f'"{sha256}"', "cache-control": "no-store"})


_SHA256 = in_path("sha256", SHA256)
_BYTES = {"required": True, "content": {"image/*": {}, "application/octet-stream": {}}}

ROUTES = [
    Described(
        "/v1/images/{sha256}",
        put,
        "PUT",
        operation(
            "Store a picture, to be named by its hash",
            {200: ref("Image"), 201: ref("Image")},
            (400, 403, 408, 413, 415, 422, 507),
            parameters=[_SHA256],
            body=_BYTES,
        ),
    ),
    Described(
        "/v1/images/{sha256}",
        head,
        "HEAD",
        operation(
            "Whether a picture is stored; its time to live starts again",
            {200: None},
            (404,),
            parameters=[_SHA256],
        ),
    ),
]
