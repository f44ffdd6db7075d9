"""What an operator sees of a real service: every metric of the table, a trace from call to answer, and log lines."""

from __future__ import annotations

import json
import random
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from prometheus_client.parser import text_string_to_metric_families

from photocall import metrics
from tests.stack.local_service import OPENER, Service, body_of, form, service, wait_for

pytestmark = pytest.mark.timeout(240)
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
JOB = re.compile(r"job_[0-9a-f]{24}")
SPANS = {"POST /v1/jobs": "gateway", "queue wait": "prep", "prepare": "prep", "engine wait": "engine",
         "steps": "engine", "prefill": "engine", "readout": "engine", "publish": "engine"}  # fmt: skip


class Collector:
    """Takes OTLP over HTTP and keeps the spans, by name: (service, trace, span, parent, attributes)."""

    def __init__(self) -> None:
        self.spans: dict[str, list[tuple[str, str, str, str, dict[str, str]]]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever)

    @contextmanager
    def serving(self) -> Iterator[Collector]:
        self._thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.take(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        return Handler

    def take(self, body: bytes) -> None:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            named = {a.key: a.value.string_value for a in resource.resource.attributes}
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                attributes = {a.key: a.value.string_value or str(a.value.int_value) for a in span.attributes}
                found = (named["service.name"], span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex())
                self.spans.setdefault(span.name, []).append((*found, attributes))


def scrape(url: str) -> tuple[dict[str, set[str]], dict[str, float]]:
    """Labels by metric, and values by series as it is written."""
    with OPENER.open(url, timeout=10) as answer:
        text = answer.read().decode()
    labels: dict[str, set[str]] = {}
    values = {}
    for family in text_string_to_metric_families(text):
        labels.setdefault(family.name, set())
        for sample in family.samples:
            labels[family.name] |= set(sample.labels) - {"le"}
            shown = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            values[f"{sample.name}{{{shown}}}"] = sample.value
    return labels, values


def check_names(room: str, labels: dict[str, set[str]]) -> None:
    """The table and the scrape have the same metrics; a metric without a value yet has no labels yet."""
    known = {metric.name: set(metric.labels) for metric in metrics.ROOMS[room]}
    ours = {name: found for name, found in labels.items() if not name.startswith("process_")}
    ours = {name: found for name, found in ours.items() if not name.endswith("_created")}
    assert set(ours) == set(known)
    assert {name: found for name, found in ours.items() if found and found != known[name]} == {}
    assert "process_resident_memory_bytes" in labels


def two_free_ports() -> int:
    """The first of two in a row, below those that outgoing connections are given: one of them took it once."""
    for port in random.sample(range(20_000, 32_000), 100):
        both = (("127.0.0.1", port), ("127.0.0.1", port + 1))
        with suppress(OSError), socket.create_server(both[0]), socket.create_server(both[1]):
            return port
    raise AssertionError("no two ports in a row are free")


def submit_broken(running: Service) -> str:
    request = ("request", "request", "application/json", json.dumps(body_of(9)).encode())
    kind, body = form([request, ("photo", "photo", "image/png", b"\x89PNG\r\n\x1a\n and no more")])
    status, job = running.call("POST", "/v1/jobs", body, content_type=kind)
    assert status == 202, job
    return str(job["id"])


def test_metrics_traces_and_logs_of_a_running_service() -> None:
    port = two_free_ports()
    with Collector().serving() as collector, service(
        PHOTOCALL_METRICS=f"127.0.0.1:{port}",
        PHOTOCALL_TRACES=collector.url,
        PHOTOCALL_LOG_FORMAT="json",
        OTEL_BSP_SCHEDULE_DELAY="200",
        NO_PROXY="127.0.0.1",
    ) as running:  # fmt: skip
        status, job = running.submit(1, traceparent=CALLER)
        assert status == 202
        job_id = str(job["id"])
        assert running.ended(job_id)["status"] == "succeeded"
        broken = submit_broken(running)
        assert running.ended(broken)["status"] == "failed"
        assert running.ended(running.submit_text(1, 4))["status"] == "succeeded"

        def engine() -> dict[str, float] | None:
            labels, values = scrape(f"http://127.0.0.1:{port}/metrics")
            check_names("engine", labels)
            return values if values.get("photocall_engine_outcomes_total{code=,outcome=answered}") == 2 else None

        shown = wait_for(engine, 30, "two answers to be counted", running)
        assert shown["photocall_engine_pictures_total{}"] == 1
        assert shown["photocall_engine_questions_total{status=answered,type=choice}"] == 1
        assert shown["photocall_engine_stage_seconds_count{stage=prepare}"] == 2
        assert shown["photocall_blob_bytes{}"] > 100_000
        assert shown["photocall_engine_canary_same{}"] == 1
        labels, shown = scrape(f"http://127.0.0.1:{port + 1}/metrics")
        check_names("prep", labels)
        assert shown["photocall_prep_jobs_total{outcome=prepared}"] == 1
        assert shown["photocall_prep_jobs_total{outcome=refused}"] == 1
        labels, shown = scrape(f"{running.address}/metrics")
        check_names("gateway", labels)
        assert shown["photocall_queue_entries{lane=interactive,queue=engine}"] == 0
        assert shown["photocall_engines_ready{}"] == 1
        mine = wait_for(lambda: trace_of(collector, set(SPANS)), 30, "every span of the trace", running)
        check_trace(mine, job_id)
        log = running.log
        lines = [line.partition(" | ")[2] for line in log.read_text().splitlines() if " | {" in line]
    check_lines(lines, {job_id, broken})


def trace_of(collector: Collector, wanted: set[str]) -> dict[str, Any] | None:
    """The spans of the caller's trace, once all of them are there."""
    trace_id = CALLER.split("-")[1]
    found = {name: span for name, spans in list(collector.spans.items()) for span in list(spans) if span[1] == trace_id}
    return found if set(found) >= wanted else None


def check_trace(found: dict[str, Any], job_id: str) -> None:
    assert {name: span[0].removeprefix("photocall-") for name, span in found.items()} == SPANS
    call = found["POST /v1/jobs"]
    assert call[3] == CALLER.split("-")[2]
    assert call[4]["http.response.status_code"] == "202"
    for name in ("queue wait", "prepare", "engine wait", "steps", "publish"):
        assert found[name][3] == call[2], name
        assert found[name][4]["photocall.job"] == job_id
    assert {found[name][3] for name in ("prefill", "readout")} == {found["steps"][2]}
    assert int(found["steps"][4]["photocall.steps"]) >= 1


def check_lines(lines: list[str], jobs: set[str]) -> None:
    """Every line is JSON; one that names a job anywhere names it in its field, and the two jobs of ours are named."""
    found = [json.loads(line) for line in lines]
    assert {line["process"] for line in found} >= {"gateway", "prep", "engine"}
    for line in found:
        if (named := JOB.search(json.dumps(line))) is not None:
            assert named[0] in (line.get("job", ""), *str(line.get("jobs", "")).split(",")), line
    assert {line.get("job") for line in found} >= jobs
