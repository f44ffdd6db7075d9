"""Every Redis key, stream, group and channel of the project, as a function or a constant; PROTOCOL.md lists them."""

from __future__ import annotations

import hashlib
import re
from typing import Literal, TypeAlias

Lane: TypeAlias = Literal["interactive", "batch"]
LANES: tuple[Lane, ...] = ("interactive", "batch")

PREFIX = "photocall:"

OUTBOX = PREFIX + "outbox"  # zset: job id by the time from which the sweeper enqueues it
LEASES = PREFIX + "leases"  # zset: job id by the end of its lease
DEADLINES = PREFIX + "deadlines"  # zset: unfinished job id by its wall clock
ENDED = PREFIX + "ended"  # zset: "<owner>/<job id>" of finished jobs by the end of their time to live
DEPTH = PREFIX + "depth"  # hash: unfinished jobs and the bytes kept for them, in total and by owner
WEBHOOKS = PREFIX + "webhooks"  # zset: delivery id by the time from which it is due
FORGET = PREFIX + "forget"  # zset: hash of a deleted picture by the time from which its patch blobs are removed
COUNTERS = PREFIX + "counters"  # hash: refused and dead-lettered messages, poison, sweeps
WAKE = PREFIX + "wake"  # channel: ids of jobs that changed; only a hint
CONTROL = PREFIX + "control"  # stream: interrupt_request and shutdown_request for every engine
ENGINES = PREFIX + "engines"  # zset: engine id by its last heartbeat
BATCH_PACE = PREFIX + "batch-pace"  # string with a TTL: what rows of batches cost of late, for estimates
BLOBS_UNSWEPT = PREFIX + "blobs-unswept"  # number with a TTL, on the blob Redis: bytes put since its last sweep
DEAD = PREFIX + "dead"  # stream: dead letters, with the reason and where they came from
INBOXES = PREFIX + "inboxes"  # set: engines that have, or had, a stream of their own
ENGINE_GROUP = "engine"  # consumer group of the engine streams

PREP_QUEUE: dict[Lane, str] = {"interactive": "prep", "batch": "prep-batch"}  # RQ queue of each lane
PREPARE_JOB = "photocall_prep.jobs.prepare"
SHOW_JOB = "photocall_prep.show.show"
FORGET_JOB = "photocall_prep.show.forget"
PREP_JOBS = (PREPARE_JOB, SHOW_JOB, FORGET_JOB)
WEBHOOK_QUEUE = "webhooks"  # RQ queue of due deliveries
DELIVER_JOB = "photocall_gateway.courier.deliver"  # the only function that an entry of this one may name


_ATTEMPT = re.compile(r"prep-(?P<job>.+)-\d+")  # `rq_id`


def job(job_id: str) -> str:
    """Hash: the job record."""
    return f"{PREFIX}job:{job_id}"


def events(job_id: str) -> str:
    """Capped stream: the job's events."""
    return f"{PREFIX}events:{job_id}"


def tombstone(job_id: str) -> str:
    """String: the job was here (410 for its owner, who is named in it), kept past the record."""
    return f"{PREFIX}gone:{job_id}"


def idempotency(owner: str, idempotency_key: str) -> str:
    """Hash: job id and request hash under a caller's idempotency key."""
    return f"{PREFIX}idempotency:{owner}:{hashlib.sha256(idempotency_key.encode()).hexdigest()}"


def uploading(owner: str, idempotency_key: str) -> str:
    """String with a TTL: the first body under a caller's idempotency key is being read."""
    return f"{PREFIX}uploading:{owner}:{hashlib.sha256(idempotency_key.encode()).hexdigest()}"


def bound(owner: str, idempotency_key: str) -> str:
    """String with a TTL: the request hash that a synchronous caller's idempotency key stands for, or a batch's."""
    return f"{PREFIX}bound:{owner}:{hashlib.sha256(idempotency_key.encode()).hexdigest()}"


def bucket(owner: str) -> str:
    """String with a TTL: when the bucket that a limited key's calls take from will be full again."""
    return f"{PREFIX}bucket:{owner}"


def key_used(owner: str) -> str:
    """String with a TTL: when the key was last used, a minute exact."""
    return f"{PREFIX}key-used:{owner}"


def asked(job_id: str) -> str:
    """String with a TTL: a synchronous caller waits for the job, or did a moment ago."""
    return f"{PREFIX}asked:{job_id}"


def batch(batch_id: str) -> str:
    """Hash: the fence of a running batch, until when its gateway holds it, and why it pauses."""
    return f"{PREFIX}batch:{batch_id}"


def batch_events(batch_id: str) -> str:
    """Capped stream: the batch's events."""
    return f"{batch(batch_id)}:events"


def index(owner: str) -> str:
    """Zset: the owner's job ids by creation time."""
    return f"{PREFIX}index:{owner}"


def image(sha256: str) -> str:
    """Hash: a source picture's bytes (`data`), its references (`refs`) and who uploaded it (`owner:<id>`)."""
    return f"{PREFIX}image:{sha256}"


def shown(sha256: str) -> str:
    """Hash with a TTL: what the model sees of a picture, and the report, by view; also a name on the wake channel."""
    return f"{PREFIX}shown:{sha256}"


def shown_field(kind: str, view: str) -> str:
    """Field of that hash: "png", "report" or "error" of one view; "made" says which view came before which."""
    return f"{kind}?{view}" if view else kind


def webhook(delivery_id: str) -> str:
    """Hash: a delivery that is owed to a URL, and its log. A job's delivery has the job's id."""
    return f"{PREFIX}webhook:{delivery_id}"


def engine_stream(lane: str) -> str:
    """Stream: jobs an engine can take, of a lane, or, where it is the id of an engine, those it has a prefix of."""
    return f"{PREFIX}engine:{lane}"


def session(session_id: str) -> str:
    """Hash: a session. Scripts make the other keys of a session from this one."""
    return f"{PREFIX}session:{session_id}"


def session_line(session_id: str) -> str:
    """List: the session's unfinished turns, in order."""
    return f"{session(session_id)}:line"


def session_transcript(session_id: str) -> str:
    """List: its answered turns."""
    return f"{session(session_id)}:transcript"


def session_events(session_id: str) -> str:
    """Capped stream: the events of all its turns."""
    return f"{session(session_id)}:events"


def session_notices(session_id: str) -> str:
    """List: what its turns had to say about how they ran, the first and the last ones."""
    return f"{session(session_id)}:notices"


def session_held(session_id: str) -> str:
    """Hash with a TTL: which engine holds the session's prefix, and how much of it."""
    return f"{session(session_id)}:held"


def near(blob_key: str) -> str:
    """Hash with a TTL: which engine answered of late about a picture as the model sees it."""
    return f"{PREFIX}near:{blob_key}"


def sessions(owner: str) -> str:
    """Zset: the owner's session ids by creation time; some may be gone."""
    return f"{PREFIX}sessions:{owner}"


def calibration(owner: str, calibration_id: str) -> str:
    """Hash with a TTL, which every use begins anew: a stored calibration."""
    return f"{PREFIX}calibration:{owner}:{calibration_id}"


def calibrations(owner: str) -> str:
    """Zset with a TTL no shorter than any of theirs: the owner's calibrations by creation time; some may be gone."""
    return f"{PREFIX}calibrations:{owner}"


def control(engine_id: str) -> str:
    """Stream: control messages for one engine."""
    return f"{PREFIX}control:{engine_id}"


def heartbeat(engine_id: str) -> str:
    """String with a TTL: the engine's last signed heartbeat."""
    return f"{PREFIX}heartbeat:{engine_id}"


def blob_key(sha256: str, shown: str, processor_hash: str) -> str:
    """Name of a patch blob: the picture, how it is shown (budget, fidelity), and the checkpoint's picture settings."""
    return f"{sha256}-{shown}-{processor_hash}"


def blob(name: str) -> str:
    """String with a TTL on the blob Redis: a patch blob."""
    return f"{PREFIX}blob:{name}"


def rq_id(job_id: str, attempt: int) -> str:
    """Id of the RQ job that prepares one attempt."""
    return f"prep-{job_id}-{attempt}"


def job_of_ended(member: bytes) -> str:
    """The id in a member of ENDED."""
    return member.decode().rpartition("/")[2]


def job_of_rq_id(entry_id: str) -> str | None:
    """The job whose attempt an RQ job of this id prepares; None for work that is no attempt's."""
    found = _ATTEMPT.fullmatch(entry_id)
    return found["job"] if found else None


def webhook_rq_id(delivery_id: str, attempt: int) -> str:
    """Id of the RQ job that makes one attempt of a delivery."""
    return f"webhook-{delivery_id}-{attempt}"
