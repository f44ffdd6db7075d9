"""The audit: what must be true once everybody has their answer. Redis, the blob directory and the state directory are
listed whole: whatever has neither an owner that is known here nor a time to live is left over."""

from __future__ import annotations

import fnmatch
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import redis

from ops.chaos.callers import Caller
from ops.chaos.witness import Witness
from photocall import keys
from photocall.messages import Message, StreamText
from photocall.records import Records
from photocall.wire import Wire

SETTLE_S = 30.0  # a sweep, a heartbeat, RQ's own maintenance do not come at once
# What there is while nobody asks for anything.
STANDING = (
    keys.COUNTERS, keys.CONTROL, keys.ENGINES, keys.INBOXES, keys.DEAD, keys.BATCH_PACE, keys.ENDED,
    keys.sessions("*"),  # names, as many as an owner may have; those that are gone go with the next
    keys.engine_stream("*"), keys.control("*"), keys.heartbeat("*"),
    "rq:queues", "rq:workers*", "rq:worker:*", "rq:clean_registries:*", "rq:execution*",
)  # fmt: skip
EMPTY = (keys.OUTBOX, keys.LEASES, keys.DEADLINES, keys.DEPTH, keys.WEBHOOKS, keys.FORGET)


class Audit:
    """Reads the Redis of a world directly; `left` deletes through the API what callers would leave to its TTL."""

    def __init__(
        self,
        client: redis.Redis,
        wire: Wire,
        caller: Caller,
        witness: Witness,
        blobs: Path | None,
        kept: frozenset[str],
    ) -> None:
        """`kept`: pictures of which prepared ones may stay for their time: a batch's rows leave them to it."""
        self._redis = client
        self._wire = wire
        self._caller = caller
        self._witness = witness
        self._blobs = blobs
        self._kept = kept

    def outcomes(self) -> Iterator[str]:
        """Accepted jobs without exactly one outcome, also those whose caller never heard of them."""
        records = Records(self._redis, self._wire)
        for job_id, end in self._witness.jobs.items():
            if not end:
                yield f"{job_id}: no end was seen"
        for raw in cast(Any, self._redis.scan_iter(keys.job("*"), count=1000)):
            job_id = raw.decode().removeprefix(keys.job(""))
            record = records.get(job_id)
            if not record.status.terminal:
                yield f"{job_id} has not ended: {record.status}"
                continue
            events = self._events(job_id)
            ends = [event.msg_type for event in events if event.msg_type in ("result", "error")]
            if len(ends) != 1:
                yield f"{job_id} has {len(ends)} ends among its events: {ends}"
            yield from self._texts(job_id, events, record.result or {})

    def _texts(self, job_id: str, events: list[Message], result: dict[str, Any]) -> Iterator[str]:
        """What was streamed of a text is the text."""
        for name, answer in result.get("answers", {}).items():
            if "text" in answer:
                sent = "".join(e.text for e in events if isinstance(e, StreamText) and e.question == name)
                if sent != answer["text"]:
                    yield f"{job_id} streamed {sent!r} and answered {answer['text']!r}"

    def _events(self, job_id: str) -> list[Message]:
        entries = cast(Any, self._redis.xrange(keys.events(job_id)))
        return [self._wire.decode(values[b"m"]).message for _, values in entries]

    def unfinished(self) -> Iterator[str]:
        """Work that somebody still holds, or that waits, though nobody asks for anything any more."""
        for name in EMPTY:
            if self._redis.exists(name):
                yield f"{name} is not empty"
        for lane in keys.LANES:
            stream = keys.engine_stream(lane)
            if self._redis.exists(stream):
                pending = cast(Any, self._redis.xpending(stream, keys.ENGINE_GROUP))["pending"]
                if entries := self._redis.xlen(stream):
                    yield f"{stream} has {entries} entries, {pending} of them pending"
        for queue in keys.PREP_QUEUE.values():
            for name in (f"rq:queue:{queue}", f"rq:queue:{queue}:intermediate"):
                if length := self._redis.llen(name):
                    yield f"{name} has {length} entries"
        for raw in cast(Any, self._redis.scan_iter("rq:job:*", count=1000)):
            if self._redis.ttl(raw) == -1:
                yield f"{raw.decode()} is left over"
        for raw in cast(Any, self._redis.scan_iter("rq:wip:*", count=1000)):
            yield f"{raw.decode()} is left over"

    def delete_all(self) -> None:
        """Every job, session, file, batch and calibration that there is, through the API."""
        made = {"batches": (200, 204), "files": (200,), "sessions": (204,), "calibrations": (204,), "jobs": (204,)}
        for what, statuses in made.items():
            while found := self._caller.expect((200,), "GET", f"/v1/{what}?limit=100")["data"]:
                for item in found:
                    self._caller.expect((*statuses, 404, 410), "DELETE", f"/v1/{what}/{item['id']}")

    def left(self) -> Iterator[str]:
        """Keys and blobs that are there though everything has been deleted."""
        for raw in cast(Any, self._redis.scan_iter("*", count=1000)):
            name = raw.decode()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in STANDING):
                continue
            if self._redis.ttl(name) == -1:
                yield f"{name} has neither owner nor time to live"
        for raw in cast(Any, self._redis.scan_iter(keys.image("*"), count=1000)):
            refs = self._redis.hget(raw.decode(), "refs")
            if refs != b"0":
                yield f"{raw.decode()} has {refs!r} references and no job"
        for blob in self._blobs.glob("[!.]*") if self._blobs else ():
            if blob.name.partition("-")[0] not in self._kept:
                yield f"blob {blob.name} is left over"


def settled(look: Callable[[], Iterator[str]], poll: Callable[[], None], within_s: float = SETTLE_S) -> list[str]:
    """What a look still finds after a while; looks again until it finds nothing."""
    until = time.monotonic() + within_s
    while (found := list(look())) and time.monotonic() < until:
        poll()
        time.sleep(0.25)
    return found
