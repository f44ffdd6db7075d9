"""Traces: nothing where they are off, and spans that are children of what they say."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from opentelemetry.sdk.trace import SpanProcessor
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from photocall import otel
from photocall.otel import OtelSpans
from photocall.settings import SettingsError
from photocall.tracing import current, open_spans, parent_of, within

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def kept() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def spans(kept: InMemorySpanExporter) -> OtelSpans:
    return OtelSpans("gateway", "here-1", SimpleSpanProcessor(kept))


def test_off_is_none_and_imports_nothing() -> None:
    assert open_spans("", "gateway", "x") is None
    code = (
        # redis imports OpenTelemetry wherever it finds it; that is not ours
        "import sys, photocall_gateway.__main__, photocall_prep.__main__, photocall_engine.__main__\n"
        "from photocall.tracing import open_spans\n"
        "open_spans('', 'x', 'y'); sys.exit('photocall.otel' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_the_extra_the_start_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "photocall.otel", None)
    with pytest.raises(
        SettingsError, match=r"PHOTOCALL_TRACES='http://c/v1/traces': expected the extra photocall\[otel"
    ):
        open_spans("http://c/v1/traces", "gateway", "x")


def test_a_call_and_what_became_of_it(spans: OtelSpans, kept: InMemorySpanExporter) -> None:
    call = spans.begin(CALLER)
    steps = spans.record("steps", call.traceparent, 100.0, 100.5, job="job_1", rows=3)
    spans.record("prefill", steps, 100.0, 100.25)
    call.end("POST /v1/jobs", http__route="/v1/jobs")
    found = {span.name: span for span in kept.get_finished_spans()}
    assert set(found) == {"steps", "prefill", "POST /v1/jobs"}
    assert {f"{span.context.trace_id:032x}" for span in found.values() if span.context} == {CALLER.split("-")[1]}
    parents = {name: span.parent.span_id for name, span in found.items() if span.parent}
    own = {name: span.context.span_id for name, span in found.items() if span.context}
    assert f"{parents['POST /v1/jobs']:016x}" == CALLER.split("-")[2]
    assert parents["steps"] == own["POST /v1/jobs"]
    assert parents["prefill"] == own["steps"]
    assert (found["steps"].start_time, found["steps"].end_time) == (100_000_000_000, 100_500_000_000)
    assert dict(found["steps"].attributes or {}) == {"photocall.job": "job_1", "photocall.rows": 3}
    assert dict(found["POST /v1/jobs"].attributes or {}) == {"http.route": "/v1/jobs"}
    assert found["steps"].resource.attributes["service.name"] == "photocall-gateway"


def test_what_is_not_traced_leaves_no_span(spans: OtelSpans, kept: InMemorySpanExporter) -> None:
    assert spans.record("steps", "", 1.0, 2.0) == ""
    assert kept.get_finished_spans() == ()
    assert parent_of(None) == parent_of({"msg_id": "x"}) == ""


def test_a_caller_that_samples_nothing_is_heard(spans: OtelSpans, kept: InMemorySpanExporter) -> None:
    call = spans.begin(CALLER[:-2] + "00")
    spans.record("steps", call.traceparent, 1.0, 2.0)
    call.end("POST /v1/jobs")
    assert kept.get_finished_spans() == ()


@pytest.mark.parametrize("nonsense", ["x", "00-zz-yy-01", "\u00e9" * 50])
def test_a_header_that_is_none_begins_a_trace(spans: OtelSpans, kept: InMemorySpanExporter, nonsense: str) -> None:
    spans.begin(nonsense).end("POST /v1/jobs")
    [span] = kept.get_finished_spans()
    assert span.parent is None


class Stuck(SpanProcessor):
    """One whose collector takes nothing."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.sent = False

    def shutdown(self) -> None:
        self.sent = self.let_go.wait(60)


def test_a_collector_that_is_away_holds_no_end_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each batch of what was left had its time: with 2000 spans a process ended ten seconds late."""
    monkeypatch.setattr(otel, "CLOSE_S", 0.05)
    stuck = Stuck()
    OtelSpans("prep", "here-1", stuck).close()
    assert not stuck.sent
    assert "the last spans are not sent" in caplog.text
    stuck.let_go.set()


def test_what_is_left_is_sent_at_the_end() -> None:
    stuck = Stuck()
    stuck.let_go.set()
    OtelSpans("prep", "here-1", stuck).close()
    assert stuck.sent


def test_who_accepts_within_a_call_knows_its_trace() -> None:
    with within(CALLER):
        assert current() == CALLER
    assert current() == ""
