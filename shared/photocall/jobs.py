"""A job as its record tells it: what is accepted, what is leased, how it ends, and what a reader sees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from photocall.keys import Lane
from photocall.messages import Header
from photocall.wire import unpack

Stage: TypeAlias = Literal["preparing", "running"]

# Of a record's hash, what its readers are shown, and what tells one reader from another.
SHOWN_FIELDS = (
    b"owner", b"shape", b"status", b"stage", b"priority", b"created_at", b"started_at", b"prepared_at",
    b"completed_at", b"expires_at", b"deadline_at", b"attempts", b"version", b"result", b"error", b"usage",
    b"timings", b"progress", b"metadata", b"view", b"session", b"turn", b"remember", b"webhook_url",
    b"webhook_events",
)  # fmt: skip


class JobStatus(StrEnum):
    """queued -> preparing -> running -> succeeded | failed; a live one -> cancelling -> cancelled, or -> expired."""

    QUEUED = "queued"
    PREPARING = "preparing"
    RUNNING = "running"
    CANCELLING = "cancelling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"

    @property
    def terminal(self) -> bool:
        """It never changes again."""
        return self in (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.EXPIRED)


@dataclass(frozen=True, slots=True)
class Webhook:
    """Where a caller wants to be told. No events: all."""

    url: str
    events: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewJob:
    """What the gateway accepts. `ask` is `wire.pack(Ask.to_content())`; the images are stored already."""

    job_id: str
    owner: str  # API key id, or "local"
    shape: str  # "job" | "systemone" | "decisions"
    ask: bytes
    images: tuple[str, ...]  # distinct sha256, hex
    priority: Lane
    created_at: float
    deadline_at: float
    request_hash: str
    idempotency_key: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    view: Mapping[str, Any] = field(default_factory=dict)  # how the shape shows the answers; empty: as they are
    body_bytes: int = 0  # kept for it while it is live: pictures and ask
    session_id: str = ""  # it is a turn of this session
    remember: bool = True  # a turn: it stays in the transcript
    webhook: Webhook | None = None
    max_jobs: int | None = None  # unfinished ones that the owner's key may have; None: as many as the policy lets it
    traceparent: str = ""  # the trace that it belongs to; empty: none
    keeps_ask: bool = False  # beyond an end with an answer, as long as the record, to be asked again; not a large one
    to_prepare: bool | None = None  # None: when it has images; a turn's may all have been prepared for earlier ones


@dataclass(frozen=True, slots=True)
class Accepted:
    """`created` is False for the replay of an idempotent request: `job_id` is then that of the first one."""

    job_id: str
    created: bool


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a job for a while. `cause` is the header of the request, parent of all the job's events."""

    job_id: str
    fence: int
    attempt: int
    cause: Header
    stage: Stage = "running"


@dataclass(frozen=True, slots=True)
class StreamRef:
    """An entry of an engine stream, to acknowledge with the answer."""

    lane: str  # a lane, or the id of the engine whose own stream it is
    entry_id: str


@dataclass(frozen=True, slots=True)
class Holding:
    """A session's prefix in an engine's pools."""

    engine_id: str
    tokens: int
    bytes: int
    lease_s: float
    until: float  # seconds since the epoch


@dataclass(frozen=True, slots=True)
class TurnLeft:
    """What the end of a turn changes in its session."""

    entry: bytes = b""  # of the transcript; empty: none
    holding: Holding | None = None  # None with `says_held`: nothing is held any more
    says_held: bool = False  # False: what is held is not changed by this turn
    reused: int = 0  # tokens of the prefix that was held
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Answered:
    """A job that succeeded. `body` is the System One response body, `usage` among it."""

    body: Mapping[str, Any]
    timings: Mapping[str, float] = field(default_factory=dict)
    turn: TurnLeft | None = None
    engine_id: str = ""  # which has the request's prefix in its cache now; empty: nobody


@dataclass(frozen=True, slots=True)
class Refused:
    """A job that failed, by a code of the error table."""

    code: str
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)
    timings: Mapping[str, float] = field(default_factory=dict)
    turn: TurnLeft | None = None

    def to_error(self) -> dict[str, Any]:
        """The `error` of the record."""
        return {**self.data, "code": self.code, "message": self.message}


Outcome: TypeAlias = Answered | Refused


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job record as read. Times are seconds since the epoch, 0.0 where the thing has not happened."""

    job_id: str
    owner: str
    shape: str
    status: JobStatus
    stage: Stage  # who works on it, or will next: prep or the engine
    priority: Lane
    ask: bytes  # empty once the job has ended, unless it keeps it
    images: tuple[str, ...]
    prepared: list[dict[str, Any]]  # set by `prepared`, for the engine; empty before and after
    created_at: float
    started_at: float
    prepared_at: float
    completed_at: float
    expires_at: float  # the end of a finished job's time to live
    deadline_at: float
    lease_until: float
    fence: int
    failures: int  # of processes that held it
    returns: int  # from the engine to prep, for want of a patch blob
    attempts: int
    version: int  # changes with every visible change: the ETag
    result: dict[str, Any] | None
    error: dict[str, Any] | None
    usage: dict[str, Any]
    timings: dict[str, float]
    progress: dict[str, Any]
    metadata: dict[str, Any]
    view: dict[str, Any]
    request_hash: str
    idempotency_key: str | None
    body_bytes: int  # kept for it while it is live: pictures and ask
    session_id: str  # of a turn; empty for other jobs
    turn: int  # its number in the session, from 1
    remember: bool
    keeps_ask: bool  # as NewJob has it; `ask` is empty all the same where it was too large to be kept
    header: Header
    webhook: Webhook | None

    @classmethod
    def from_hash(cls, job_id: str, raw: Mapping[bytes, bytes]) -> JobRecord:
        """Read the hash of a record."""

        def word(name: bytes) -> str:
            return raw.get(name, b"").decode()

        def real(name: bytes) -> float:
            return float(raw.get(name, b"0"))

        def packed(name: bytes) -> Any:
            value = raw.get(name)
            return unpack(value) if value else None

        return cls(
            job_id=job_id,
            owner=word(b"owner"),
            shape=word(b"shape"),
            status=JobStatus(word(b"status")),
            stage="running" if word(b"stage") == "running" else "preparing",
            priority="batch" if word(b"priority") == "batch" else "interactive",
            ask=raw.get(b"ask", b""),
            images=tuple(word(b"images").split()),
            prepared=packed(b"prepared") or [],
            created_at=real(b"created_at"),
            started_at=real(b"started_at"),
            prepared_at=real(b"prepared_at"),
            completed_at=real(b"completed_at"),
            expires_at=real(b"expires_at"),
            deadline_at=real(b"deadline_at"),
            lease_until=real(b"lease_until"),
            fence=int(real(b"fence")),
            failures=int(real(b"failures")),
            returns=int(real(b"returns")),
            attempts=int(real(b"attempts")),
            version=int(real(b"version")),
            result=packed(b"result"),
            error=packed(b"error"),
            usage=packed(b"usage") or {},
            timings=packed(b"timings") or {},
            progress=packed(b"progress") or {},
            metadata=packed(b"metadata") or {},
            view=packed(b"view") or {},
            request_hash=word(b"request_hash"),
            idempotency_key=word(b"idempotency_key") or None,
            body_bytes=int(real(b"body_bytes")),
            session_id=word(b"session").rpartition(":")[2],
            turn=int(real(b"turn")),
            remember=word(b"remember") != "0",
            keeps_ask=bool(word(b"keeps_ask")),
            header=packed(b"header"),
            webhook=Webhook(word(b"webhook_url"), tuple(word(b"webhook_events").split()))
            if word(b"webhook_url")
            else None,
        )
