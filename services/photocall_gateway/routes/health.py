"""Probes and metrics: /healthz, /readyz, /metrics, and the description of the API at /openapi.json and /docs."""

from __future__ import annotations

import asyncio

from prometheus_client import CONTENT_TYPE_LATEST
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from photocall_gateway import docs_page
from photocall_gateway.openapi import document
from photocall_gateway.services import Services, services


async def healthz(request: Request) -> Response:
    """This process answers."""
    return JSONResponse({"status": "ok"})


async def readyz(request: Request) -> Response:
    """A request sent now would be answered; 503 with what is missing otherwise."""
    s = services(request)
    state = await s.readiness.state()
    ready = state.ready and not s.drain.started
    return JSONResponse({**state.shown(), "ready": ready, "draining": s.drain.started}, 200 if ready else 503)


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
    for event, count in (await s.records.counters()).items():
        s.metrics.shared.labels(event).set(count)
    state = await s.readiness.state()
    s.metrics.engines.set(sum(engine.ready for engine in state.engines))
    s.metrics.prep_workers.set(state.prep_workers)
    s.metrics.redis_up.set(1)


async def openapi(request: Request) -> Response:
    """What this server answers to."""
    return JSONResponse(document())


async def docs(request: Request) -> Response:
    """The same to be read."""
    return HTMLResponse(docs_page.page(), headers=docs_page.HEADERS)


ROUTES = [
    Route("/healthz", healthz, methods=["GET"]),
    Route("/readyz", readyz, methods=["GET"]),
    Route("/metrics", metrics, methods=["GET"]),
    Route("/openapi.json", openapi, methods=["GET"]),
    Route("/docs", docs, methods=["GET"]),
]
