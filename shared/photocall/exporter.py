"""Metrics on their way to Prometheus: the library's objects from the table of `metrics.py`, and a port to read them at.

A process that speaks no HTTP of its own (prep, the engine) shows its metrics on a port of its own, from a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from threading import Thread
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from photocall.metrics import Metric
from photocall.settings import Address, SettingsError

__all__ = ["Collector", "CollectorRegistry", "Exporter", "counter", "counts", "gauge", "histogram", "values"]

Label = tuple[str, ...]


def counter(metric: Metric, registry: CollectorRegistry) -> Counter:
    """A counter that is counted up where things happen."""
    return Counter(metric.name, metric.help, metric.labels, registry=registry)


def gauge(metric: Metric, registry: CollectorRegistry) -> Gauge:
    """A gauge that is set."""
    return Gauge(metric.name, metric.help, metric.labels, registry=registry)


def histogram(metric: Metric, registry: CollectorRegistry) -> Histogram:
    """A histogram that observes where things happen."""
    return Histogram(metric.name, metric.help, metric.labels, buckets=metric.buckets, registry=registry)


def values(metric: Metric, found: Mapping[Label, float]) -> CounterMetricFamily | GaugeMetricFamily:
    """A counter or gauge as it is now, by its labels' values, for what is counted elsewhere and read when asked."""
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in found.items():
        family.add_metric(labels, value)
    return family


def counts(metric: Metric, found: Mapping[Label, tuple[Sequence[int], float]]) -> HistogramMetricFamily:
    """A histogram as it is now: by its labels' values, how many fell into each bucket and into none, and their sum."""
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, (buckets, total) in found.items():
        family.add_metric(labels, list(_cumulated(metric.buckets, buckets)), total)
    return family


def _cumulated(bounds: Sequence[float], buckets: Sequence[int]) -> Iterable[tuple[str, float]]:
    below = 0
    for bound, count in zip([*map(str, bounds), "+Inf"], buckets, strict=True):
        below += count
        yield bound, below


class Exporter:
    """Shows a registry, and what the process itself takes, at an address, until it is closed."""

    def __init__(self, address: Address, registry: CollectorRegistry) -> None:
        """Raises SettingsError where it cannot listen."""
        ProcessCollector(registry=registry)
        self._server: WSGIServer
        self._thread: Thread
        try:
            self._server, self._thread = start_http_server(address.port, address.host, registry)
        except OSError as error:
            expected = f"an address that can be listened on ({error.strerror})"
            raise SettingsError("PHOTOCALL_METRICS", str(address), expected) from None

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_port)

    def close(self) -> None:
        """Listen no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
