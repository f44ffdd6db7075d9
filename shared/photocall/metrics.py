"""Every metric of the service: names, labels and meaning, in one table for processes, documents, dashboard and alerts.

A name is stable: a dashboard of somebody else may use it. How a process counts is its own; `exporter.py` makes the
library's objects. Counters are shown with `_total` behind the name, histograms as `_bucket`, `_sum` and `_count`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["counter", "gauge", "histogram"]

CALL_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
STAGE_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
STEP_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
STEP_ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0)
SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `buckets` are a histogram's upper bounds."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    @property
    def shown(self) -> tuple[str, ...]:
        """The names of its series."""
        if self.kind == "counter":
            return (f"{self.name}_total",)
        if self.kind == "histogram":
            return tuple(f"{self.name}_{part}" for part in ("bucket", "sum", "count"))
        return (self.name,)


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"photocall_{name}", "counter", text, labels)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(f"photocall_{name}", "gauge", text, labels)


def _histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Metric:
    return Metric(f"photocall_{name}", "histogram", text, labels, buckets)


HTTP_REQUESTS = _counter("http_requests", "HTTP calls answered", "route", "method", "status")
HTTP_SECONDS = _histogram("http_seconds", "Seconds per HTTP call", CALL_S, "route")
JOBS_ACCEPTED = _counter("jobs_accepted", "Jobs accepted here", "shape", "priority")
JOBS_JOINED = _counter("jobs_joined", "Synchronous calls that joined an equal one")
SYNC_STAGE_SECONDS = _histogram("sync_stage_seconds", "Seconds of a synchronous request by stage", STAGE_S, "stage")
WAITING_CALLS = _gauge("waiting_calls", "Calls that wait for a job here")
UNFINISHED_JOBS = _gauge("unfinished_jobs", "Accepted, unfinished jobs")
UNFINISHED_BYTES = _gauge("unfinished_bytes", "Bytes kept for these")
QUEUE_ENTRIES = _gauge(
    "queue_entries", "Entries that nobody has taken, of a queue: prep's or the engines'", "queue", "lane"
)
QUEUE_AGE_SECONDS = _gauge(
    "queue_age_seconds", "Seconds that the first of these has waited; 0: none waits", "queue", "lane"
)
ENGINES_READY = _gauge("engines_ready", "Engines that are ready")
PREP_WORKERS = _gauge("prep_workers", "Prep workers alive")
REDIS_UP = _gauge("redis_up", "1 while Redis answers")
STORE_BYTES = _gauge("store_bytes", "Bytes that Redis holds")
STORE_MAX_BYTES = _gauge("store_max_bytes", "Redis' maxmemory; 0: no bound")
SHARED_EVENTS = _gauge("shared_events", "Counts that all processes share: what was refused, ended or poisoned", "event")

PREP_JOBS = _counter(
    "prep_jobs", "Jobs by what became of them: prepared, refused, handed_back, lost, nothing", "outcome"
)
PREP_REFUSALS = _counter("prep_refusals", "Jobs refused, by the code of their error", "code")
PREP_QUEUE_SECONDS = _histogram("prep_queue_seconds", "Seconds from acceptance until a worker began", STAGE_S)
PREP_JOB_SECONDS = _histogram("prep_job_seconds", "Seconds of a job in this worker", STAGE_S)
PREP_PICTURES = _counter("prep_pictures", "Pictures by where their patches came from: made, or shelf", "source")
PREP_PICTURE_SECONDS = _histogram("prep_picture_seconds", "Seconds to decode one picture and cut its patches", STAGE_S)
PREP_PICTURE_BYTES = _counter("prep_picture_bytes", "Bytes of the picture files that were decoded")
PREP_BLOB_BYTES = _counter("prep_blob_bytes", "Bytes of patches put where the engine finds them")
PREP_DECODERS_LOST = _counter("prep_decoders_lost", "Decoders that were killed (too_slow) or ended (died)", "why")

ENGINE_INFO = _gauge("engine_info", "1; what the engine is", "engine", "model", "device", "numerics")
ENGINE_STEP_ROWS = _histogram("engine_step_rows", "Rows per step", STEP_ROWS)
ENGINE_STEP_SECONDS = _histogram(
    "engine_step_seconds", "Seconds from issuing a step until its values are there", STEP_S
)
ENGINE_FAILED_STEPS = _counter("engine_failed_steps", "Steps that raised")
ENGINE_GRAPH_BATCHES = _counter(
    "engine_graph_batches", "Batches by the bucket of rows whose graph ran them; none: without a graph", "bucket"
)
ENGINE_TOWER_PASSES = _counter(
    "engine_tower_passes", "Passes of the vision tower, by whether a bucket held them", "bucket"
)
ENGINE_ENCODED_PICTURES = _counter("engine_encoded_pictures", "Pictures that went through the vision tower")
ENGINE_PREEMPTIONS = _counter("engine_preemptions", "Requests that lost their pages to others and began again")
ENGINE_PAGES = _gauge(
    "engine_pages", "K/V pages by pool and state: free, cached (given up on need) or used", "pool", "state"
)
ENGINE_HELD = _gauge("engine_held_requests", "Requests in the engine: running, or waiting for room", "state")
ENGINE_CAPACITY = _gauge("engine_capacity", "Requests that it runs at once, at most")
ENGINE_OUTCOMES = _counter(
    "engine_outcomes",
    "Requests by their end: answered, refused (with the code of the error), cancelled, handed_back, lost",
    "outcome",
    "code",
)
ENGINE_PICTURES = _counter("engine_pictures", "Pictures of the requests answered: its rate is images per second")
ENGINE_QUESTIONS = _counter("engine_questions", "Answers by type of question and `answer_status`", "type", "status")
ENGINE_TOKENS = _counter(
    "engine_tokens", "Tokens of the requests answered: prompt and decode were computed, cached were not", "kind"
)
ENGINE_PREFIX_LOOKUPS = _counter(
    "engine_prefix_lookups", "Requests answered, by whether a cached prefix served", "result"
)
ENGINE_STAGE_SECONDS = _histogram("engine_stage_seconds", "Seconds of a request answered by stage", STAGE_S, "stage")
ENGINE_LABEL_MASS = _histogram(
    "engine_label_mass", "Label mass of the answers that were asked for it (`abstain`)", SHARES, "type"
)
ENGINE_UNWRITTEN = _gauge("engine_unwritten", "Answers and events that wait for Redis")
ENGINE_CANARY_RUNS = _counter(
    "engine_canary_runs", "Times the start's question was asked again: same, different, failed", "result"
)
ENGINE_CANARY_SAME = _gauge(
    "engine_canary_same", "1 while its answer has the bits that it had at the start, 0 since it had others"
)
ENGINE_CANARY_SECONDS = _gauge("engine_canary_seconds", "Seconds that its last answer took")
BLOB_BYTES = _gauge("blob_bytes", "Bytes of patch blobs where this engine finds them")

GATEWAY = (
    HTTP_REQUESTS, HTTP_SECONDS, JOBS_ACCEPTED, JOBS_JOINED, SYNC_STAGE_SECONDS, WAITING_CALLS, UNFINISHED_JOBS,
    UNFINISHED_BYTES, QUEUE_ENTRIES, QUEUE_AGE_SECONDS, ENGINES_READY, PREP_WORKERS, REDIS_UP, STORE_BYTES,
    STORE_MAX_BYTES, SHARED_EVENTS,
)  # fmt: skip
PREP = (
    PREP_JOBS, PREP_REFUSALS, PREP_QUEUE_SECONDS, PREP_JOB_SECONDS, PREP_PICTURES, PREP_PICTURE_SECONDS,
    PREP_PICTURE_BYTES, PREP_BLOB_BYTES, PREP_DECODERS_LOST,
)  # fmt: skip
ENGINE = (
    ENGINE_INFO, ENGINE_STEP_ROWS, ENGINE_STEP_SECONDS, ENGINE_FAILED_STEPS, ENGINE_GRAPH_BATCHES, ENGINE_TOWER_PASSES,
    ENGINE_ENCODED_PICTURES, ENGINE_PREEMPTIONS, ENGINE_PAGES, ENGINE_HELD, ENGINE_CAPACITY, ENGINE_OUTCOMES,
    ENGINE_PICTURES, ENGINE_QUESTIONS, ENGINE_TOKENS, ENGINE_PREFIX_LOOKUPS, ENGINE_STAGE_SECONDS, ENGINE_LABEL_MASS,
    ENGINE_UNWRITTEN, ENGINE_CANARY_RUNS, ENGINE_CANARY_SAME, ENGINE_CANARY_SECONDS, BLOB_BYTES,
)  # fmt: skip
ROOMS = {"gateway": GATEWAY, "prep": PREP, "engine": ENGINE}


def table() -> str:
    """Every metric as Markdown tables, one for each process, for the documentation."""
    lines = []
    for room, metrics in ROOMS.items():
        lines += [f"### {room}", "", "| metric | kind | labels | what it says |", "|---|---|---|---|"]
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            name = metric.shown[0] if metric.kind == "counter" else metric.name
            lines.append(f"| `{name}` | {metric.kind} | {labels} | {metric.help} |")
        lines.append("")
    return "\n".join(lines)
