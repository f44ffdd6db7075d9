"""What can go wrong in a call, for a program: one tree of exceptions, each with the server's code and message.

ClientError                    any failure of the client; `code` and `message`
├── RequestRefused             the server refused a call; `status`, `problem`, `loc`, `retry_after_s`
│   ├── InvalidRequest         there is a fault in the request: 400, 413, 415, 422 (and 431)
│   ├── AccessRefused          the key: 401, 403 (and 421, the name that the server was called by)
│   ├── NotFound               no such thing, or it is gone: 404, 410
│   ├── Busy                   not now: 408, 429, 503, 507, ...; it was tried again before
│   └── Unreachable            no answer came; it was tried again before
├── JobFailed                  a job ended without answers; `error`, `job`
├── NotAnswered                still running when the time was over; `job_id` (a TimeoutError, too)
├── NoAnswer                   a question has no such answer; `answer` (an AttributeError, too)
└── MissingPackage             a package that is needed is not installed (an ImportError, too)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ClientError(Exception):
    """Any failure of the client."""

    @property
    def code(self) -> str:
        """A code of the server's error table; empty where the server said nothing."""
        return ""

    @property
    def message(self) -> str:
        """What it is, for a person."""
        return str(self)


class RequestRefused(ClientError):
    """The server refused a call. `problem` is its problem document (RFC 9457), `code` says which kind it is.

    Routes of files and batches have OpenAI's error instead; it becomes `code`, `detail` and `param` here.
    `repeated`: an earlier try of the call got no answer, and may have done what this one was refused. `retry_after_s`:
    when the server would take it, where it said so.
    """

    def __init__(
        self, status: int, problem: Mapping[str, Any], repeated: bool = False, retry_after_s: float | None = None
    ) -> None:
        where = ".".join(str(part) for part in problem.get("loc") or ())
        shown = [str(part) for part in (status or "", problem.get("code", "")) if part]
        told = str(problem.get("detail") or "no reason given")
        told += f" (at {where})" if where and where not in told else ""
        super().__init__(f"{' '.join(shown)}: {told}" if shown else told)
        self.status = status
        self.problem = dict(problem)
        self.repeated = repeated
        self.retry_after_s = retry_after_s

    @property
    def code(self) -> str:
        return str(self.problem.get("code", ""))

    @property
    def message(self) -> str:
        return str(self.problem.get("detail") or self)

    @property
    def loc(self) -> tuple[str | int, ...]:
        """Where in the request the fault is; empty where the server did not say."""
        return tuple(self.problem.get("loc") or ())


class InvalidRequest(RequestRefused):
    """There is a fault in the request: the same one is refused again."""


class AccessRefused(RequestRefused):
    """The key is missing, unknown, or not for this."""


class NotFound(RequestRefused):
    """There is no such thing, or it is gone."""


class Busy(RequestRefused):
    """Not now. The call was made again, as often as made sense."""


class Unreachable(RequestRefused):
    """No answer came. The call was made again, as often as made sense; `status` is 0."""


_BY_STATUS: dict[int, type[RequestRefused]] = {
    0: Unreachable,
    **dict.fromkeys((400, 413, 415, 422, 431), InvalidRequest),
    **dict.fromkeys((401, 403, 421), AccessRefused),
    **dict.fromkeys((404, 410), NotFound),
    **dict.fromkeys((408, 429, 502, 503, 504, 507, 529), Busy),
}


def refused(
    status: int, problem: Mapping[str, Any], repeated: bool = False, retry_after_s: float | None = None
) -> RequestRefused:
    """The exception for a refusal with this status."""
    return _BY_STATUS.get(status, RequestRefused)(status, problem, repeated, retry_after_s)


def problem_of(body: Any) -> dict[str, Any]:
    """An error body of any of the server's shapes as a problem document: `detail`, and `code` where there is one."""
    if not isinstance(body, Mapping):
        return {"detail": "not an answer of photocall"}
    error, detail = body.get("error"), body.get("detail")
    if isinstance(error, Mapping):  # OpenAI's, on the routes of files and batches; and of a job that failed
        return {**error, "detail": error.get("message")}
    if isinstance(detail, Mapping):  # System One's
        return {"code": detail.get("error_type"), **detail, "detail": detail.get("message")}
    if isinstance(detail, list) and detail and isinstance(detail[0], Mapping):
        first = detail[0]
        return {"code": "invalid_field", "loc": list(first.get("loc") or ())[1:], "detail": first.get("msg")}
    return dict(body)


class JobFailed(ClientError):
    """A job ended without answers: failed, cancelled or expired. `error` is that of the job object, `job` all of it."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        error = job.get("error") or {}
        status = job.get("status")
        told = (
            error.get("message")
            or error.get("detail")
            or ("it has not ended" if status in _LIVE else "it has no answers")
        )
        super().__init__(f"job {job.get('id')} {status}: {told}")
        self.job = dict(job)
        self.error: dict[str, Any] = dict(error)

    @property
    def code(self) -> str:
        return str(self.error.get("code", ""))

    @property
    def message(self) -> str:
        return str(self.error.get("message") or self)


_LIVE = ("queued", "preparing", "running", "cancelling")


class BatchFailed(ClientError):
    """The input of a batch cannot be run, so it has no rows. `errors` has what is wrong, line by line."""

    def __init__(self, batch_id: str, errors: Sequence[Mapping[str, Any]]) -> None:
        shown = [
            f"line {error['line']}: {error['message']}" if error.get("line") else error["message"] for error in errors
        ]
        more = f"; and {len(shown) - 3} more" if len(shown) > 3 else ""
        super().__init__(f"batch {batch_id} cannot be run: {'; '.join(shown[:3])}{more}")
        self.batch_id = batch_id
        self.errors = [dict(error) for error in errors]

    @property
    def code(self) -> str:
        return str(self.errors[0]["code"])


class NotAnswered(ClientError, TimeoutError):
    """The job or batch was still running when the time was over. It goes on; `job_id` finds it."""

    def __init__(self, job_id: str, waited_s: float) -> None:
        super().__init__(f"{job_id} has not ended within {waited_s:g} s")
        self.job_id = job_id


class NoAnswer(ClientError, AttributeError):
    """A question was not answered with what was read of its answer: it was refused, not asked, or is of another type.

    `answer` is the answer as the server gave it.
    """

    def __init__(self, question: str, answer: Mapping[str, Any], wanted: str) -> None:
        kind = str(answer.get("type", ""))
        said = {"refusal": "was refused", "not_asked": "was not asked"}.get(kind)
        why = f" ({answer.get('message')})" if answer.get("message") else ""
        told = f"{said}{why}: there is no" if said else f"has an answer of type {kind}, without"
        super().__init__(f"{question!r} {told} `{wanted}`")
        self.question = question
        self.answer = dict(answer)

    @property
    def code(self) -> str:
        return str(self.answer.get("code", ""))


class MissingPackage(ClientError, ImportError):
    """A package that only some people need is not installed; `package` is what to install."""

    def __init__(self, package: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed: pip install {package}")
        self.package = package
