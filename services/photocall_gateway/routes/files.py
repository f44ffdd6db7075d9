"""OpenAI's files: /v1/files, for the inputs and the results of batches."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from photocall.errors import CodedError
from photocall.questions import InvalidField
from photocall_gateway.batches.files import unknown_file
from photocall_gateway.batches.places import FILE_ID
from photocall_gateway.batches.shelf import ResultFile
from photocall_gateway.batches.upload import Uploaded, receive
from photocall_gateway.described import Described, header, in_path, operation, query
from photocall_gateway.listing import read_limit
from photocall_gateway.openapi_batches import FILE_SCHEMAS
from photocall_gateway.openapi_parts import content as content_of
from photocall_gateway.openapi_parts import ref
from photocall_gateway.reading import too_large
from photocall_gateway.services import owner, services
from photocall_gateway.uploads import MAX_KEY, idempotency_key

PURPOSES = ("batch", "user_data")
MAX_PAGE = 10_000
MIN_TTL_S, MAX_TTL_S = 3600, 2_592_000
_PIECE_BYTES = 1 << 18
_FORM_BYTES = 1 << 16  # what a form may hold beside the file
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


async def create(request: Request) -> Response:
    """Keep a file; the same bytes under the same Idempotency-Key are one file."""
    s = services(request)
    caller, limit, key = owner(request), s.settings.max_file_bytes, idempotency_key(request)
    if request.headers.get("content-encoding", "identity") != "identity":
        raise CodedError("unsupported_type", "A file is sent as it is, without Content-Encoding")
    announced = request.headers.get("content-length", "")
    size = int(announced) if announced.isdecimal() else 0
    if size > limit + _FORM_BYTES:
        raise too_large(limit)
    target = await asyncio.to_thread(s.desk.files.begin, caller, size)
    found = await receive(aiter(request.stream()), request.headers.get("content-type", ""), target, limit)
    try:
        purpose, expires_after_s = _fields(found)
        stored = await s.desk.keep_file(caller, target, found.filename, purpose, expires_after_s, key)
    finally:
        target.unlink(missing_ok=True)
    return JSONResponse(stored.shown())


async def listing(request: Request) -> Response:
    """The caller's files, newest first; `order=asc` oldest first. `after` may be gone: ids are in order of creation."""
    s = services(request)
    query = request.query_params
    limit = read_limit(query.get("limit", str(MAX_PAGE)), MAX_PAGE)
    order, after = query.get("order", "desc"), query.get("after")
    if order not in ("asc", "desc"):
        raise InvalidField(("order",), "Expected 'asc' or 'desc'", "literal_error")
    found = await asyncio.to_thread(s.desk.listing, owner(request), query.get("purpose"))
    if after is not None:
        if not FILE_ID.fullmatch(after):
            raise unknown_file(after)
        found = [stored for stored in found if (stored.id > after if order == "asc" else stored.id < after)]
    if order == "asc":
        found.reverse()
    page = found[:limit]
    return JSONResponse(
        {
            "object": "list",
            "data": [stored.shown() for stored in page],
            "first_id": page[0].id if page else None,
            "last_id": page[-1].id if page else None,
            "has_more": len(found) > limit,
        }
    )


async def read(request: Request) -> Response:
    """What is known of a file."""
    found = await asyncio.to_thread(services(request).desk.file, owner(request), request.path_params["file_id"])
    return JSONResponse(found.shown())


async def remove(request: Request) -> Response:
    """Take a file away. A batch that was made of it keeps it for itself."""
    file_id = request.path_params["file_id"]
    await asyncio.to_thread(services(request).desk.delete, owner(request), file_id)
    return JSONResponse({"id": file_id, "object": "file", "deleted": True})


async def content(request: Request) -> Response:
    """A file's bytes: all that are there now, a range of them, or `limit` of the lines behind the first `after`."""
    desk = services(request).desk
    path, size, result = await asyncio.to_thread(desk.content, owner(request), request.path_params["file_id"])
    headers = {"accept-ranges": "bytes", "cache-control": "no-store"}
    if result is not None:
        headers["x-photocall-growing"] = str(result.growing).lower()
    after, limit = request.query_params.get("after"), request.query_params.get("limit")
    asked = request.headers.get("range")
    start, end, status = 0, size, 200
    if after is not None or limit is not None:
        start, end = await asyncio.to_thread(_lines, result, after, limit)
    elif asked is not None and (match := _RANGE.fullmatch(asked.strip())) and (match[1] or match[2]):
        start, end = _range(match[1], match[2], size)
        status = 206
        headers["content-range"] = f"bytes {start}-{end - 1}/{size if result is None or not result.growing else '*'}"
    headers["content-length"] = str(end - start)
    kind = "application/octet-stream" if result is None else "application/jsonl"
    return StreamingResponse(_pieces(path, start, end), status, headers, media_type=kind)


def _fields(form: Uploaded) -> tuple[str, int | None]:
    purpose = form.fields.get("purpose")
    if purpose not in PURPOSES:
        raise InvalidField(("purpose",), f"Expected one of {', '.join(PURPOSES)}", "literal_error")
    seconds = form.fields.get("expires_after[seconds]")
    if seconds is None:
        return purpose, None
    if form.fields.get("expires_after[anchor]", "created_at") != "created_at":
        raise InvalidField(("expires_after", "anchor"), "Expected 'created_at'", "literal_error")
    if not re.fullmatch(r"[0-9]{1,8}", seconds) or not MIN_TTL_S <= int(seconds) <= MAX_TTL_S:
        raise InvalidField(("expires_after", "seconds"), f"Expected {MIN_TTL_S} to {MAX_TTL_S}", "out_of_range")
    return purpose, int(seconds)


def _lines(result: ResultFile | None, after: str | None, limit: str | None) -> tuple[int, int]:
    """Where `limit` lines behind the first `after` begin and end, as far as there are lines."""
    if result is None:
        name = "after" if after is not None else "limit"
        raise InvalidField((name,), "Only for the results of a batch", "unsupported_field")
    if after is not None and not re.fullmatch(r"[0-9]{1,12}", after):
        raise InvalidField(("after",), "Expected how many lines to leave out", "int_parsing")
    first, size = int(after or 0), result.stored.bytes
    most = None if limit is None else read_limit(limit, MAX_PAGE)
    start = result.end_of(first)
    if start is None or start > size:
        raise CodedError("bad_range", "The file has fewer lines than that, so far")
    end = None if most is None else result.end_of(first + most)
    return start, size if end is None else min(end, size)


def _range(first: str, last: str, size: int) -> tuple[int, int]:
    """Where an asked range begins and ends, as far as there are bytes. Raises CodedError `bad_range`."""
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
    if start >= end:
        raise CodedError("bad_range", f"The file has {size} bytes, so far")
    return start, end


async def _pieces(path: Path, start: int, end: int) -> AsyncIterator[bytes]:
    # Not opened by a thread: where the caller left meanwhile, nobody would have the file to close it.
    with path.open("rb") as source:
        source.seek(start)
        while start < end:
            piece = await asyncio.to_thread(source.read, min(_PIECE_BYTES, end - start))
            if not piece:
                return
            start += len(piece)
            yield piece


_ID = in_path("file_id")
_KEY = header("Idempotency-Key", "The same key and bytes give the same file, for a day.", maxLength=MAX_KEY)
_AFTER = query("after", {"type": "string"}, "Leave out the first N lines of a result.")
_LINES_AT_MOST = query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}, "As many lines of it at most.")
_BYTES = content_of({"type": "string", "format": "binary"}, "application/octet-stream")
_LINES = content_of({"type": "string"}, "application/jsonl")

ROUTES = [
    Described(
        "/v1/files",
        create,
        "POST",
        operation(
            "Keep a file, for a batch",
            {200: ref("File")},
            (400, 403, 408, 409, 413, 415, 422, 507),
            parameters=[_KEY],
            body={"required": True, "content": content_of(ref("Upload"), "multipart/form-data")},
            error="DecisionsError",
        ),
        FILE_SCHEMAS,
    ),
    Described(
        "/v1/files",
        listing,
        "GET",
        operation(
            "The caller's files, results of batches among them, newest first",
            {200: ref("FileList")},
            (404, 422),
            parameters=[
                query("purpose", {"type": "string"}),
                query("order", {"enum": ["asc", "desc"], "default": "desc"}),
                query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": MAX_PAGE}),
                query("after", {"type": "string"}),
            ],
            error="DecisionsError",
        ),
    ),
    Described(
        "/v1/files/{file_id}",
        read,
        "GET",
        operation("A file", {200: ref("File")}, (404,), parameters=[_ID], error="DecisionsError"),
    ),
    Described(
        "/v1/files/{file_id}",
        remove,
        "DELETE",
        operation(
            "Delete a file", {200: ref("FileDeleted")}, (403, 404, 409), parameters=[_ID], error="DecisionsError"
        ),
    ),
    Described(
        "/v1/files/{file_id}/content",
        content,
        "GET",
        operation(
            "A file's bytes; of a result that is still written, the lines so far",
            {200: {**_BYTES, **_LINES}, 206: {**_BYTES, **_LINES}},
            (404, 416, 422),
            parameters=[
                _ID,
                header("Range", "`bytes=N-`: go on behind the bytes that are there."),
                _AFTER,
                _LINES_AT_MOST,
            ],
            error="DecisionsError",
        ),
    ),
]
