"""OpenTelemetry's side of `tracing.py`: imported only where traces are on. OTEL_* variables are the SDK's own."""

from __future__ import annotations

import logging
import threading

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_INSTANCE_ID, SERVICE_NAME, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from photocall.tracing import Value

SEND_S = 3.0  # for one request to the collector
CLOSE_S = 2.0  # for all that is left at the end: a collector that is away is no reason to end late

log = logging.getLogger(__name__)

_CARRIED = TraceContextTextMapPropagator()


class OtelSpan:
    """An open span."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    @property
    def traceparent(self) -> str:
        """See Span."""
        carrier: dict[str, str] = {}
        _CARRIED.inject(carrier, trace.set_span_in_context(self._span))
        return carrier.get("traceparent", "")

    def end(self, name: str, **about: Value) -> None:
        """See Span."""
        self._span.update_name(name)
        self._span.set_attributes(_named(about))
        self._span.end()


class OtelSpans:
    """A provider of this process' own: nothing global is set, so two can live in one process."""

    def __init__(self, process: str, instance: str, processor: SpanProcessor) -> None:
        resource = Resource.create({SERVICE_NAME: f"photocall-{process}", SERVICE_INSTANCE_ID: instance})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)  # it would wait without an end
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("photocall")

    def begin(self, parent: str) -> OtelSpan:
        """See Spans."""
        context = _CARRIED.extract({"traceparent": parent}) if parent else None
        return OtelSpan(self._tracer.start_span("http", context=context, kind=trace.SpanKind.SERVER))

    def record(self, name: str, parent: str, began_at: float, ended_at: float, **about: Value) -> str:
        """See Spans."""
        if not parent:
            return ""
        context = _CARRIED.extract({"traceparent": parent})
        span = self._tracer.start_span(name, context=context, attributes=_named(about), start_time=_ns(began_at))
        span.end(end_time=_ns(max(began_at, ended_at)))
        return OtelSpan(span).traceparent

    def close(self) -> None:
        """See Spans."""
        sending = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        sending.start()
        sending.join(CLOSE_S)
        if sending.is_alive():
            log.warning("the last spans are not sent: the collector does not take them within %g s", CLOSE_S)


def sending_to(url: str, process: str, instance: str) -> OtelSpans:
    """Spans that go to a collector over HTTP, by a thread, some seconds later."""
    return OtelSpans(process, instance, BatchSpanProcessor(OTLPSpanExporter(endpoint=url, timeout=SEND_S)))


def _named(about: dict[str, Value]) -> dict[str, Value]:
    """Attributes: OpenTelemetry's own names have dots, which stand as `__` here; ours are photocall's."""
    return {name.replace("__", ".") if "__" in name else f"photocall.{name}": value for name, value in about.items()}


def _ns(seconds: float) -> int:
    return int(seconds * 1e9)
