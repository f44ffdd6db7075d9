"""OpenAI's batches: /v1/batches, with ours beside it: pictures under one question set, retries, dry runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from photocall.questions import InvalidField
from photocall_gateway.batches.batch import Batch
from photocall_gateway.batches.creation import read_new_batch
from photocall_gateway.body import open_body
from photocall_gateway.caller import caller_of
from photocall_gateway.described import WRITE_ERRORS, Described, header, in_path, json_body, operation, query
from photocall_gateway.events import BatchEvents, last_event_id, sse, sse_response
from photocall_gateway.listing import KEY, read_limit
from photocall_gateway.openapi_batches import BATCH_SCHEMAS
from photocall_gateway.openapi_parts import content, ref
from photocall_gateway.ownership import batch_owner, listed_owner
from photocall_gateway.reading import read_body
from photocall_gateway.services import Services, owner, services
from photocall_gateway.uploads import MAX_KEY, idempotency_key

MAX_BODY_BYTES = 4 << 20  # a question set is text
MAX_PAGE = 100
NOT_STORED = {"cache-control": "no-store"}


async def create(request: Request) -> Response:
    """Begin a batch; with `?dry_run=true` only say what it would take."""
    s = services(request)
    dry_run = request.query_params.get("dry_run", "false")
    if dry_run not in ("true", "false"):
        raise InvalidField(("dry_run",), "Expected 'true' or 'false'", "bool_parsing")
    body = await read_body(request, min(MAX_BODY_BYTES, s.settings.max_body_bytes))
    raw, _ = open_body(body, s.limits)
    new = await asyncio.to_thread(read_new_batch, raw, s.limits)
    if dry_run == "true":
        return JSONResponse(await s.desk.dry_run(owner(request), new))
    key = idempotency_key(request)
    return await _response(s, await s.desk.create(owner(request), new, key, _canonical(raw)))


async def listing(request: Request) -> Response:
    """The caller's batches, newest first, a page at a time; for an admin those of the key that `key` names."""
    query = request.query_params
    whose = listed_owner(caller_of(request), query.get("key"))
    limit = read_limit(query.get("limit", "20"), MAX_PAGE)
    shelf = services(request).desk.batches
    found = await asyncio.to_thread(shelf.listing, whose, query.get("after"), limit + 1)
    page = found[:limit]
    return JSONResponse(
        {
            "object": "list",
            "data": [batch.shown() for batch in page],
            "first_id": page[0].head.id if page else None,
            "last_id": page[-1].head.id if page else None,
            "has_more": len(found) > limit,
        }
    )


async def read(request: Request) -> Response:
    """A batch as it stands."""
    s = services(request)
    return await _response(s, await s.desk.batch(*await _seen(request, s)))


async def cancel(request: Request) -> Response:
    """End a batch early; what is answered by then stays."""
    s = services(request)
    found = await s.desk.cancel(*await _seen(request, s))
    return JSONResponse(found, headers=NOT_STORED)


async def remove(request: Request) -> Response:
    """Take a batch that has ended away, with its results."""
    batch_id = request.path_params["batch_id"]
    await services(request).desk.delete_batch(owner(request), batch_id)
    return JSONResponse({"id": batch_id, "object": "batch", "deleted": True})


async def retry_failed(request: Request) -> Response:
    """Begin another batch, of the rows that an ended one did not answer."""
    s = services(request)
    batch_id, key = request.path_params["batch_id"], idempotency_key(request)
    return await _response(s, await s.desk.retry_failed(owner(request), batch_id, key))


async def events(request: Request) -> Response:
    """The batch's events as they come."""
    s = services(request)
    batch = await s.desk.batch(*await _seen(request, s))
    subject = BatchEvents(s.desk, batch.head.owner, batch.head.id)
    return sse_response(sse(subject, last_event_id(request), s.events, s.wakes, s.leaving(caller_of(request))))


async def _seen(request: Request, s: Services) -> tuple[str, str]:
    """Owner and id of the batch in the path, as far as this caller sees it."""
    batch_id: str = request.path_params["batch_id"]
    return await batch_owner(s, batch_id, caller_of(request)), batch_id


def _canonical(raw: Mapping[str, Any]) -> bytes:
    """Equal for equal bodies, however they are written."""
    return json.dumps(raw, sort_keys=True).encode()


async def _response(s: Services, batch: Batch) -> Response:
    return JSONResponse(await s.desk.news.shown(batch), headers=NOT_STORED)


_ID = in_path("batch_id")
_KEY = header("Idempotency-Key", "The same key and body give the same batch, for a day.", maxLength=MAX_KEY)
_DRY_RUN = query("dry_run", {"enum": ["true", "false"], "default": "false"}, "Only say what it would take.")

ROUTES = [
    Described(
        "/v1/batches",
        create,
        "POST",
        operation(
            "Begin a batch",
            {200: {"oneOf": [ref("Batch"), ref("BatchEstimate")]}},
            WRITE_ERRORS,
            parameters=[_DRY_RUN, _KEY],
            body=json_body("BatchRequest"),
            error="DecisionsError",
        ),
        BATCH_SCHEMAS,
    ),
    Described(
        "/v1/batches",
        listing,
        "GET",
        operation(
            "The caller's batches, newest first",
            {200: ref("BatchList")},
            (404, 422),
            parameters=[
                query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 20}),
                query("after", {"type": "string"}),
                KEY,
            ],
            error="DecisionsError",
        ),
    ),
    Described(
        "/v1/batches/{batch_id}",
        read,
        "GET",
        operation("A batch as it stands", {200: ref("Batch")}, (404,), parameters=[_ID], error="DecisionsError"),
    ),
    Described(
        "/v1/batches/{batch_id}",
        remove,
        "DELETE",
        operation(
            "Delete a batch that has ended, with its results",
            {200: ref("BatchDeleted")},
            (403, 404, 409, 507),
            parameters=[_ID],
            error="DecisionsError",
        ),
    ),
    Described(
        "/v1/batches/{batch_id}/events",
        events,
        "GET",
        operation(
            "The batch's events as they come",
            {200: content({"type": "string"}, "text/event-stream")},
            (404, 422),
            parameters=[_ID, header("Last-Event-ID", "Go on behind this event.")],
            error="DecisionsError",
        ),
    ),
    Described(
        "/v1/batches/{batch_id}/cancel",
        cancel,
        "POST",
        operation(
            "End a batch early; answers stay",
            {200: ref("Batch")},
            (403, 404, 409, 507),
            parameters=[_ID],
            error="DecisionsError",
        ),
    ),
    Described(
        "/v1/batches/{batch_id}/retry-failed",
        retry_failed,
        "POST",
        operation(
            "Begin another batch, of the rows that an ended one did not answer",
            {200: ref("Batch")},
            (403, 404, 409, 422, 507),
            parameters=[_ID, _KEY],
            error="DecisionsError",
        ),
    ),
]
