"""Sessions: turns of one conversation, whose prefix an engine holds between them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from photocall.questions import InvalidField, Json
from photocall.sessions import SessionRecord
from photocall_gateway.body import open_body
from photocall_gateway.caller import caller_of
from photocall_gateway.described import WRITE_ERRORS, Described, header, in_path, operation, query
from photocall_gateway.events import SessionEvents, last_event_id, sse, sse_response
from photocall_gateway.listing import read_limit
from photocall_gateway.openapi_parts import content, ref
from photocall_gateway.openapi_schemas import json_or_form
from photocall_gateway.openapi_sessions import SESSION_SCHEMAS, optional_body
from photocall_gateway.parsing import metadata_of
from photocall_gateway.reading import read_body
from photocall_gateway.services import Services, owner, services
from photocall_gateway.session_object import session_object
from photocall_gateway.taking import accept_turn, own_session, take_in
from photocall_gateway.uploads import MAX_KEY

MAX_PAGE = 100
DEFAULT_TTL_S = 1800
MIN_TTL_S = 10
FIELDS = frozenset({"state", "mode", "remember", "ttl_s", "metadata"})


async def create(request: Request) -> Response:
    """A new session."""
    s = services(request)
    body = await read_body(request, s.settings.max_body_bytes)
    raw = open_body(body, s.limits)[0] if body.data else {}
    record = new_session(raw, owner(request), s)
    await s.sessions.create(record)
    location = f"/v1/sessions/{record.session_id}"
    return await _response(s, record.session_id, 201, {"location": location})


async def listing(request: Request) -> Response:
    """The caller's sessions, newest first, a page at a time."""
    s = services(request)
    asked = request.query_params
    limit = read_limit(asked.get("limit", "20"), MAX_PAGE)
    found = await s.sessions.of_owner(owner(request), asked.get("after"), limit + 1)
    page = found[:limit]
    data = [
        {
            "id": record.session_id,
            "object": "session",
            "created_at": round(record.created_at, 3),
            "mode": record.mode,
            "turns": {"accepted": record.turns, "answered": record.answered},
            "metadata": record.metadata,
        }
        for record in page
    ]
    last_id = page[-1].session_id if page else None
    return JSONResponse({"object": "list", "data": data, "has_more": len(found) > limit, "last_id": last_id})


async def read(request: Request) -> Response:
    """The session as it is now."""
    s = services(request)
    return await _response(s, (await _own(request, s)).session_id)


async def turn(request: Request) -> Response:
    """Accept a turn: 202 and its job, or 200 with its end when the caller prefers to wait and it ends in time."""
    s = services(request)
    return await take_in(request, s, partial(accept_turn, s, await _own(request, s)))


async def interrupt(request: Request) -> Response:
    """Cancel the turn that runs, and those that wait too when the body says `{"waiting": true}`."""
    s = services(request)
    session = await _own(request, s)
    body = await read_body(request, s.settings.max_body_bytes)
    raw = open_body(body, s.limits)[0] if body.data else {}
    waiting = raw.get("waiting", False)
    if not isinstance(waiting, bool):
        raise InvalidField(("waiting",), "Expected true or false", "bool_type")
    cancelled = await s.sessions.interrupt(session.session_id, waiting)
    return await _response(s, session.session_id, more={"interrupted": cancelled})


async def remove(request: Request) -> Response:
    """Cancel its unfinished turns and forget the session."""
    s = services(request)
    await s.sessions.close(await _own(request, s))
    return Response(status_code=204)


async def events(request: Request) -> Response:
    """The events of all turns as they come."""
    s = services(request)
    session = await _own(request, s)
    subject = SessionEvents(s.sessions, session.session_id)
    return sse_response(sse(subject, last_event_id(request), s.events, s.wakes, s.leaving(caller_of(request))))


def new_session(raw: Mapping[str, Json], caller: str, s: Services) -> SessionRecord:
    """A session as its body asks for it. Raises InvalidField."""
    for name in raw.keys() - FIELDS:
        raise InvalidField((name,), "Unknown field", "extra_forbidden")
    state = raw.get("state")
    if not (state is None or isinstance(state, str | Mapping | list)):
        raise InvalidField(("state",), "Expected a string, an object or an array", "content_type")
    mode = raw.get("mode", "every")
    if mode not in ("every", "newest"):
        raise InvalidField(("mode",), "Expected 'every' or 'newest'", "literal_error")
    remember = raw.get("remember", mode == "every")
    if not isinstance(remember, bool):
        raise InvalidField(("remember",), "Expected true or false", "bool_type")
    # Pictures of the transcript must outlive every pause: their time starts again with each turn, as the session's.
    longest = s.settings.image_ttl_s
    ttl_s = raw.get("ttl_s", min(DEFAULT_TTL_S, longest))
    if isinstance(ttl_s, bool) or not isinstance(ttl_s, int) or not min(MIN_TTL_S, longest) <= ttl_s <= longest:
        raise InvalidField(("ttl_s",), f"Expected whole seconds, {MIN_TTL_S} to {longest}", "out_of_range")
    name = f"ses_{secrets.token_hex(12)}"
    metadata = metadata_of(raw.get("metadata"))
    return SessionRecord(name, caller, time.time(), ttl_s, mode, remember, state, metadata)


async def _own(request: Request, s: Services) -> SessionRecord:
    return await own_session(s, request.path_params["session_id"], owner(request))


async def _response(
    s: Services,
    session_id: str,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    more: Mapping[str, Json] | None = None,
) -> Response:
    body = session_object(await s.sessions.view(session_id)) | dict(more or {})
    return JSONResponse(body, status, {**(headers or {}), "cache-control": "no-store"})


_ID = in_path("session_id")
_KEY = header("Idempotency-Key", "The same key and body give one turn.", maxLength=MAX_KEY)
_PREFER = header("Prefer", "`wait=N`: answer when the turn has ended, after N seconds at the latest.")
_SESSION, _JOB = ref("Session"), ref("Job")

ROUTES = [
    Described(
        "/v1/sessions",
        create,
        "POST",
        operation(
            "Make a session",
            {201: _SESSION},
            (*WRITE_ERRORS, 409),
            body=optional_body("SessionRequest"),
        ),
        SESSION_SCHEMAS,
    ),
    Described(
        "/v1/sessions",
        listing,
        "GET",
        operation(
            "The caller's sessions, newest first",
            {200: ref("SessionList")},
            (404, 422),
            parameters=[
                query("after", {"type": "string"}, "The id of the last session of the page before."),
                query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 20}),
            ],
        ),
    ),
    Described(
        "/v1/sessions/{session_id}",
        read,
        "GET",
        operation("A session: its turns, and what is held of it", {200: _SESSION}, (404,), parameters=[_ID]),
    ),
    Described(
        "/v1/sessions/{session_id}",
        remove,
        "DELETE",
        operation("Cancel its turns and forget the session", {204: None}, (403, 404), parameters=[_ID]),
    ),
    Described(
        "/v1/sessions/{session_id}/turns",
        turn,
        "POST",
        operation(
            "Accept a turn",
            {200: _JOB, 202: _JOB},
            (*WRITE_ERRORS, 409),
            parameters=[_ID, _KEY, _PREFER],
            body=json_or_form("TurnRequest"),
        ),
    ),
    Described(
        "/v1/sessions/{session_id}/interrupt",
        interrupt,
        "POST",
        operation(
            "Cancel the turn that runs, or all unfinished ones",
            {200: _SESSION},
            WRITE_ERRORS,
            parameters=[_ID],
            body=optional_body("InterruptRequest"),
        ),
    ),
    Described(
        "/v1/sessions/{session_id}/events",
        events,
        "GET",
        operation(
            "The events of all its turns as they come",
            {200: content({"type": "string"}, "text/event-stream")},
            (404, 422),
            parameters=[_ID, header("Last-Event-ID", "Go on behind this event.")],
        ),
    ),
]
