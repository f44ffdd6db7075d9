"""What can go wrong in a call, for a program: each error carries the document that the server gave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ClientError(Exception):
    """Any failure of the client."""


class RequestRefused(ClientError):
    """The server refused a call. `problem` is its problem document (RFC 9457), `code` says which kind it is.

    Routes of files and batches have OpenAI's error instead; it becomes `code`, `detail` and `param` here.
    `repeated`: an earlier try of the call got no answer, and may have done what this one was refused. `retry_after_s`:
    when the server would take it, where it said so.
    """

    def __init__(
        self, status: int, problem: Mapping[str, Any], repeated: bool = False, retry_after_s: float | None = None
    ) -> None:
        super().__init__(f"{status} {problem.get('code', '')}: {problem.get('detail', 'no reason given')}")
        self.status = status
        self.problem = dict(problem)
        self.repeated = repeated
        self.retry_after_s = retry_after_s

    @property
    def code(self) -> str:
        """A code of the server's error table; empty when the answer was not one of ours."""
        return str(self.problem.get("code", ""))


class JobFailed(ClientError):
    """A job ended without answers: failed, cancelled or expired. `error` is that of the job object, `job` all of it."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        error = job.get("error") or {}
        super().__init__(f"job {job.get('id')} {job.get('status')}: {error.get('message', '')}")
        self.job = dict(job)
        self.error: dict[str, Any] = dict(error)

    @property
    def code(self) -> str:
        """A code of the server's error table."""
        return str(self.error.get("code", ""))


class NotAnswered(ClientError):
    """The job or batch was still running when the time was over. It goes on; `job_id` finds it."""

    def __init__(self, job_id: str, waited_s: float) -> None:
        super().__init__(f"{job_id} has not ended within {waited_s:g} s")
        self.job_id = job_id
