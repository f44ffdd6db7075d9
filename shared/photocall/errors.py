"""Every way a request can fail: one table from code to the job's error and to the status of each HTTP shape.

A code is all that processes exchange. The gateway translates it in exactly one place, with the row of this table; the
exceptions below carry the code, a message for a person and data for a program, and know nothing of HTTP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from photocall.names import SHOWN_CHARS


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """What one code becomes.

    `late`: it can stand as the `error` of a job, being found by prep, the engine or the sweeper.
    `native`: status of a problem document (RFC 9457), with `title`. `systemone` and `error_type`: status and type of
    System One's error body. `decisions` and `decisions_type`: status and type of the Decisions error body.
    """

    code: str
    title: str
    late: bool
    native: int
    systemone: int
    error_type: str
    decisions: int
    decisions_type: str


_INVALID = "invalid_request_error"
_SERVER = "server_error"
_AUTH = "authentication_error"
_RATE = "rate_limit_error"

_ROWS = (
    # code, title, late, native, System One status and error_type, Decisions status and type
    ErrorRow("malformed", "The request body cannot be read", False, 400, 400, "invalid_request", 400, _INVALID),
    ErrorRow("missing_key", "Missing API key", False, 401, 403, "authentication_error", 401, _AUTH),
    ErrorRow("bad_key", "Invalid API key", False, 401, 401, "authentication_error", 401, _AUTH),
    ErrorRow("foreign_origin", "Cross-origin write refused", False, 403, 403, "invalid_request", 403, _INVALID),
    ErrorRow("missing_scope", "The key is not for this", False, 403, 403, "authentication_error", 403, _AUTH),
    ErrorRow("not_found", "Not found", False, 404, 404, "invalid_request", 404, _INVALID),
    ErrorRow("method_not_allowed", "Method not allowed", False, 405, 405, "invalid_request", 405, _INVALID),
    ErrorRow("unknown_job", "Unknown job", False, 404, 404, "invalid_request", 404, _INVALID),
    ErrorRow("unknown_session", "Unknown session", False, 404, 404, "invalid_request", 404, _INVALID),
    ErrorRow("session_full", "The session is full", False, 409, 409, "invalid_request", 409, _INVALID),
    ErrorRow("unknown_file", "Unknown file", False, 404, 404, "invalid_request", 404, _INVALID),
    ErrorRow("unknown_batch", "Unknown batch", False, 404, 404, "invalid_request", 404, _INVALID),
    ErrorRow("unknown_calibration", "Unknown calibration", False, 404, 404, "invalid_request", 404, _INVALID),
    ErrorRow("calibrations_full", "Too many calibrations are kept", False, 409, 409, "invalid_request", 409, _INVALID),
    ErrorRow("image_expired", "An image is not stored", False, 404, 404, "image_expired", 404, _INVALID),
    ErrorRow("body_slow", "The body did not arrive in time", False, 408, 408, "invalid_request", 408, _INVALID),
    ErrorRow("in_progress", "The first upload is still being read", False, 409, 409, "invalid_request", 409, _INVALID),
    ErrorRow("batch_state", "The batch is not in such a state", False, 409, 409, "invalid_request", 409, _INVALID),
    ErrorRow("batch_damaged", "The batch cannot be read", False, 500, 500, "server_error", 500, _SERVER),
    ErrorRow("file_in_use", "The file is still written", False, 409, 409, "invalid_request", 409, _INVALID),
    ErrorRow("too_many_files", "Too many files are kept", False, 409, 409, "invalid_request", 409, _INVALID),
    ErrorRow("not_replayable", "The job cannot be replayed", False, 409, 409, "invalid_request", 409, _INVALID),
    ErrorRow("job_gone", "The job has expired or was deleted", False, 410, 410, "invalid_request", 410, _INVALID),
    ErrorRow("body_too_large", "The request body is too large", False, 413, 413, "request_too_large", 413, _INVALID),
    ErrorRow("unsupported_type", "Unsupported content type", False, 415, 415, "invalid_request", 415, _INVALID),
    ErrorRow("bad_range", "The file does not reach so far", False, 416, 416, "invalid_request", 416, _INVALID),
    ErrorRow("unknown_host", "Unknown Host", False, 421, 421, "invalid_request", 421, _INVALID),
    ErrorRow("invalid_field", "A field cannot be taken", False, 422, 422, "invalid_request", 422, _INVALID),
    ErrorRow("unknown_model", "Unknown model", False, 422, 400, "invalid_request", 400, _INVALID),
    ErrorRow("unreferenced_asset", "Unreferenced asset", False, 422, 400, "invalid_request", 400, _INVALID),
    ErrorRow("idempotency_mismatch", "Key used with another body", False, 422, 422, "invalid_request", 422, _INVALID),
    ErrorRow("hash_mismatch", "The bytes have another hash", False, 422, 422, "invalid_request", 422, _INVALID),
    ErrorRow("rate_limited", "Too many requests", False, 429, 429, "rate_limit", 429, _RATE),
    ErrorRow("queue_full", "The queue is full", False, 429, 529, "overloaded", 429, _RATE),
    ErrorRow("draining", "The server is shutting down", False, 503, 503, "overloaded", 503, _SERVER),
    ErrorRow("unavailable", "A part of the server is away", False, 503, 503, "overloaded", 503, _SERVER),
    ErrorRow("overloaded", "Not answered in time", False, 504, 529, "overloaded", 503, _SERVER),
    ErrorRow("store_full", "The store is full", False, 507, 529, "overloaded", 503, _SERVER),
    ErrorRow("disk_full", "The disk is full", False, 507, 529, "overloaded", 507, _SERVER),
    ErrorRow("image_undecodable", "A picture cannot be decoded", True, 422, 422, "invalid_request", 422, _INVALID),
    ErrorRow("image_unsupported", "Unsupported picture format", True, 415, 415, "invalid_request", 415, _INVALID),
    ErrorRow("image_too_large", "A picture is too large", True, 413, 413, "request_too_large", 413, _INVALID),
    ErrorRow("image_view_unsupported", "A picture has no such view", True, 422, 422, "invalid_request", 422, _INVALID),
    ErrorRow("image_url_refused", "A picture's URL is not fetched", True, 422, 422, "invalid_request", 422, _INVALID),
    ErrorRow("image_unreachable", "A picture's URL gave none", True, 422, 422, "invalid_request", 422, _INVALID),
    ErrorRow("image_lost", "The picture's bytes are gone", True, 500, 500, "server_error", 500, _SERVER),
    ErrorRow("budget_unsupported", "Unsupported image budget", True, 422, 422, "invalid_request", 422, _INVALID),
    ErrorRow("prompt_too_long", "The prompt does not fit", True, 422, 400, "max_tokens_exceeded", 400, _INVALID),
    ErrorRow("request_too_big", "The request can never fit", True, 422, 400, "max_tokens_exceeded", 400, _INVALID),
    ErrorRow("unanswerable", "A question cannot be asked", True, 422, 422, "invalid_request", 422, _INVALID),
    ErrorRow("calibration_mismatch", "Calibrated for another model", True, 422, 422, "invalid_request", 422, _INVALID),
    ErrorRow("cancelled", "The job was cancelled", True, 409, 409, "invalid_request", 409, _INVALID),
    ErrorRow("replaced", "Replaced by a newer turn", True, 409, 409, "invalid_request", 409, _INVALID),
    ErrorRow("abandoned", "Given up: nobody waits for it", True, 504, 529, "overloaded", 504, _SERVER),
    ErrorRow("deadline_exceeded", "The deadline passed", True, 504, 504, "overloaded", 504, _SERVER),
    ErrorRow("poison", "The process died three times on it", True, 500, 500, "server_error", 500, _SERVER),
    ErrorRow("internal", "Internal error", True, 500, 500, "server_error", 500, _SERVER),
)

TABLE: Mapping[str, ErrorRow] = MappingProxyType({row.code: row for row in _ROWS})


def row(code: str) -> ErrorRow:
    """The row of a code; a code this version does not know (a newer process wrote it) reads as `internal`."""
    return TABLE.get(code, TABLE["internal"])


class PhotocallError(Exception):
    """A failure with a code of the table, a message that names the field, file or number, and data for a program."""

    code: str = "internal"

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.data = data

    def to_error(self) -> dict[str, Any]:
        """The `error` of a job record."""
        return {**self.data, "code": self.code, "message": self.message}


class CodedError(PhotocallError):
    """A failure whose code is known only when it is raised, as when a job's stored error is raised again."""

    def __init__(self, code: str, message: str, **data: Any) -> None:
        super().__init__(message, **data)
        self.code = code


class UnknownJob(PhotocallError):
    """No such job for this caller: never accepted, or its tombstone has gone too."""

    code = "unknown_job"

    def __init__(self, job_id: str) -> None:
        shown = job_id[:SHOWN_CHARS]
        super().__init__(f"unknown job {shown!r}", job_id=shown)


class UnknownSession(PhotocallError):
    """No such session for this caller: never made, closed, or its time to live has ended."""

    code = "unknown_session"

    def __init__(self, session_id: str) -> None:
        shown = session_id[:SHOWN_CHARS]
        super().__init__(f"unknown session {shown!r}", session_id=shown)


class SessionFull(PhotocallError):
    """A bound on what one session, or one key's sessions, may hold is reached."""

    code = "session_full"

    def __init__(self, limit: str, held: int, allowed: int) -> None:
        super().__init__(f"no more {limit}: {held} of {allowed}", limit=limit, held=held, allowed=allowed)


class UnknownCalibration(PhotocallError):
    """No such calibration for this caller: never stored, deleted, or not used for as long as one is kept."""

    code = "unknown_calibration"

    def __init__(self, calibration_id: str) -> None:
        shown = calibration_id[:SHOWN_CHARS]
        message = f"unknown calibration {shown!r}: never stored with this API key, deleted or expired"
        super().__init__(message, calibration_id=shown)


class CalibrationsFull(PhotocallError):
    """An API key has as many stored calibrations as it may have."""

    code = "calibrations_full"

    def __init__(self, held: int, allowed: int) -> None:
        message = f"this API key has {held} calibrations, and may have {allowed}: delete one"
        super().__init__(message, held=held, allowed=allowed)


class JobGone(PhotocallError):
    """The job was there; its record was deleted or its time to live has ended. To others than `owner` it is unknown."""

    code = "job_gone"

    def __init__(self, job_id: str, owner: str = "") -> None:
        super().__init__(f"job {job_id!r} has expired or was deleted", job_id=job_id)
        self.owner = owner


class IdempotencyMismatch(PhotocallError):
    """The idempotency key is known with another body."""

    code = "idempotency_mismatch"

    def __init__(self, idempotency_key: str) -> None:
        super().__init__(
            f"Idempotency-Key {idempotency_key!r} was used with another body", idempotency_key=idempotency_key
        )


class QueueFull(PhotocallError):
    """A bound on accepted, unfinished work is reached: `limit` names which, with the two numbers."""

    code = "queue_full"

    def __init__(self, limit: str, held: int, allowed: int) -> None:
        super().__init__(f"the queue is full: {limit} {held} of {allowed}", limit=limit, held=held, allowed=allowed)


class KeyBusy(PhotocallError):
    """An API key has as many unfinished jobs as it may have."""

    code = "rate_limited"

    def __init__(self, held: int, allowed: int) -> None:
        super().__init__(f"this API key has {held} unfinished jobs, and may have {allowed}", held=held, allowed=allowed)
        self.data["violated-policies"] = ["jobs"]


class StoreFull(PhotocallError):
    """Redis holds more than the share of its memory up to which new work is accepted."""

    code = "store_full"

    def __init__(self, used: int, allowed: int) -> None:
        super().__init__(f"the store is full: {used} bytes used of {allowed} accepted", used=used, allowed=allowed)


class UnknownImage(PhotocallError):
    """A picture named by hash that is not stored any more, or that this caller never uploaded: which, is not told."""

    code = "image_expired"

    def __init__(self, sha256: str) -> None:
        super().__init__(f"image {sha256} is not stored, or has expired: upload it again", sha256=sha256)


class HashMismatch(PhotocallError):
    """Bytes that do not have the hash they were sent under."""

    code = "hash_mismatch"

    def __init__(self, expected: str, actual: str) -> None:
        super().__init__(f"the bytes hash to {actual}, not to {expected}", expected=expected, actual=actual)


class BadSignature(PhotocallError):
    """A message without our signature: refused, counted, never decoded."""

    code = "internal"


class UnknownVersion(PhotocallError):
    """A signed message of a major version this process cannot read: left for a newer process."""

    code = "internal"

    def __init__(self, version: str) -> None:
        super().__init__(f"message version {version!r} is not readable here", version=version)


class MalformedMessage(PhotocallError):
    """A signed message that does not have the shape its type demands: a defect of the sender."""

    code = "internal"


class RefusedFunction(PhotocallError):
    """A queue entry that names a function other than the project's own."""

    code = "internal"

    def __init__(self, function: str) -> None:
        super().__init__(f"refused to run {function!r} from the queue", function=function)
