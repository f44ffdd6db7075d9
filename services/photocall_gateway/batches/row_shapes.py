"""What a row of a batch is asked and answered with: the parser and the body of the route it names.

Result lines are OpenAI's: `{id, custom_id, response: {status_code, request_id, body}, error}`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from photocall.errors import CodedError, PhotocallError
from photocall.jobs import JobRecord, JobStatus
from photocall.questions import InvalidField
from photocall_gateway.batches.ledger import Line
from photocall_gateway.body import Body, Limits
from photocall_gateway.decisions import parse_decisions
from photocall_gateway.decisions_answer import decisions_body
from photocall_gateway.dispatch import late_failure
from photocall_gateway.job_object import job_object
from photocall_gateway.parsing import ParsedRequest, parse_job, parse_systemone
from photocall_gateway.problems import as_coded, in_shape

MAX_DEADLINE_S = 86_400.0
_OF_THE_JOB_ALONE = ("urls", "queue", "expires_at")  # the job itself is gone when its line is read


@dataclass(frozen=True, slots=True)
class Asked:
    """A row's request. `deadline_s` and `metadata` are a native job's own."""

    request: ParsedRequest
    deadline_s: float | None = None
    metadata: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class RowShape:
    """One endpoint: its name in the job's record, its parser, and how an answer is written."""

    name: str
    parse: Callable[[Body, Limits], Asked]
    answer: Callable[[JobRecord], dict[str, Any]]


def _native(body: Body, limits: Limits) -> Asked:
    request, options = parse_job(body, limits, MAX_DEADLINE_S)
    if options.webhook is not None:
        raise InvalidField(("webhook",), "A row of a batch has none: its line is where it ends", "unsupported_field")
    return Asked(request, options.deadline_s, options.metadata)


def _job(record: JobRecord) -> dict[str, Any]:
    return {name: value for name, value in job_object(record).items() if name not in _OF_THE_JOB_ALONE}


SHAPES = {
    "/v1/systemone": RowShape("systemone", lambda b, n: Asked(parse_systemone(b, n)), lambda r: r.result or {}),
    "/v1/decisions": RowShape("decisions", lambda b, n: Asked(parse_decisions(b, n)), decisions_body),
    "/v1/jobs": RowShape("job", _native, _job),
}


def parse(endpoint: str, data: bytes, limits: Limits) -> Asked:
    """Raises what the route's parser raises."""
    return SHAPES[endpoint].parse(Body(data, "application/json", ""), limits)


def answered(endpoint: str, batch_id: str, row: int, custom_id: str, record: JobRecord) -> Line:
    """The line of a row whose job has ended."""
    if record.status is not JobStatus.SUCCEEDED:
        return refused(endpoint, batch_id, row, custom_id, late_failure(record.error))
    request_id = f"{batch_id}-{row}"
    response = {"status_code": 200, "request_id": request_id, "body": SHAPES[endpoint].answer(record)}
    read, written = int(record.usage.get("input_tokens", 0)), int(record.usage.get("output_tokens", 0))
    return Line(row, _line(request_id, custom_id, response, None), True, read, written)


def refused(endpoint: str, batch_id: str, row: int, custom_id: str, error: PhotocallError | InvalidField) -> Line:
    """The line of a row that its route would have refused, with the same status and body."""
    request_id = f"{batch_id}-{row}"
    found = as_coded(error) if isinstance(error, InvalidField) else error
    status, _, body = in_shape(endpoint, request_id, found, error)
    response = {"status_code": status, "request_id": request_id, "body": body}
    return Line(row, _line(request_id, custom_id, response, None), False)


def not_run(batch_id: str, row: int, custom_id: str, code: str, message: str) -> Line:
    """The line of a row that was never answered."""
    return Line(row, _line(f"{batch_id}-{row}", custom_id, None, {"code": code, "message": message}), False)


def same_answer(batch_id: str, row: int, custom_id: str, leader: Line) -> Line:
    """The line of a row that equals an answered one. It cost nothing."""
    found = json.loads(leader.data)
    request_id = f"{batch_id}-{row}"
    if found["response"] is not None:
        found["response"]["request_id"] = request_id
    return Line(row, _line(request_id, custom_id, found["response"], found["error"]), leader.ok)


def internal() -> CodedError:
    """A defect of ours, met at one row."""
    return CodedError("internal", "Internal error")


def _line(row_id: str, custom_id: str, response: Any, error: Any) -> bytes:
    line = {"id": row_id, "custom_id": custom_id, "response": response, "error": error}
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
