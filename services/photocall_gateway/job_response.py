"""The response that shows a job, with its place in the queue."""

from __future__ import annotations

from starlette.responses import JSONResponse, Response

from photocall.jobs import JobRecord, JobStatus
from photocall_gateway.job_object import etag, job_object
from photocall_gateway.load import Place
from photocall_gateway.services import Services

POLL_AFTER_S = 1


async def job_response(s: Services, record: JobRecord, status: int, headers: dict[str, str]) -> Response:
    """A job as it is now."""
    body = job_object(record, await place(s, record))
    return JSONResponse(body, status, {**headers, "etag": etag(record), "cache-control": "no-store"})


async def place(s: Services, record: JobRecord) -> Place | None:
    """Where a job that waits stands in the queue; None for any other."""
    waits = record.status in (JobStatus.QUEUED, JobStatus.PREPARING)
    return await s.load.place(record.job_id) if waits else None
