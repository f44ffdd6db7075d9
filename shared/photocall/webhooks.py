"""Webhooks: what is owed to which URL, and how it is signed (Standard Webhooks: webhook-id, -timestamp, -signature).

A delivery is one hash, due by its place in a zset; the script that ends a job, or tells of a batch's end, writes both,
so a delivery is owed exactly when that has happened. It is made at least once: whoever makes it may die after the other
side has heard. HTTP is not known here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from photocall import keys
from photocall.jobs import JobStatus
from photocall.scripts import Call
from photocall.wire import pack, unpack

JOB_EVENTS = tuple(f"job.{status.value}" for status in JobStatus if status.terminal)
BATCH_EVENTS = ("batch.completed", "batch.failed", "batch.expired", "batch.cancelled")
RETRY_S = (5.0, 30.0, 120.0, 600.0, 3600.0, 3 * 3600.0, 6 * 3600.0)  # pauses after the first attempt and the later ones
MAX_RETRY_AFTER_S = 3600.0  # as far as a target's own Retry-After is heard
JITTER = 0.2
ATTEMPT_S = 10.0
KEPT_S = 3 * 86_400  # longer than all pauses together
CLAIM_S = 30.0  # for an enqueued delivery to be begun, or one that was begun to end; then it is due again

State: TypeAlias = Literal["pending", "delivered", "failed"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One line of the delivery log. `status` is None when there was no HTTP answer; `error` then says why."""

    at: float
    ms: float
    status: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Delivery:
    """What is owed: `body` is empty until the first attempt, where it is made from the record of `job_id`."""

    delivery_id: str
    owner: str
    url: str
    event: str
    job_id: str
    body: bytes
    created_at: float
    attempts: int
    state: State
    log: tuple[Attempt, ...]

    @classmethod
    def from_hash(cls, delivery_id: str, raw: Mapping[bytes, bytes]) -> Delivery:
        """Read the hash of a delivery."""
        attempts = int(raw.get(b"attempts", b"0"))
        tries = (raw.get(f"try:{n}".encode()) for n in range(1, attempts + 1))
        state = raw.get(b"state", b"pending").decode()
        return cls(
            delivery_id=delivery_id,
            owner=raw[b"owner"].decode(),
            url=raw[b"url"].decode(),
            event=raw[b"event"].decode(),
            job_id=raw.get(b"job", b"").decode(),
            body=raw.get(b"body", b""),
            created_at=float(raw[b"created_at"]),
            attempts=attempts,
            state="delivered" if state == "delivered" else "failed" if state == "failed" else "pending",
            log=tuple(Attempt(**unpack(packed)) for packed in tries if packed),
        )


def claim(delivery_id: str, now: float) -> Call[int | None]:
    """A due delivery, to be enqueued: the number of the attempt. None: not due any more, or forgotten."""
    args = (delivery_id, repr(now), CLAIM_S)
    return Call("claim_webhook", (keys.webhook(delivery_id), keys.WEBHOOKS), args, _number, job=False)


def begin(delivery_id: str, attempt: int, now: float) -> Call[int | None]:
    """Begin an attempt; None when it was begun before, or is not owed. Should its maker die, it is due again."""
    args = (delivery_id, repr(now), CLAIM_S, attempt)
    return Call("begin_webhook", (keys.webhook(delivery_id), keys.WEBHOOKS), args, _number, job=False)


def end(delivery_id: str, number: int, attempt: Attempt, state: State, due: float) -> Call[bool]:
    """Note an attempt; a pending delivery is due again at `due`."""
    noted = pack({"at": attempt.at, "ms": attempt.ms, "status": attempt.status, "error": attempt.error})
    args = (delivery_id, number, noted, state, repr(due))
    own_keys = (keys.webhook(delivery_id), keys.WEBHOOKS, keys.COUNTERS)
    return Call("end_webhook", own_keys, args, bool, job=False)


def pause_s(attempts: int, retry_after_s: float | None = None) -> float | None:
    """Seconds until the attempt after the `attempts`-th, with jitter; None: that was the last."""
    if attempts > len(RETRY_S):
        return None
    wanted = max(RETRY_S[attempts - 1], min(retry_after_s or 0.0, MAX_RETRY_AFTER_S))
    return wanted * random.uniform(1 - JITTER, 1 + JITTER)


def secret_of(signing_key: bytes, owner: str) -> str:
    """An API key's own secret, in the form that libraries of Standard Webhooks take."""
    return (
        "whsec_" + base64.b64encode(hmac.digest(signing_key, b"webhook secret of " + owner.encode(), "sha256")).decode()
    )


def signature(secret: str, delivery_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{delivery_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


def _number(found: Any) -> int | None:
    return None if found is None else int(found)
