"""The native API: /v1/jobs."""

from __future__ import annotations

import re
from functools import partial

from starlette.background import BackgroundTasks
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from photocall.jobs import Accepted, JobStatus
from photocall.questions import InvalidField
from photocall_gateway.body import Body
from photocall_gateway.caller import caller_of
from photocall_gateway.described import WRITE_ERRORS, Described, header, in_path, operation, query
from photocall_gateway.events import JobEvents, last_event_id, sse, sse_response
from photocall_gateway.job_object import job_object, matches
from photocall_gateway.job_response import delivery, job_response, place
from photocall_gateway.job_views import JobView
from photocall_gateway.listing import KEY, read_limit
from photocall_gateway.openapi_parts import content, ref
from photocall_gateway.openapi_schemas import json_or_form
from photocall_gateway.ownership import listed_owner, own_view, seen_view
from photocall_gateway.prefer import preferred_wait_s, while_connected
from photocall_gateway.replaying import accept_replay
from photocall_gateway.services import Services, owner, services
from photocall_gateway.status_reads import status_response
from photocall_gateway.taking import accept_job, take_in
from photocall_gateway.uploads import MAX_KEY
from photocall_gateway.waiting import ended, wait_for

MAX_PAGE = 100


async def create(request: Request) -> Response:
    """Accept a job: 202, or 200 with its end when the caller prefers to wait and it ends in time."""
    s = services(request)
    return await take_in(request, s, partial(accept_job, s, owner(request)))


async def read(request: Request) -> Response:
    """The job; with `Prefer: wait=N` once it has ended, or changed from the version in If-None-Match."""
    s = services(request)
    job_id = request.path_params["job_id"]
    view, queue = await seen_view(s, job_id, caller_of(request))
    tag = request.headers.get("if-none-match")
    wait_s = preferred_wait_s(request, s.settings.max_wait_s)
    headers = {}
    if wait_s is not None:
        headers["preference-applied"] = f"wait={wait_s:g}"

        def enough(found: tuple[JobView, bytes]) -> bool:
            return ended(found[0]) or (tag is not None and not matches(tag, found[0].tag))

        waiting = wait_for(s.views.look_with_queue, s.wakes, job_id, enough, wait_s)
        view, queue = await while_connected(request, waiting)
    return await status_response(s, view, queue, tag, headers)


async def cancel(request: Request) -> Response:
    """Cancel; a job that has ended stays as it is. 202 while whoever works on it is being told."""
    s = services(request)
    record = await s.records.cancel(await _seen(request, s))
    return await job_response(s, record, 200 if record.status.terminal else 202, {})


async def replay(request: Request) -> Response:
    """A new job that asks what a finished one asked: 202, or 200 with its end as for `create`."""
    s = services(request)
    job_id = request.path_params["job_id"]
    await own_view(s, job_id, caller_of(request))
    record = await s.records.get(job_id)

    async def accept(body: Body, key: str | None, after_response: BackgroundTasks | None) -> Accepted:
        return await accept_replay(s, record, key, after_response)

    return await take_in(request, s, accept)


async def remove(request: Request) -> Response:
    """Cancel and forget, with the pictures that nothing else needs."""
    s = services(request)
    job_id = request.path_params["job_id"]
    await own_view(s, job_id, caller_of(request))
    await s.records.delete(job_id, purge=True)
    return Response(status_code=204)


async def listing(request: Request) -> Response:
    """The caller's jobs, newest first, a page at a time; for an admin those of the key that `key` names."""
    s = services(request)
    query = request.query_params
    whose = listed_owner(caller_of(request), query.get("key"))
    limit = read_limit(query.get("limit", "20"), MAX_PAGE)
    status = query.get("status")
    if status is not None and status not in set(JobStatus):
        raise InvalidField(("status",), f"Expected one of {', '.join(JobStatus)}", "literal_error")
    wanted = JobStatus(status) if status is not None else None
    metadata = {name[9:-1]: value for name, value in query.items() if re.fullmatch(r"metadata\[.+\]", name)}
    records = await s.records.list(whose, wanted, query.get("after"), limit + 1, metadata)
    page = records[:limit]
    return JSONResponse(
        {
            "object": "list",
            "data": [job_object(record, await place(s, record), await delivery(s, record)) for record in page],
            "has_more": len(records) > limit,
            "last_id": page[-1].job_id if page else None,
        }
    )


async def events(request: Request) -> Response:
    """The job's events as they come."""
    s = services(request)
    subject = JobEvents(s.views, await _seen(request, s))
    return sse_response(sse(subject, last_event_id(request), s.events, s.wakes, s.leaving(caller_of(request))))


async def _seen(request: Request, s: Services) -> str:
    """The id in the path, of a job that this caller sees. Raises UnknownJob or JobGone."""
    job_id: str = request.path_params["job_id"]
    await seen_view(s, job_id, caller_of(request))
    return job_id


_JOB_ID = in_path("job_id")
_PREFER = header("Prefer", "`wait=N`: answer when the job has ended, after N seconds at the latest.")
_KEY = header("Idempotency-Key", "The same key and body give the same job.", maxLength=MAX_KEY)
_VERSION = header("If-None-Match", "An ETag: 304 while it is still that version.")
_PAGE = [
    query("status", {"enum": [status.value for status in JobStatus]}),
    query("after", {"type": "string"}, "The id of the last job of the page before."),
    query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 20}),
    KEY,
    {
        "name": "metadata",
        "in": "query",
        "required": False,
        "style": "deepObject",
        "explode": True,
        "description": "`metadata[row]=7`: only jobs whose metadata say so.",
        "schema": {"type": "object", "additionalProperties": {"type": "string"}},
    },
]
_JOB = ref("Job")

READ = Described(
    "/v1/jobs/{job_id}",
    read,
    "GET",
    operation("A job", {200: _JOB, 304: None}, (404, 410), parameters=[_JOB_ID, _PREFER, _VERSION]),
)

ROUTES = [
    Described(
        "/v1/jobs",
        create,
        "POST",
        operation(
            "Accept a job",
            {200: _JOB, 202: _JOB},
            (*WRITE_ERRORS, 409),
            parameters=[_KEY, _PREFER],
            body=json_or_form("JobRequest"),
        ),
    ),
    Described(
        "/v1/jobs",
        listing,
        "GET",
        operation("The caller's jobs, newest first", {200: ref("JobList")}, (404, 422), parameters=_PAGE),
    ),
    READ,
    Described(
        "/v1/jobs/{job_id}",
        remove,
        "DELETE",
        operation("Cancel and forget a job", {204: None}, (403, 404, 410), parameters=[_JOB_ID]),
    ),
    Described(
        "/v1/jobs/{job_id}/cancel",
        cancel,
        "POST",
        operation("Cancel a job", {200: _JOB, 202: _JOB}, (403, 404, 410), parameters=[_JOB_ID]),
    ),
    Described(
        "/v1/jobs/{job_id}/replay",
        replay,
        "POST",
        operation(
            "Ask again what a job asked that had `provenance: true`",
            {200: _JOB, 202: _JOB},
            (*WRITE_ERRORS, 409, 410),
            parameters=[_JOB_ID, _KEY, _PREFER],
            description="A new job, whose metadata has `replay_of`. Equal provenance gives equal bits.",
        ),
    ),
    Described(
        "/v1/jobs/{job_id}/events",
        events,
        "GET",
        operation(
            "The job's events as they come",
            {200: content({"type": "string"}, "text/event-stream")},
            (404, 410, 422),
            parameters=[_JOB_ID, header("Last-Event-ID", "Go on behind this event.")],
        ),
    ),
]
