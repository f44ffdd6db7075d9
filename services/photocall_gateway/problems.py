"""The one place where a failure becomes an HTTP response: problem documents, and on its route each shape's own body.

Everything below raises photocall.errors or InvalidField; nothing else in the gateway builds an error response.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
from collections.abc import MutableMapping
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from photocall.errors import CodedError, PhotocallError, row
from photocall.logs import fields
from photocall.questions import InvalidField
from photocall_gateway.caller import QUOTA
from photocall_gateway.pictures import path

log = logging.getLogger(__name__)

DESCRIPTION_PATH = "/openapi.json"
REQUEST_ID = "photocall.request_id"  # scope key: filled here
RETRY_AFTER_S = "retry_after_s"  # key of an error's data that becomes the Retry-After header
_SYSTEMONE_PATHS = ("/v1/systemone", "/v1/models")
_OPENAI_PATHS = ("/v1/decisions", "/v1/files", "/v1/batches")  # with what is below them
_HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}
_DEFAULT_RETRY_S = {"queue_full": 1.0, "rate_limited": 1.0, "draining": 2.0, "unavailable": 2.0, "overloaded": 1.0,
                    "store_full": 10.0, "disk_full": 10.0, "in_progress": 1.0, "abandoned": 1.0}  # fmt: skip


class ErrorBoundary:
    """Middleware, the outermost: names the request, and turns whatever is raised inside into a response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope[REQUEST_ID] = f"req_{secrets.token_hex(12)}"
        started = False

        async def named(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                _add_request_id(scope, message)
                await _add_quota(scope, message, message["status"])
            await send(message)

        try:
            await self._app(scope, receive, named)
        except ClientDisconnect:
            return  # nobody is left to answer
        except Exception as error:
            if started:
                raise
            await response_to(scope, error)(scope, receive, named)

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket that is refused before it is open is answered like any other request."""
        scope[REQUEST_ID] = f"req_{secrets.token_hex(12)}"
        opened = False

        async def watched(message: Message) -> None:
            nonlocal opened
            if message["type"] == "websocket.accept":
                opened = True
                await _add_quota(scope, message, 101)
            elif message["type"] == "websocket.http.response.start":
                await _add_quota(scope, message, message["status"])
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            if opened or "websocket.http.response" not in scope.get("extensions", {}):
                raise
            await response_to(scope, error)(scope, receive, watched)


async def _add_quota(scope: Scope, message: MutableMapping[str, Any], status: int) -> None:
    """What the caller's key may do, where it has limits."""
    quota = scope.get(QUOTA)
    if quota is not None:
        message["headers"] = [*message.get("headers", []), *await quota.fields(status)]


def _add_request_id(scope: Scope, message: MutableMapping[str, Any]) -> None:
    name = "x-typesafe-request-id" if scope["path"] in _SYSTEMONE_PATHS else "x-request-id"
    message["headers"] = [*message.get("headers", []), (name.encode(), scope[REQUEST_ID].encode())]


async def http_exception(request: Request, error: Exception) -> Response:
    """Starlette's own 404 and 405, with what there is instead."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        error.detail = f"There is nothing at this path; {DESCRIPTION_PATH} lists what there is"
    elif error.status_code == 405:  # Starlette names the methods of the path's first route only
        matching = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
        allowed = sorted({method for route in matching for method in route.methods or ()})
        error = HTTPException(405, f"Only {', '.join(allowed)} here", {"allow": ", ".join(allowed)})
    return response_to(request.scope, error)


def _about(scope: Scope) -> dict[str, Any]:
    """The call, and the job that it is about, for the log."""
    job_id = scope.get("path_params", {}).get("job_id")
    return fields(request=scope.get(REQUEST_ID), **({"job": job_id} if job_id else {}))


def response_to(scope: Scope, error: Exception) -> Response:
    """The response of a failure, in the shape of the route that was called."""
    headers: dict[str, str] = {}
    if isinstance(error, InvalidField):
        found: PhotocallError = as_coded(error)
    elif isinstance(error, PhotocallError):
        found = error
    elif isinstance(error, HTTPException):
        found = CodedError(_HTTP_CODES.get(error.status_code, "malformed"), str(error.detail))
        headers |= dict(error.headers or {})
    elif isinstance(error, OutOfMemoryError):  # any write may meet it, not only an accept, which looks before it writes
        found = CodedError("store_full", "The store is full; nothing was accepted")
    elif isinstance(error, RedisConnectionError | RedisTimeoutError):
        log.warning("Redis is away: %s", error, extra=_about(scope))
        found = CodedError("unavailable", "The store does not answer; nothing was accepted")
    else:
        name = "store" if isinstance(error, RedisError) else "gateway"
        log.error("unexpected failure in the %s", name, exc_info=error, extra=_about(scope))
        found = CodedError("internal", "Internal error")
    status, kind, body = in_shape(scope["path"], scope.get(REQUEST_ID, ""), found, error)
    wait = found.data.get(RETRY_AFTER_S, _DEFAULT_RETRY_S.get(found.code))
    if wait is not None:
        if (quota := scope.get(QUOTA)) is not None:
            wait = max(wait, quota.wait_s)  # who comes back before that is refused again
        headers |= {"retry-after": str(math.ceil(wait)), "retry-after-ms": str(math.ceil(wait * 1000))}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return JSONResponse(body, status, headers, media_type=kind)


def problem_of(scope: Scope, error: Exception) -> dict[str, Any]:
    """The problem document of a failure, for those who answer with more than a response: without headers, so it says
    itself when to come back.
    """
    response = response_to(scope, error)
    found: dict[str, Any] = json.loads(bytes(response.body))
    wait_ms = response.headers.get("retry-after-ms")
    return found if wait_ms is None else {**found, "retry_after_s": int(wait_ms) / 1000}


def in_shape(
    path: str, request_id: str, found: PhotocallError, error: Exception | None = None
) -> tuple[int, str, dict[str, Any]]:
    """Status, content type and body of a failure as the shape of this path has it.

    `error` is what was raised, where that was an InvalidField.
    """
    entry = row(found.code)
    if path in _SYSTEMONE_PATHS:
        return entry.systemone, "application/json", _systemone_body(found, error)
    if any(path == known or path.startswith(f"{known}/") for known in _OPENAI_PATHS):
        return entry.decisions, "application/json", _decisions_body(found, error)
    return entry.native, "application/problem+json", _problem(found, request_id, error)


def as_coded(error: InvalidField) -> CodedError:
    """A field that cannot be taken, as a row of the table."""
    return CodedError("invalid_field", str(error), loc=list(error.loc))


def _problem(found: PhotocallError, request_id: str, error: Exception | None) -> dict[str, Any]:
    """RFC 9457, with the code, the field's `loc` and the numbers as members of their own."""
    entry = row(found.code)
    data = {name: value for name, value in found.data.items() if name != RETRY_AFTER_S}
    if isinstance(error, InvalidField):
        data["field_error"] = error.type
    return {
        **data,
        "type": f"urn:photocall:error:{found.code}",
        "title": entry.title,
        "status": entry.native,
        "detail": found.message,
        "code": found.code,
        "instance": request_id,
    }


def _systemone_body(found: PhotocallError, error: Exception | None) -> dict[str, Any]:
    entry = row(found.code)
    if entry.systemone == 422:
        loc = list(error.loc) if isinstance(error, InvalidField) else found.data.get("loc", [])
        msg = error.msg if isinstance(error, InvalidField) else found.message
        kind = error.type if isinstance(error, InvalidField) else found.code
        return {"detail": [{"loc": ["body", *loc], "msg": msg, "type": kind}]}
    data = {name: value for name, value in found.data.items() if name not in (RETRY_AFTER_S, "loc")}
    return {"detail": {**data, "message": found.message, "error_type": entry.error_type}}


def _decisions_body(found: PhotocallError, error: Exception | None) -> dict[str, Any]:
    """`param` is the field's path; numbers stand in the message only."""
    loc = error.loc if isinstance(error, InvalidField) else tuple(found.data.get("loc", ()))
    param = path(loc) or None
    message = error.msg if isinstance(error, InvalidField) else found.message
    message = f"{param}: {message}" if isinstance(error, InvalidField) and param else message
    kind = row(found.code).decisions_type
    return {"error": {"message": message, "type": kind, "param": param, "code": found.code}}
