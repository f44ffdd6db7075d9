"""GET /v1/jobs/{job_id}, the call that pollers make: answered in front of the router, unless its caller wants to wait.

What comes out is what the route gives, for less work: thousands of pollers are one process' load.
"""

from __future__ import annotations

from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from photocall_gateway.caller import CALLER
from photocall_gateway.job_object import matches
from photocall_gateway.job_response import POLL_AFTER_S, job_response
from photocall_gateway.job_views import JobView
from photocall_gateway.ownership import seen_view
from photocall_gateway.services import Services

PREFIX = "/v1/jobs/"


class StatusReads:
    """Middleware, inside of those that name, time and admit a call. `route` is the one it is counted under."""

    def __init__(self, app: ASGIApp, parts: Services, route: BaseRoute) -> None:
        self._app = app
        self._parts = parts
        self._route = route

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "GET" and scope["path"].startswith(PREFIX):
            job_id = scope["path"][len(PREFIX) :]
            headers = dict(scope["headers"])
            if job_id and "/" not in job_id and b"prefer" not in headers:
                scope["route"] = self._route
                view, queue = await seen_view(self._parts, job_id, scope[CALLER])
                tag = headers.get(b"if-none-match")
                response = await status_response(
                    self._parts, view, queue, None if tag is None else tag.decode("latin-1"), {}
                )
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def status_response(
    s: Services, view: JobView, queue: bytes, if_none_match: str | None, headers: dict[str, str]
) -> Response:
    """The job object, or 304 where the caller has this version."""
    if if_none_match is not None and matches(if_none_match, view.tag):
        return Response(status_code=304, headers={**headers, "etag": view.tag})
    if view.hooked is not None:
        return await job_response(s, view.hooked, 200, headers)
    return _Encoded(view, view.body(queue), headers)


class _Encoded(Response):
    """A response that is bytes already: Starlette's own way to its headers costs as much as all the rest of a look."""

    def __init__(self, view: JobView, body: bytes, headers: dict[str, str]) -> None:
        self.status_code = 200
        self.background = None
        self.body = body
        self.raw_headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"etag", view.tag.encode()),
            (b"cache-control", b"no-store"),
            *((name.encode(), value.encode()) for name, value in headers.items()),
        ]
        if not view.status.terminal:
            self.raw_headers.append((b"retry-after", b"%d" % POLL_AFTER_S))
