"""What Prometheus reads: this process' calls, and the figures that all gateways share, read when asked."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_STAGE_MS = (1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000)


class Metrics:
    """The gateway's own registry; nothing is global, so two apps can live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("route", "method", "status")
        self.requests = Counter("photocall_http_requests", "HTTP calls answered", labels, registry=self.registry)
        self.seconds = Histogram(
            "photocall_http_seconds", "Seconds per HTTP call", ("route",), buckets=_SECONDS, registry=self.registry
        )
        self.accepted = Counter(
            "photocall_jobs_accepted", "Jobs accepted here", ("shape", "priority"), registry=self.registry
        )
        self.joined = Counter(
            "photocall_jobs_joined", "Synchronous calls that joined an equal one", registry=self.registry
        )
        self.stage_ms = Histogram(
            "photocall_stage_ms",
            "Milliseconds of a synchronous request by stage",
            ("stage",),
            buckets=_STAGE_MS,
            registry=self.registry,
        )
        self.waiting = Gauge("photocall_waiting_calls", "Calls that wait for a job here", registry=self.registry)
        self.unfinished = Gauge("photocall_unfinished_jobs", "Accepted, unfinished jobs", registry=self.registry)
        self.unfinished_bytes = Gauge("photocall_unfinished_bytes", "Bytes kept for these", registry=self.registry)
        self.engines = Gauge("photocall_engines_ready", "Engines that are ready", registry=self.registry)
        self.prep_workers = Gauge("photocall_prep_workers", "Prep workers alive", registry=self.registry)
        self.redis_up = Gauge("photocall_redis_up", "1 while Redis answers", registry=self.registry)
        self.store_bytes = Gauge("photocall_store_bytes", "Bytes that Redis holds", registry=self.registry)
        self.store_max_bytes = Gauge("photocall_store_max_bytes", "Redis' maxmemory", registry=self.registry)
        self.shared = Gauge(
            "photocall_shared_events", "Counts that all processes share", ("event",), registry=self.registry
        )

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
        status = 499  # the caller left before an answer

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in _METHODS else "OTHER"
            requests, seconds = self._labelled(route, method, status)
            requests.inc()
            seconds.observe(time.perf_counter() - started)

    def _labelled(self, route: str, method: str, status: int) -> tuple[Counter, Histogram]:
        found = self._children.get((route, method, status))
        if found is None:
            requests = self._metrics.requests.labels(route, method, str(status))
            found = self._children[route, method, status] = requests, self._metrics.seconds.labels(route)
        return found
