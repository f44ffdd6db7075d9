"""The message types that processes exchange, and the header that every one of them carries; see PROTOCOL.md.

A type is a frozen dataclass whose fields are the map of its content. Bytes, signatures and Redis are elsewhere
(`wire.py`, `streams.py`).
"""

from __future__ import annotations

import datetime
import types
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self, TypedDict, Union, get_args, get_origin, get_type_hints

from photocall.errors import MalformedMessage

VERSION = "1.0"

_SCHEMAS: dict[type[Message], dict[str, tuple[type, ...]]] = {}  # filled by `schema`, as types are first read


class _Header(TypedDict):
    msg_id: str
    session: str
    username: str
    date: str
    msg_type: str
    version: str


class Header(_Header, total=False):
    """Who sent what, when; the parent header of a message is the header of its cause."""

    traceparent: str  # where the request is traced: the span that its spans are children of


def new_header(msg_type: str, session: str, username: str = "photocall") -> Header:
    """A fresh header: ids are random, the date is UTC in ISO 8601."""
    return Header(
        msg_id=uuid.uuid4().hex,
        session=session,
        username=username,
        date=datetime.datetime.now(datetime.UTC).isoformat(),
        msg_type=msg_type,
        version=VERSION,
    )


@dataclass(frozen=True, slots=True)
class Message:
    """What all types share: content to and from a map."""

    msg_type: ClassVar[str]
    channel: ClassVar[str]

    def to_content(self) -> dict[str, Any]:
        """The content map."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> Self:
        """Read a content map; fields of a newer minor version are ignored. Raises MalformedMessage."""
        values = {}
        for name, allowed in schema(cls).items():
            if name not in content or not isinstance(content[name], allowed):
                raise MalformedMessage(f"{cls.msg_type}: field {name!r} is missing or has the wrong type")
            values[name] = content[name]
        return cls(**values)


@dataclass(frozen=True, slots=True)
class DecideRequest(Message):
    """Prepare one attempt of a job: what an RQ queue entry holds. `args` is [job id, attempt]."""

    msg_type: ClassVar[str] = "decide_request"
    channel: ClassVar[str] = "shell"
    function: str
    args: list[Any]


@dataclass(frozen=True, slots=True)
class RqValue(Message):
    """Whatever else RQ stores through our serializer."""

    msg_type: ClassVar[str] = "rq_value"
    channel: ClassVar[str] = "shell"
    value: Any


@dataclass(frozen=True, slots=True)
class Prepared(Message):
    """A job the engine can take; added to an engine stream, and to the job's events when pictures were prepared.

    `images`: one map {sha256, view, blob_key, grid_height, grid_width, num_soft, budget, fidelity} per distinct picture
    and view, in the ask's order; `view` is missing where it is the plain one, the last two where an older prep wrote.
    """

    msg_type: ClassVar[str] = "prepared"
    channel: ClassVar[str] = "shell"
    job_id: str
    attempt: int
    images: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class TurnRequest(Message):
    """A turn of a session that the engine can take; as `prepared`, but never an event."""

    msg_type: ClassVar[str] = "turn_request"
    channel: ClassVar[str] = "shell"
    job_id: str
    attempt: int
    images: list[dict[str, Any]]
    session_id: str


@dataclass(frozen=True, slots=True)
class Status(Message):
    """`busy` at once when a stage takes the job, `idle` after the job's last event."""

    msg_type: ClassVar[str] = "status"
    channel: ClassVar[str] = "iopub"
    job_id: str
    execution_state: str
    stage: str


@dataclass(frozen=True, slots=True)
class Progress(Message):
    """How far a stage is: `done` of `total`, in the stage's own units."""

    msg_type: ClassVar[str] = "progress"
    channel: ClassVar[str] = "iopub"
    job_id: str
    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class StreamText(Message):
    """Text of one question as it is made; `offset` counts the characters before it."""

    msg_type: ClassVar[str] = "stream"
    channel: ClassVar[str] = "iopub"
    job_id: str
    question: str
    offset: int
    text: str


@dataclass(frozen=True, slots=True)
class Result(Message):
    """The job succeeded; the answers are in its record."""

    msg_type: ClassVar[str] = "result"
    channel: ClassVar[str] = "iopub"
    job_id: str


@dataclass(frozen=True, slots=True)
class Error(Message):
    """The job ended without answers, as `status` says; `error` is that of its record."""

    msg_type: ClassVar[str] = "error"
    channel: ClassVar[str] = "iopub"
    job_id: str
    status: str
    error: dict[str, Any]


@dataclass(frozen=True, slots=True)
class BatchProgress(Message):
    """How far a batch is: at each change of `status`, and now and then between; `paused` is why no row is sent."""

    msg_type: ClassVar[str] = "batch_progress"
    channel: ClassVar[str] = "iopub"
    batch_id: str
    status: str
    total: int
    completed: int
    failed: int
    paused: str


@dataclass(frozen=True, slots=True)
class InterruptRequest(Message):
    """Drop these jobs: cancelled, deleted or out of time."""

    msg_type: ClassVar[str] = "interrupt_request"
    channel: ClassVar[str] = "control"
    job_ids: list[str]


@dataclass(frozen=True, slots=True)
class ReleaseRequest(Message):
    """Hold nothing of these sessions any more: they are closed."""

    msg_type: ClassVar[str] = "release_request"
    channel: ClassVar[str] = "control"
    session_ids: list[str]


@dataclass(frozen=True, slots=True)
class ShutdownRequest(Message):
    """Stop taking jobs, finish or hand back those that run, and exit."""

    msg_type: ClassVar[str] = "shutdown_request"
    channel: ClassVar[str] = "control"
    reason: str


@dataclass(frozen=True, slots=True)
class EngineInfo(Message):
    """A heartbeat: `ready` once a real one-picture forward has run. `load` is requests held of `capacity`.

    `steps` and `rows` count the forwards since the start, and what they ran: rows per step is how full they are.
    `answered` counts the requests that were answered since then, `pictures` what these were about, each request's own.
    """

    msg_type: ClassVar[str] = "engine_info"
    channel: ClassVar[str] = "heartbeat"
    engine_id: str
    model: str
    device: str
    ready: bool
    load: int
    capacity: int
    pages_free: int
    pages_total: int
    started_at: float
    steps: int = 0
    rows: int = 0
    answered: int = 0
    pictures: int = 0


TYPES: Mapping[str, type[Message]] = {
    cls.msg_type: cls
    for cls in (
        DecideRequest,
        RqValue,
        Prepared,
        TurnRequest,
        Status,
        Progress,
        StreamText,
        Result,
        Error,
        BatchProgress,
        InterruptRequest,
        ReleaseRequest,
        ShutdownRequest,
        EngineInfo,
    )
}


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message that was received: its five parts, the content as its type."""

    header: Header
    parent_header: Header | None  # None: a first message
    metadata: dict[str, Any]
    message: Message
    buffers: tuple[bytes, ...] = field(default=())


def schema(cls: type[Message]) -> dict[str, tuple[type, ...]]:
    """The fields of a type's content, and the Python types each may have on arrival."""
    if cls not in _SCHEMAS:
        hints = get_type_hints(cls)
        _SCHEMAS[cls] = {item.name: _arriving(hints[item.name]) for item in fields(cls)}
    return _SCHEMAS[cls]


def _arriving(hint: Any) -> tuple[type, ...]:
    if hint is Any:
        return (object,)
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(kind for part in get_args(hint) for kind in _arriving(part))
    if hint is float:
        return (float, int)
    return (get_origin(hint) or hint,)
