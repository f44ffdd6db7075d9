"""The Grafana dashboard as code: `python -m ops.metrics.dashboard` writes `dashboard.json`; a test compares them.

A panel is a title, what its numbers are, and expressions over the metrics of `photocall.metrics`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

FILE = Path(__file__).with_name("dashboard.json")
SOURCE = {"type": "prometheus", "uid": "photocall"}
HEIGHT = 8
COLUMNS = 24
RATE = "$__rate_interval"


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries`: legend and expression. Four panels of `width` 6 fill a line."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: Literal["timeseries", "stat"] = "timeseries"
    width: int = 8
    stacked: bool = False
    about: str = ""


def rate(metric: str, by: str = "", where: str = "") -> str:
    """Per second, summed over processes."""
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (rate({metric}{where}[{RATE}]))"


def quantile(share: float, metric: str, by: str = "") -> str:
    """Of a histogram, over all processes."""
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({labels}) (rate({metric}_bucket[{RATE}])))"


def quantiles(metric: str) -> tuple[tuple[str, str], ...]:
    """The three that say how a histogram lies."""
    return tuple((f"p{round(100 * share)}", quantile(share, metric)) for share in (0.5, 0.9, 0.99))


ROWS: tuple[tuple[str, tuple[Panel, ...]], ...] = (
    (
        "At a glance",
        (
            Panel("Engines ready", "none", (("", "max(photocall_engines_ready)"),), "stat", 4),
            Panel("Prep workers", "none", (("", "max(photocall_prep_workers)"),), "stat", 4),
            Panel("Unfinished jobs", "none", (("", "max(photocall_unfinished_jobs)"),), "stat", 4),
            Panel("Pictures a second", "none", (("", rate("photocall_engine_pictures_total")),), "stat", 4),
            Panel(
                "Same bits as at the start",
                "bool_yes_no",
                (("{{instance}}", "min by (instance) (photocall_engine_canary_same)"),),
                "stat",
                4,
                about="The canary: the question of the engine's start, asked again while it is idle.",
            ),
            Panel("Redis answers", "bool_yes_no", (("", "min(photocall_redis_up)"),), "stat", 4),
        ),
    ),
    (
        "Calls",
        (
            Panel("Calls by status", "reqps", (("{{status}}", rate("photocall_http_requests_total", "status")),)),
            Panel(
                "Slowest tenth by route",
                "s",
                (("{{route}}", quantile(0.9, "photocall_http_seconds", "route")),),
            ),
            Panel(
                "Jobs accepted",
                "reqps",
                (
                    ("{{shape}} {{priority}}", rate("photocall_jobs_accepted_total", "shape, priority")),
                    ("joined an equal one", rate("photocall_jobs_joined_total")),
                ),
            ),
            Panel(
                "Synchronous calls: slowest tenth by stage",
                "s",
                (("{{stage}}", quantile(0.9, "photocall_sync_stage_seconds", "stage")),),
            ),
            Panel("Calls that wait", "none", (("{{instance}}", "photocall_waiting_calls"),)),
            Panel(
                "Refused, ended, poisoned",
                "none",
                (("{{event}}", "max by (event) (photocall_shared_events)"),),
                about="Counts that all processes share, since Redis began.",
            ),
        ),
    ),
    (
        "Queues",
        (
            Panel("Waiting", "none", (("{{queue}} {{lane}}", "max by (queue, lane) (photocall_queue_entries)"),)),
            Panel(
                "The first has waited",
                "s",
                (("{{queue}} {{lane}}", "max by (queue, lane) (photocall_queue_age_seconds)"),),
            ),
            Panel(
                "Kept for unfinished jobs, and patches",
                "bytes",
                (
                    ("unfinished jobs", "max(photocall_unfinished_bytes)"),
                    ("patch blobs", "max(photocall_blob_bytes)"),
                    ("Redis", "max(photocall_store_bytes)"),
                    ("Redis, at most", "max(photocall_store_max_bytes > 0)"),
                ),
            ),
        ),
    ),
    (
        "Preparing pictures",
        (
            Panel("Jobs by outcome", "reqps", (("{{outcome}}", rate("photocall_prep_jobs_total", "outcome")),)),
            Panel(
                "Pictures: made, or found on the shelf",
                "reqps",
                (("{{source}}", rate("photocall_prep_pictures_total", "source")),),
            ),
            Panel("Seconds a picture", "s", quantiles("photocall_prep_picture_seconds")),
            Panel("Seconds until a worker began", "s", quantiles("photocall_prep_queue_seconds")),
            Panel("Seconds a job", "s", quantiles("photocall_prep_job_seconds")),
            Panel(
                "Refused, and decoders lost",
                "reqps",
                (
                    ("{{code}}", rate("photocall_prep_refusals_total", "code")),
                    ("decoder {{why}}", rate("photocall_prep_decoders_lost_total", "why")),
                ),
            ),
            Panel(
                "Bytes: files in, patches out",
                "Bps",
                (
                    ("files", rate("photocall_prep_picture_bytes_total")),
                    ("patches", rate("photocall_prep_blob_bytes_total")),
                ),
            ),
        ),
    ),
    (
        "The engine",
        (
            Panel(
                "Rows per step",
                "none",
                (
                    ("mean", f"{rate('photocall_engine_step_rows_sum')} / {rate('photocall_engine_step_rows_count')}"),
                    ("p90", quantile(0.9, "photocall_engine_step_rows")),
                ),
            ),
            Panel("Seconds a step", "s", quantiles("photocall_engine_step_seconds")),
            Panel("Tokens", "none", (("{{kind}}", rate("photocall_engine_tokens_total", "kind")),)),
            Panel(
                "Seconds by stage, slowest tenth",
                "s",
                (("{{stage}}", quantile(0.9, "photocall_engine_stage_seconds", "stage")),),
            ),
            Panel(
                "Ends",
                "reqps",
                (("{{outcome}} {{code}}", rate("photocall_engine_outcomes_total", "outcome, code")),),
            ),
            Panel(
                "Pictures: asked about, and encoded",
                "reqps",
                (
                    ("asked about", rate("photocall_engine_pictures_total")),
                    ("encoded", rate("photocall_engine_encoded_pictures_total")),
                ),
            ),
            Panel(
                "Full pages",
                "none",
                (("{{state}}", 'sum by (state) (photocall_engine_pages{pool="full"})'),),
                stacked=True,
            ),
            Panel(
                "Prefixes that were cached",
                "percentunit",
                (
                    (
                        "hits",
                        rate("photocall_engine_prefix_lookups_total", where='{result="hit"}')
                        + " / "
                        + rate("photocall_engine_prefix_lookups_total"),
                    ),
                ),
            ),
            Panel(
                "Batches by graph bucket",
                "reqps",
                (
                    ("{{bucket}} rows", rate("photocall_engine_graph_batches_total", "bucket")),
                    ("tower {{bucket}}", rate("photocall_engine_tower_passes_total", "bucket")),
                ),
                about="Nothing on a CPU, which has no graphs.",
            ),
            Panel(
                "Requests in the engine",
                "none",
                (
                    ("{{state}}", "sum by (state) (photocall_engine_held_requests)"),
                    ("at most", "sum(photocall_engine_capacity)"),
                    ("unwritten", "sum(photocall_engine_unwritten)"),
                ),
            ),
            Panel(
                "What should not be",
                "none",
                (
                    ("failed steps", f"sum(increase(photocall_engine_failed_steps_total[{RATE}]))"),
                    ("preemptions", f"sum(increase(photocall_engine_preemptions_total[{RATE}]))"),
                    (
                        "canary {{result}}",
                        f'sum by (result) (increase(photocall_engine_canary_runs_total{{result!="same"}}[{RATE}]))',
                    ),
                ),
            ),
            Panel(
                "Label mass",
                "percentunit",
                (
                    ("{{type}}, lowest tenth", quantile(0.1, "photocall_engine_label_mass", "type")),
                    ("{{type}}, median", quantile(0.5, "photocall_engine_label_mass", "type")),
                ),
                about="Of the answers that were asked for it.",
            ),
            Panel(
                "Answers by type and status",
                "reqps",
                (("{{type}} {{status}}", rate("photocall_engine_questions_total", "type, status")),),
            ),
            Panel("The canary takes", "s", (("{{instance}}", "photocall_engine_canary_seconds"),)),
            Panel(
                "Engines",
                "none",
                (("{{engine}}: {{model}} on {{device}}, {{numerics}}", "photocall_engine_info"),),
            ),
        ),
    ),
    (
        "Processes",
        (
            Panel("Memory", "bytes", (("{{job}} {{instance}}", "process_resident_memory_bytes"),), width=12),
            Panel("Cores", "none", (("{{job}} {{instance}}", f"rate(process_cpu_seconds_total[{RATE}])"),), width=12),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """As Grafana takes it."""
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS:
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": [],
                       "gridPos": {"x": 0, "y": top, "w": COLUMNS, "h": 1}})  # fmt: skip
        top, left = top + 1, 0
        for panel in row:
            height = HEIGHT // 2 if panel.kind == "stat" else HEIGHT
            if left + panel.width > COLUMNS:
                top, left = top + height, 0
            place = {"x": left, "y": top, "w": panel.width, "h": height}
            panels.append(_shown(panel, len(panels) + 1, place))
            left += panel.width
        top += height
    return {
        "uid": "photocall",
        "title": "photocall",
        "tags": ["photocall"],
        "timezone": "browser",
        "schemaVersion": 39,
        "editable": False,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": []},
        "annotations": {"list": []},
        "panels": panels,
    }


def _shown(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": expression, "legendFormat": legend or "__auto"}
        for at, (legend, expression) in enumerate(panel.queries)
    ]
    custom = {"stacking": {"mode": "normal" if panel.stacked else "none"}, "fillOpacity": 30 if panel.stacked else 0}
    found: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}, "overrides": []},
        "targets": targets,
    }
    if panel.kind == "stat":
        found["fieldConfig"]["defaults"] = {"unit": panel.unit}
        found["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "value", "graphMode": "area"}
    return found | ({"description": panel.about} if panel.about else {})


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
