"""The job object of the native API, and the small headers that go with it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from photocall.jobs import JobRecord, JobStatus
from photocall.webhooks import Delivery
from photocall_gateway.decisions_answer import decisions_body
from photocall_gateway.load import Place


def job_object(record: JobRecord, place: Place | None = None, delivery: Delivery | None = None) -> dict[str, Any]:
    """A record as its caller sees it. `place`: where a waiting job stands in the queue, None for one that does not.

    `delivery`: what is owed to its webhook, None while nothing is.
    """
    base = f"/v1/jobs/{record.job_id}"
    shown: dict[str, Any] = {
        "id": record.job_id,
        "object": "job",
        "status": record.status.value,
        "created_at": _time(record.created_at),
        "started_at": _time(record.started_at),
        "completed_at": _time(record.completed_at),
        "expires_at": _time(record.expires_at),
        "priority": record.priority,
        "progress": record.progress or None,
        "queue": None if place is None else {"position": place.position, "eta_s": place.eta_s},
        "usage": record.usage or None,
        "timings": record.timings or None,
        "attempts": record.attempts,
        "urls": {"self": base, "cancel": f"{base}/cancel", "events": f"{base}/events"},
        "metadata": record.metadata,
    }
    if record.webhook is not None:
        shown["webhook"] = {
            "url": record.webhook.url,
            "events": list(record.webhook.events) or None,
            "state": None if delivery is None else delivery.state,
            "attempts": [] if delivery is None else [asdict(attempt) for attempt in delivery.log],
        }
    if record.status is JobStatus.SUCCEEDED:
        shown["result"] = decisions_body(record) if record.shape == "decisions" else record.result
    elif record.status.terminal:
        shown["error"] = record.error
    return shown


def etag(record: JobRecord) -> str:
    """Weak: place in the queue and usage counters of the object move without a new version."""
    return f'W/"{record.version}"'


def matches(if_none_match: str | None, tag: str) -> bool:
    """Whether an If-None-Match header names this tag."""
    if if_none_match is None:
        return False
    named = [part.strip() for part in if_none_match.split(",")]
    opaque = tag.removeprefix("W/")
    return "*" in named or any(part.removeprefix("W/") == opaque for part in named)


def _time(at: float) -> float | None:
    return round(at, 3) if at else None
