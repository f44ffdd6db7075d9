"""The response that shows a job, with its place in the queue."""

from __future__ import annotations

from typing import Any, cast

from starlette.responses import JSONResponse, Response

from photocall import keys
from photocall.jobs import JobRecord, JobStatus
from photocall.webhooks import Delivery
from photocall_gateway.job_object import etag, job_object
from photocall_gateway.load import Place
from photocall_gateway.services import Services

POLL_AFTER_S = 1


async def job_response(s: Services, record: JobRecord, status: int, headers: dict[str, str]) -> Response:
    """A job as it is now."""
    body = job_object(record, await place(s, record), await delivery(s, record))
    return JSONResponse(body, status, {**headers, "etag": etag(record), "cache-control": "no-store"})


async def place(s: Services, record: JobRecord) -> Place | None:
    """Where a job that waits stands in the queue; None for any other."""
    waits = record.status in (JobStatus.QUEUED, JobStatus.PREPARING)
    return await s.load.place(record.job_id) if waits else None


async def delivery(s: Services, record: JobRecord) -> Delivery | None:
    """What is owed to a job's webhook; None for a job without one, and before its end."""
    if record.webhook is None or not record.status.terminal:
        return None
    raw = await cast(Any, s.redis.hgetall(keys.webhook(record.job_id)))
    return Delivery.from_hash(record.job_id, raw) if raw else None
