"""What Prometheus reads: this process' calls, and the figures that all gateways share, read when asked."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from starlette.types import ASGIApp, Receive, Scope, Send

from photocall import metrics
from photocall.exporter import counter, gauge, histogram
from photocall_gateway.call_watch import CallWatch

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})


class Metrics:
    """The gateway's own registry; nothing is global, so two apps can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = counter(metrics.HTTP_REQUESTS, self.registry)
        self.seconds = histogram(metrics.HTTP_SECONDS, self.registry)
        self.accepted = counter(metrics.JOBS_ACCEPTED, self.registry)
        self.joined = counter(metrics.JOBS_JOINED, self.registry)
        self.stage_seconds = histogram(metrics.SYNC_STAGE_SECONDS, self.registry)
        self.waiting = gauge(metrics.WAITING_CALLS, self.registry)
        self.unfinished = gauge(metrics.UNFINISHED_JOBS, self.registry)
        self.unfinished_bytes = gauge(metrics.UNFINISHED_BYTES, self.registry)
        self.queue_entries = gauge(metrics.QUEUE_ENTRIES, self.registry)
        self.queue_age = gauge(metrics.QUEUE_AGE_SECONDS, self.registry)
        self.engines = gauge(metrics.ENGINES_READY, self.registry)
        self.prep_workers = gauge(metrics.PREP_WORKERS, self.registry)
        self.redis_up = gauge(metrics.REDIS_UP, self.registry)
        self.store_bytes = gauge(metrics.STORE_BYTES, self.registry)
        self.store_max_bytes = gauge(metrics.STORE_MAX_BYTES, self.registry)
        self.shared = gauge(metrics.SHARED_EVENTS, self.registry)
        ProcessCollector(registry=self.registry)

    def render(self) -> bytes:
        """The text of /metrics."""
        return generate_latest(self.registry)


class Meter:
    """Middleware: counts and times calls by route template, so that ids never become labels."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics
        # The library looks a label set up under a lock; there are as many here as routes, methods and statuses.
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        watch = CallWatch(scope, send)
        try:
            await self._app(scope, receive, watch.send)
        finally:
            method = scope["method"] if scope["method"] in _METHODS else "OTHER"
            requests, seconds = self._labelled(watch.route, method, watch.status)
            requests.inc()
            seconds.observe(time.perf_counter() - started)

    def _labelled(self, route: str, method: str, status: int) -> tuple[Counter, Histogram]:
        found = self._children.get((route, method, status))
        if found is None:
            requests = self._metrics.requests.labels(route, method, str(status))
            found = self._children[route, method, status] = requests, self._metrics.seconds.labels(route)
        return found
