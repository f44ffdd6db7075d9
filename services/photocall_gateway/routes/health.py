"""Probes and metrics: /healthz, /readyz, /metrics, and the description of the API at /openapi.json and /docs."""

from __future__ import annotations

import asyncio

from prometheus_client import CONTENT_TYPE_LATEST
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from photocall_gateway import docs_page
from photocall_gateway.described import Described, operation
from photocall_gateway.openapi_parts import Schema, content, obj
from photocall_gateway.queues import waiting_entries
from photocall_gateway.services import Services, services


async def healthz(request: Request) -> Response:
    """This process answers."""
    return JSONResponse({"status": "ok"})


async def readyz(request: Request) -> Response:
    """A request sent now would be answered; 503 with what is missing otherwise."""
    s = services(request)
    state = await s.readiness.state()
    ready = state.ready and not s.drain.announced
    return JSONResponse({**state.shown(), "ready": ready, "draining": s.drain.announced}, 200 if ready else 503)


async def metrics(request: Request) -> Response:
    """Prometheus text. Figures of the store are left as they were when it does not answer."""
    s = services(request)
    s.metrics.waiting.set(s.wakes.listeners)
    try:
        async with asyncio.timeout(2.0):
            await _read_shared(s)
    except (RedisError, OSError, TimeoutError):
        s.metrics.redis_up.set(0)
    return Response(s.metrics.render(), media_type=CONTENT_TYPE_LATEST)


async def _read_shared(s: Services) -> None:
    depth = await s.records.depth()
    s.metrics.unfinished.set(depth.get("jobs", 0))
    s.metrics.unfinished_bytes.set(depth.get("bytes", 0))
    for waiting in await waiting_entries(s.redis):
        s.metrics.queue_entries.labels(waiting.queue, waiting.lane).set(waiting.entries)
        s.metrics.queue_age.labels(waiting.queue, waiting.lane).set(waiting.age_s)
    for event, count in (await s.records.counters()).items():
        s.metrics.shared.labels(event).set(count)
    state = await s.readiness.state()
    s.metrics.engines.set(sum(engine.ready for engine in state.engines))
    s.metrics.prep_workers.set(state.prep_workers)
    if state.store is not None:
        s.metrics.store_bytes.set(state.store.used_bytes)
        s.metrics.store_max_bytes.set(state.store.max_bytes)
    s.metrics.redis_up.set(1)


async def openapi(request: Request) -> Response:
    """What this server answers to."""
    return JSONResponse(services(request).description)


async def docs(request: Request) -> Response:
    """The same to be read."""
    return HTMLResponse(docs_page.page(services(request).description), headers=docs_page.HEADERS)


def _text(kind: str) -> dict[int, Schema | None]:
    return {200: content({"type": "string"}, kind)}


_READY: Schema = obj(
    ("ready", "redis", "store", "prep_workers", "engines", "draining"),
    ready={"type": "boolean"},
    redis={"type": "boolean"},
    store={
        "type": ["object", "null"],
        "description": "How Redis keeps what is accepted; `faults` say why none should be. Null: no answer.",
    },
    prep_workers={"type": "integer"},
    engines={"type": "array", "items": {"type": "object"}},
    draining={"type": "boolean"},
)
_ALIVE: Schema = obj(("status",), status={"const": "ok"})

ROUTES = [
    Described("/healthz", healthz, "GET", operation("This process answers", {200: _ALIVE})),
    Described("/readyz", readyz, "GET", operation("A request would be answered now", {200: _READY, 503: _READY})),
    Described("/metrics", metrics, "GET", operation("Prometheus metrics", _text("text/plain"))),
    Described("/openapi.json", openapi, "GET", operation("This document", {200: obj()})),
    Described("/docs", docs, "GET", operation("This document as a page", _text("text/html"))),
]
