"""What can be done to a job record, each as one script call: keys, arguments and messages, but no connection.

`records.py` runs these on a synchronous or an asyncio client; `sweeper.py` runs the ones that act on time.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from photocall import keys
from photocall.errors import (
    IdempotencyMismatch,
    KeyBusy,
    QueueFull,
    SessionFull,
    StoreFull,
    UnknownImage,
    UnknownSession,
)
from photocall.jobs import (
    Accepted,
    Answered,
    JobRecord,
    JobStatus,
    Lease,
    NewJob,
    Outcome,
    Stage,
    StreamRef,
    TurnLeft,
)
from photocall.messages import (
    DecideRequest,
    Error,
    Header,
    InterruptRequest,
    Message,
    Prepared,
    Result,
    Status,
    StreamText,
    TurnRequest,
    new_header,
)
from photocall.scripts import Argument, Call, flat
from photocall.settings import DAY_S, GatewaySettings, SharedSettings
from photocall.webhooks import KEPT_S
from photocall.wire import Wire, pack, unpack

OWN_JOBS = "jobs of this key"  # as a refusal names the bound
MAX_AGE_S = DAY_S  # a live job has no TTL, but this
MAX_FAILURES = 3  # of the process under the same job: then it is poison
CONTROL_LIMIT = 1000
MAX_KEPT_ASK = 64 << 10  # bytes of an ask that stay after the end of its job: they are in no byte budget any more
ENDS = {"cancelled": JobStatus.CANCELLED, "deadline_exceeded": JobStatus.EXPIRED}  # other refusals: failed


@dataclass(frozen=True, slots=True)
class Policy:
    """Times in seconds and bounds; tests make them small."""

    lease_s: float = 6.0
    job_ttl_s: int = 3600
    tombstone_ttl_s: int = 7 * DAY_S
    image_ttl_s: int = 3600
    outbox_grace_s: float = 2.0
    hand_back_grace_s: float = 0.5  # lets prep's worker forget the entry of the same id first
    event_limit: int = 1000
    memory_share: float = 0.8
    max_jobs: int = 1024
    max_jobs_per_owner: int = 512
    max_bytes: int = 1 << 30
    max_bytes_per_owner: int = 1 << 29
    max_turns_waiting: int = 16  # of one session, the running one among them
    max_turns: int = 256  # in one transcript
    near_s: int = 120  # so long after an answer about a picture, its engine is asked about it again
    near_jobs: int = 16  # unfinished ones in an engine's own stream, a quarter of what it runs: then others share

    @classmethod
    def from_settings(cls, settings: SharedSettings) -> Policy:
        """The operator's times, and the gateway's bounds where these are a gateway's settings."""
        times = {
            "job_ttl_s": settings.job_ttl_s,
            "image_ttl_s": settings.image_ttl_s,
            "event_limit": settings.event_limit,
        }
        if not isinstance(settings, GatewaySettings):
            return cls(**times)
        return cls(
            **times,
            max_jobs=settings.max_queue_depth,
            max_jobs_per_owner=settings.max_queue_depth_per_key,
            max_bytes=settings.max_queue_bytes,
            max_bytes_per_owner=settings.max_queue_bytes_per_key,
        )


class Operations:
    """Builds the calls. `now` is a time to use instead of the server's clock, for tests."""

    def __init__(self, wire: Wire, policy: Policy) -> None:
        self.wire = wire
        self.policy = policy

    def bounds(self, new: NewJob) -> tuple[tuple[str, str, int, int], ...]:
        """What accept.lua compares: (as a refusal names it, field of the depth, what the job adds, allowed)."""
        return (
            ("jobs", "jobs", 1, self.policy.max_jobs),
            (OWN_JOBS, f"jobs:{new.owner}", 1, min(self.policy.max_jobs_per_owner, new.max_jobs or sys.maxsize)),
            ("bytes", "bytes", new.body_bytes, self.policy.max_bytes),
            ("bytes of this key", f"bytes:{new.owner}", new.body_bytes, self.policy.max_bytes_per_owner),
        )

    def accept(self, new: NewJob, now: float | None = None) -> Call[Accepted]:
        """Write a job and its way on.

        Raises IdempotencyMismatch, QueueFull, KeyBusy, StoreFull, UnknownImage, UnknownSession or SessionFull.
        """
        header = new_header(DecideRequest.msg_type, self.wire.session)
        if new.traceparent:
            header["traceparent"] = new.traceparent
        deadline = min(new.deadline_at, new.created_at + MAX_AGE_S)
        to_prepare = bool(new.images) if new.to_prepare is None else new.to_prepare
        stage: Stage = "preparing" if to_prepare else "running"
        idempotency = keys.idempotency(new.owner, new.idempotency_key) if new.idempotency_key else ""
        offer = TurnRequest(new.job_id, 1, [], new.session_id) if new.session_id else Prepared(new.job_id, 1, [])
        message = b"" if to_prepare else self.wire.encode(offer, cause=header)
        session = keys.session(new.session_id) if new.session_id else ""
        fields: dict[str, Argument] = {
            "owner": new.owner,
            "shape": new.shape,
            "status": JobStatus.QUEUED.value,
            "stage": stage,
            "priority": new.priority,
            "ask": new.ask,
            "images": " ".join(new.images),
            "created_at": repr(new.created_at),
            "deadline_at": repr(deadline),
            "request_hash": new.request_hash,
            "idempotency_key": new.idempotency_key or "",
            "idempotency": idempotency,
            "metadata": pack(dict(new.metadata)),
            "view": pack(dict(new.view)),
            "body_bytes": new.body_bytes,
            "version": 1,
            "fence": 0,
            "failures": 0,
            "lease_until": "0",
            "header": pack(dict(header)),
        }
        if session:
            fields |= {"session": session, "remember": int(new.remember)}
        if new.keeps_ask:
            fields["keeps_ask"] = MAX_KEPT_ASK
        if new.webhook is not None:
            fields |= {
                "webhook": keys.webhook(new.job_id),
                "webhook_line": keys.WEBHOOKS,
                "webhook_url": new.webhook.url,
                "webhook_events": " ".join(new.webhook.events),
                "webhook_kept_s": KEPT_S,
            }
        mine = keys.job(new.job_id)
        own_keys = (idempotency or mine, keys.index(new.owner), keys.engine_stream(new.priority), session or mine)
        args: tuple[Argument, ...] = (
            new.owner,
            new.request_hash,
            self.policy.memory_share,
            *(allowed for _, _, _, allowed in self.bounds(new)),
            new.body_bytes,
            repr(deadline),
            repr(new.created_at),
            self.policy.outbox_grace_s,
            message,
            " ".join(new.images),
            self.policy.max_turns_waiting,
            self.policy.max_turns,
        )
        pairs = flat(fields)

        def parse(found: list[Any]) -> Accepted:
            return _accepted(found, new)

        return self._call("accept", new.job_id, own_keys, (*args, *pairs), parse, now)

    def lease(
        self, job_id: str, stage: Stage, cause: Header | None = None, now: float | None = None
    ) -> Call[Lease | None]:
        """Take a job; None when there is nothing to do for this stage now. With a cause, `busy` is added too."""
        busy = self.wire.encode(Status(job_id, "busy", stage), cause=cause) if cause else b""

        def parse(found: list[Any] | None) -> Lease | None:
            return None if found is None else Lease(job_id, int(found[0]), int(found[1]), unpack(found[2]), stage)

        return self._call("lease", job_id, (), (stage, busy), parse, now)

    def renew(self, lease: Lease, now: float | None = None) -> Call[bool]:
        """Keep a lease. False: lost, cancelled or out of time; the work is not wanted any more."""
        return self._call("renew", lease.job_id, (), (lease.fence,), bool, now)

    def transition(
        self,
        job_id: str,
        fence: int | None,
        from_: JobStatus,
        to: JobStatus,
        fields: Mapping[str, Argument] | None = None,
        now: float | None = None,
    ) -> Call[bool]:
        """Move a job that is in `from_` under its fence (None: while nobody holds it)."""
        pairs = flat(fields or {})
        args = ("" if fence is None else fence, from_.value, to.value, *pairs)
        return self._call("transition", job_id, (), args, bool, now)

    def prepared(self, lease: Lease, record: JobRecord, images: Sequence[Mapping[str, Any]]) -> Call[bool]:
        """Prep is done: over to the engines, or to the one that answered about the same picture of late."""
        described = [dict(image) for image in images]
        event = self.wire.encode(Prepared(lease.job_id, lease.attempt, described), cause=lease.cause)
        message = self._offer(record, lease.attempt, described, lease.cause)
        cancelled, cancelled_event = self._cancelled(lease.job_id, lease.cause)
        args = (
            lease.fence,
            pack(described),
            message,
            cancelled,
            cancelled_event,
            self._idle(lease),
            event,
            self.policy.near_jobs,
        )
        by_picture = record.priority == "interactive" and not record.session_id and described
        near = keys.near(str(described[0]["blob_key"])) if by_picture else keys.job(lease.job_id)
        own_keys = (keys.engine_stream(record.priority), near, keys.INBOXES)
        return self._call("prepared", lease.job_id, own_keys, args, bool)

    def hand_back(
        self,
        lease: Lease,
        record: JobRecord,
        stage: Stage,
        ack: StreamRef | None = None,
        images: Sequence[str] = (),
        now: float | None = None,
    ) -> Call[bool]:
        """Give a job back to a stage, not counted against it. `images`: all that it turned out to need."""
        message = self.engine_message(record, lease.attempt) if stage == "running" else b""
        cancelled, cancelled_event = self._cancelled(lease.job_id, lease.cause)
        own_keys = (keys.engine_stream(record.priority), keys.engine_stream(ack.lane if ack else record.priority))
        args: tuple[Argument, ...] = (
            lease.fence,
            stage,
            message,
            self.policy.hand_back_grace_s,
            keys.ENGINE_GROUP,
            ack.entry_id if ack else "",
            cancelled,
            cancelled_event,
            self._idle(lease),
            " ".join(images),
        )
        return self._call("hand_back", lease.job_id, own_keys, args, bool, now)

    def publish(
        self, lease: Lease, outcome: Outcome, ack: StreamRef | None = None, now: float | None = None
    ) -> Call[bool]:
        """The answer. True when it is the one that counts. A full store raises and changes nothing."""
        fields: dict[str, Argument] = {"timings": pack(dict(outcome.timings))}
        event: Message
        near: tuple[Argument, ...] = ("", "", self.policy.near_s)
        if isinstance(outcome, Answered):
            status = JobStatus.SUCCEEDED
            if outcome.engine_id:
                near = (*_place(outcome.engine_id), self.policy.near_s)
            fields |= {"result": pack(dict(outcome.body)), "usage": pack(dict(outcome.body.get("usage", {})))}
            event = Result(lease.job_id)
        else:
            status = ENDS.get(outcome.code, JobStatus.FAILED)
            fields |= {"error": pack(outcome.to_error())}
            event = Error(lease.job_id, status.value, outcome.to_error())
        cancelled, cancelled_event = self._cancelled(lease.job_id, lease.cause)
        args: tuple[Argument, ...] = (
            lease.fence,
            keys.ENGINE_GROUP,
            ack.entry_id if ack else "",
            status.value,
            self.wire.encode(event, cause=lease.cause),
            self._idle(lease),
            cancelled,
            cancelled_event,
            *_left(outcome.turn or TurnLeft()),
            *near,
            *flat(fields),
        )
        stream = keys.engine_stream(ack.lane if ack else "interactive")
        return self._call("publish", lease.job_id, (stream,), args, bool, now)

    def fetched(self, lease: Lease, ask: bytes, images: Sequence[str], new: Mapping[str, int]) -> Call[bool]:
        """The job's pictures by URL are stored. `images` are all of its pictures; `new` those, with their bytes."""
        args: tuple[Argument, ...] = (lease.fence, ask, " ".join(images), sum(new.values()), *new)
        return self._call("fetched", lease.job_id, (), args, bool)

    def event(
        self, lease: Lease, message: Message, record_field: str = "", value: bytes = b"", metadata: Any = None
    ) -> Call[int]:
        """Add an event, and set a field of the record with it. -1: done; -2: no lease; else characters known."""
        length_field, offset, length = "", 0, 0
        if isinstance(message, StreamText):
            length_field, offset, length = f"text:{message.question}", message.offset, len(message.text)
        event = self.wire.encode(message, cause=lease.cause, metadata=metadata)
        args = (lease.fence, event, length_field, offset, length, record_field, value)
        return self._call("event", lease.job_id, (), args, int)

    def cancel(self, record: JobRecord, now: float | None = None) -> Call[JobStatus | None]:
        """Cancel a job; the state after it, or None when it is gone."""
        return self._cancel(record, {"code": "cancelled", "message": "the job was cancelled"}, False, now)

    def replace(self, record: JobRecord, by: str, now: float | None = None) -> Call[JobStatus | None]:
        """Cancel a turn for a newer one, unless an engine is at it; the state after it, or None when it is gone."""
        error = {"code": "replaced", "message": "replaced by a newer turn of its session", "replaced_by": by}
        return self._cancel(record, error, True, now)

    def _cancel(
        self, record: JobRecord, error: Mapping[str, Any], unless_running: bool, now: float | None
    ) -> Call[JobStatus | None]:
        event = self.wire.encode(Error(record.job_id, JobStatus.CANCELLED.value, dict(error)), cause=record.header)
        interrupt = self._interrupt(record.job_id)
        args = (pack(dict(error)), event, self.idle(record), interrupt, CONTROL_LIMIT, int(unless_running))

        def parse(found: bytes | None) -> JobStatus | None:
            return None if found is None else JobStatus(found.decode())

        return self._call("cancel", record.job_id, (keys.CONTROL,), args, parse, now)

    def unjoin(self, record: JobRecord) -> Call[bool]:
        """Let a job's idempotency key stand for the next job. False: it stood for this one no more."""
        entry = keys.idempotency(record.owner, record.idempotency_key) if record.idempotency_key else ""
        return self._call("unjoin", record.job_id, (entry,), (), bool)

    def delete(self, record: JobRecord, purge: bool = False, now: float | None = None) -> Call[bool]:
        """Cancel a job and remove all of it; a tombstone stays. `purge`: with pictures that nothing else needs."""
        own_keys = (keys.index(record.owner), keys.CONTROL, keys.FORGET)
        args = (self._interrupt(record.job_id), CONTROL_LIMIT, int(purge))
        return self._call("delete", record.job_id, own_keys, args, bool, now)

    def forget(self, owner: str, job_id: str) -> Call[bool]:
        """Remove every trace of an ended job whose answer is kept elsewhere; no tombstone stays."""
        return self._call("forget", job_id, (keys.index(owner),), (), bool)

    def expire(self, record: JobRecord, now: float | None = None) -> Call[bool]:
        """End a job whose wall clock has passed."""
        message = f"not finished {record.deadline_at - record.created_at:.0f} s after it was accepted"
        error, event = self._failure(record, JobStatus.EXPIRED, "deadline_exceeded", message)
        args = (error, event, self.idle(record), self._interrupt(record.job_id), CONTROL_LIMIT)
        return self._call("expire", record.job_id, (keys.CONTROL,), args, bool, now)

    def end_lease(self, record: JobRecord, now: float | None = None) -> Call[str | None]:
        """Count a lease that ended: 'queued', 'poison' or 'cancelled'; None when another was first."""
        where = "the engine" if record.stage == "running" else "prep"
        text = f"{where} stopped {MAX_FAILURES} times while working on this job"
        poison, poison_event = self._failure(record, JobStatus.FAILED, "poison", text)
        cancelled, cancelled_event = self._cancelled(record.job_id, record.header)
        args: tuple[Argument, ...] = (
            record.fence,
            MAX_FAILURES,
            self.engine_message(record, record.failures + 2),
            poison,
            poison_event,
            self.idle(record),
            cancelled,
            cancelled_event,
        )

        def parse(found: bytes | None) -> str | None:
            return None if found is None else found.decode()

        return self._call("end_lease", record.job_id, (keys.engine_stream(record.priority),), args, parse, now)

    def claim_outbox(self, job_id: str, now: float | None = None) -> Call[tuple[int, keys.Lane, str] | None]:
        """Claim a due entry: attempt, lane, and the new due time to clear it by. None: nothing to enqueue."""

        def parse(found: list[Any] | None) -> tuple[int, keys.Lane, str] | None:
            if found is None:
                return None
            return int(found[0]), "batch" if found[1] == b"batch" else "interactive", found[2].decode()

        return self._call("claim_outbox", job_id, (), (self.policy.outbox_grace_s,), parse, now)

    def clear_outbox(self, job_id: str, due: str = "") -> Call[bool]:
        """The job is enqueued: drop its entry (only the one due at `due`, when given)."""
        return self._call("clear_outbox", job_id, (), (due,), bool)

    def engine_message(self, record: JobRecord, attempt: int) -> bytes:
        """The message that offers a job to the engine (again)."""
        return self._offer(record, attempt, record.prepared, record.header)

    def _offer(self, record: JobRecord, attempt: int, images: list[dict[str, Any]], cause: Header) -> bytes:
        if record.session_id:
            return self.wire.encode(TurnRequest(record.job_id, attempt, images, record.session_id), cause=cause)
        return self.wire.encode(Prepared(record.job_id, attempt, images), cause=cause)

    def idle(self, record: JobRecord) -> bytes:
        """The last event of a job."""
        return self.wire.encode(Status(record.job_id, "idle", record.stage), cause=record.header)

    def _idle(self, lease: Lease) -> bytes:
        return self.wire.encode(Status(lease.job_id, "idle", lease.stage), cause=lease.cause)

    def _interrupt(self, job_id: str) -> bytes:
        return self.wire.encode(InterruptRequest([job_id]))

    def _cancelled(self, job_id: str, cause: Header) -> tuple[bytes, bytes]:
        error = {"code": "cancelled", "message": "the job was cancelled"}
        return pack(error), self.wire.encode(Error(job_id, JobStatus.CANCELLED.value, error), cause=cause)

    def _failure(self, record: JobRecord, status: JobStatus, code: str, message: str) -> tuple[bytes, bytes]:
        error = {"code": code, "message": message}
        return pack(error), self.wire.encode(Error(record.job_id, status.value, error), cause=record.header)

    def _call(
        self,
        script: str,
        job_id: str,
        own_keys: tuple[str, ...],
        args: tuple[Argument, ...],
        parse: Any,
        now: float | None = None,
    ) -> Call[Any]:
        job_keys = (
            keys.job(job_id),
            keys.events(job_id),
            keys.tombstone(job_id),
            keys.LEASES,
            keys.DEADLINES,
            keys.OUTBOX,
            keys.DEPTH,
            keys.ENDED,
            keys.COUNTERS,
        )
        job_args: tuple[Argument, ...] = (
            "" if now is None else repr(now),
            job_id,
            self.policy.lease_s,
            self.policy.job_ttl_s,
            self.policy.tombstone_ttl_s,
            self.policy.image_ttl_s,
            keys.image(""),
            self.policy.event_limit,
            keys.WAKE,
        )
        return Call(script, (*job_keys, *own_keys), (*job_args, *args), parse)


def full(new: NewJob, limit: str, held: int, allowed: int) -> QueueFull | KeyBusy:
    """A bound that a new job would go over: the service's, or its own key's."""
    return KeyBusy(held, allowed) if limit == OWN_JOBS and allowed == new.max_jobs else QueueFull(limit, held, allowed)


def _left(turn: TurnLeft) -> tuple[Argument, ...]:
    """What publish.lua is told of a turn."""
    notices = pack(list(turn.notices)) if turn.notices else b""
    if turn.holding is None:
        return turn.entry, "-" if turn.says_held else "", "", "", "0", turn.reused, notices
    lease_ms = max(1, round(1000 * turn.holding.lease_s))
    shown = pack(asdict(turn.holding))
    return turn.entry, *_place(turn.holding.engine_id), shown, lease_ms, turn.reused, notices


def _place(engine_id: str) -> tuple[str, str]:
    """Where jobs for one engine go, and what says that it takes them."""
    return keys.engine_stream(engine_id), keys.heartbeat(engine_id)


def _accepted(found: list[Any], new: NewJob) -> Accepted:
    kind = found[0].decode()
    match kind:
        case "created" | "replay":
            return Accepted(found[1].decode(), kind == "created")
        case "mismatch":
            raise IdempotencyMismatch(new.idempotency_key or "")
        case "memory":
            raise StoreFull(int(found[1]), int(found[2]))
        case "depth":
            raise full(new, found[1].decode(), int(found[2]), int(found[3]))
        case "image":
            raise UnknownImage(found[1].decode())
        case "session":
            raise UnknownSession(new.session_id)
        case "full":
            raise SessionFull(found[1].decode(), int(found[2]), int(found[3]))
    raise ValueError(f"accept.lua gave {found!r}")
