"""Pictures once: PUT /v1/images/{sha256}, then questions name them by hash."""

from __future__ import annotations

import asyncio
import re

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from photocall.errors import UnknownImage
from photocall.formats import picture_format
from photocall.images import check
from photocall.questions import InvalidField
from photocall.views import View
from photocall_gateway.compression import decompress
from photocall_gateway.described import Described, in_path, operation
from photocall_gateway.openapi_parts import content, obj, ref
from photocall_gateway.openapi_schemas import SHA256
from photocall_gateway.openapi_views import VIEW_QUERY
from photocall_gateway.pictures import picture, stored
from photocall_gateway.reading import read_body
from photocall_gateway.services import owner, services
from photocall_gateway.viewing import FIELDS, view_of

_DIGITS = re.compile(r"[0-9]{1,9}")


async def put(request: Request) -> Response:
    """Keep a picture: 201, or 200 when it was there already, with its time to live started again."""
    s = services(request)
    sha256, limit = stored(request.path_params["sha256"], ("sha256",)).sha256, s.settings.max_image_bytes
    body = await read_body(request, limit)
    data = decompress(body.data, body.content_encoding, limit)
    await asyncio.to_thread(_check, sha256, data, limit)
    known = await s.images.owned(sha256, owner(request))
    await s.images.put(sha256, data, owner(request), kept=True)
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
    sha256 = await _own(request)
    return Response(headers={"etag": f'"{sha256}"', "cache-control": "no-store"})


async def seen(request: Request) -> Response:
    """What the model sees of it, as a PNG."""
    view = _view(request)
    png = await services(request).shows.png(await _own(request), view)
    return Response(png, media_type="image/png", headers={"cache-control": "no-store"})


async def report(request: Request) -> Response:
    """What is done to it on its way to the model."""
    view = _view(request)
    sha256 = await _own(request)
    found = await services(request).shows.report(sha256, view)
    return JSONResponse({"object": "image.report", "sha256": sha256, **found}, headers={"cache-control": "no-store"})


def _view(request: Request) -> View:
    """The view that the query asks for. Raises InvalidField."""
    given = {name: text for name in FIELDS if (text := request.query_params.get(name)) is not None}
    return view_of({name: int(text) if _whole(name, text) else text for name, text in given.items()}, ())


def _whole(name: str, text: str) -> bool:
    return name != "background" and _DIGITS.fullmatch(text) is not None


async def remove(request: Request) -> Response:
    """Forget it for this key."""
    s = services(request)
    sha256 = await _own(request)
    await s.images.drop(sha256, owner(request))
    return Response(status_code=204)


async def _own(request: Request) -> str:
    """The hash in the path, its time to live started again. Raises UnknownImage for one that is not the caller's."""
    sha256 = request.path_params["sha256"]
    try:
        found = await services(request).images.touch(stored(sha256, ("sha256",)).sha256, owner(request))
    except InvalidField:
        found = False
    if not found:
        raise UnknownImage(sha256[:64])
    return str(sha256)


_SHA256 = in_path("sha256", SHA256)
_PAIR = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
_REPORT = obj(
    ("object", "sha256", "bytes", "decoder", "mode", "frame", "frames", "orientation", "colour", "size_in",
     "size_upright", "size_decoded", "size_out", "grid", "soft_tokens", "budget", "budget_why", "fidelity", "ms"),
    object={"const": "image.report"},
    sha256=SHA256,
    bytes={"type": "integer"},
    decoder={"type": "string", "description": "The format found in the bytes."},
    mode={"type": "string", "description": "Kind of the stored pixels, or the resolution of a drawn page."},
    frame={"type": "integer", "description": "Which frame or page is seen, from 0."},
    frames={"type": ["integer", "null"], "description": "How many there are, where the file's header says."},
    orientation={"type": "integer", "minimum": 1, "maximum": 8, "description": "EXIF; 1 is upright."},
    colour={"type": "string", "description": "How the stored colours became RGB."},
    size_in={**_PAIR, "description": "Width and height as stored."},
    size_upright={**_PAIR, "description": "Width and height once upright."},
    size_decoded={**_PAIR, "description": "Width and height that were decoded: a JPEG may be reduced on the way."},
    size_out={**_PAIR, "description": "Width and height that the model sees."},
    grid={**_PAIR, "description": "Patches: rows, columns."},
    soft_tokens={"type": "integer"},
    budget={"type": "integer", "description": "Soft tokens it may have."},
    budget_why={"type": "string", "description": "Why so many: that was asked for, or what `auto` found."},
    fidelity={"enum": ["fast", "exact"], "description": "How its pixels were made."},
    ms={"type": "number", "description": "Milliseconds from bytes to patches, this time."},
)  # fmt: skip
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
    Described(
        "/v1/images/{sha256}",
        remove,
        "DELETE",
        operation("Forget a picture", {204: None}, (403, 404), parameters=[_SHA256]),
    ),
    Described(
        "/v1/images/{sha256}/seen.png",
        seen,
        "GET",
        operation(
            "What the model sees of a picture",
            {200: content({"type": "string", "format": "binary"}, "image/png")},
            (404, 413, 415, 422),
            parameters=[_SHA256, *VIEW_QUERY],
        ),
    ),
    Described(
        "/v1/images/{sha256}/report",
        report,
        "GET",
        operation(
            "What is done to a picture on its way to the model",
            {200: ref("ImageReport")},
            (404, 413, 415, 422),
            parameters=[_SHA256, *VIEW_QUERY],
        ),
        {"ImageReport": _REPORT},
    ),
]
