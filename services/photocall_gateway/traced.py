"""Middleware: a span for each call that asks for something, and its trace for the jobs that are accepted within it."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from photocall.tracing import Spans, within
from photocall_gateway.call_watch import CallWatch


class Traced:
    """Traces POST calls below /v1; polls and probes are as many as they are dull."""

    def __init__(self, app: ASGIApp, spans: Spans) -> None:
        self._app = app
        self._spans = spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].startswith("/v1/"):
            await self._app(scope, receive, send)
            return
        span = self._spans.begin(Headers(scope=scope).get("traceparent", ""))
        watch = CallWatch(scope, send)
        try:
            with within(span.traceparent):
                await self._app(scope, receive, watch.send)
        finally:
            span.end(
                f"POST {watch.route}",
                http__request__method="POST",
                http__route=watch.route,
                http__response__status_code=watch.status,
            )
