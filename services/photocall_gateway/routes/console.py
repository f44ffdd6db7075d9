"""The web console: GET / and the files it is made of. Served to anybody; what it shows takes a key."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from photocall.errors import CodedError
from photocall_gateway.console_files import HEADERS, MEDIA_TYPES, PAGE
from photocall_gateway.described import Described, in_path, operation
from photocall_gateway.job_object import matches
from photocall_gateway.openapi_parts import content
from photocall_gateway.services import services


async def page(request: Request) -> Response:
    """The page."""
    return _file(request, PAGE)


async def file(request: Request) -> Response:
    """A script or a style sheet of it."""
    return _file(request, request.path_params["name"])


def _file(request: Request, name: str) -> Response:
    files = services(request).console
    if files is None:
        raise CodedError("not_found", "The console is switched off (PHOTOCALL_CONSOLE); /docs says what there is")
    found = files.get(name)
    if found is None:
        raise CodedError("not_found", "The console has no such file")
    headers = {**HEADERS, "etag": found.tag}
    if matches(request.headers.get("if-none-match"), found.tag):
        return Response(status_code=304, headers=headers)
    return Response(found.data, headers=headers, media_type=found.media_type)


_TEXT = {"type": "string"}
_ANY_FILE = {kind: {"schema": _TEXT} for kind in sorted(set(MEDIA_TYPES.values()))}

ROUTES = [
    Described(
        "/",
        page,
        "GET",
        operation("The web console", {200: content(_TEXT, "text/html"), 304: None}, (404,)),
    ),
    Described(
        "/console/{name}",
        file,
        "GET",
        operation(
            "A file of the web console",
            {200: _ANY_FILE, 304: None},
            (404,),
            parameters=[in_path("name")],
        ),
    ),
]
