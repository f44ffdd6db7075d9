"""The sweeper: what time does to jobs. Runs in every gateway, each second; several at once do no harm.

Every action is a compare-and-set script, so the first sweeper to act wins and the others do nothing. It acts on the
wall clock first, then on leases that ended, then on outbox entries that are due.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import redis

from photocall import keys
from photocall.backoff import Backoff
from photocall.errors import JobGone, UnknownJob
from photocall.jobs import JobRecord
from photocall.logs import fields
from photocall.queueing import PrepQueues, WebhookQueue
from photocall.records import Records
from photocall.scripts import run
from photocall.webhooks import claim

log = logging.getLogger(__name__)

FORGET_AGAIN_S = 60.0
GRACE_S = 3.0  # after an outage: by then whoever lives has renewed its leases
PAGE = 200  # jobs of each kind per sweep; the rest is due a second later


@dataclass(frozen=True, slots=True)
class Swept:
    """What one sweep did."""

    expired: int = 0
    requeued: int = 0
    poisoned: int = 0
    cancelled: int = 0
    enqueued: int = 0
    forgotten: int = 0
    delivering: int = 0
    removing: int = 0


class Sweeper:
    """Sweeps over a synchronous client; the gateway calls `sweep` in a thread."""

    def __init__(self, records: Records, queues: PrepQueues, hooks: WebhookQueue | None = None) -> None:
        self._records = records
        self._queues = queues
        self._hooks = hooks  # None: webhooks are off
        self._redis: redis.Redis = records.redis

    def sweep(self, now: float | None = None, end_leases: bool = True) -> Swept:
        """One pass. `now` stands for the server's clock, for tests."""
        at = self._server_time() if now is None else now
        expired = sum(run(self._redis, self._records.operations.expire(r, now)) for r in self._due(keys.DEADLINES, at))
        ended = self._end_leases(at, now) if end_leases else []
        return Swept(
            expired=expired,
            requeued=ended.count("queued"),
            poisoned=ended.count("poison"),
            cancelled=ended.count("cancelled"),
            enqueued=self._enqueue(at, now),
            forgotten=self._forget(at),
            delivering=self._deliver(at),
            removing=self._remove_blobs(at),
        )

    def _end_leases(self, at: float, now: float | None) -> list[str]:
        ended = []
        for record in self._due(keys.LEASES, at):
            what = run(self._redis, self._records.operations.end_lease(record, now))
            if what is not None:
                ended.append(what)
                log.warning("a lease ended", extra=fields(job=record.job_id, stage=record.stage, then=what))
        return ended

    def _enqueue(self, at: float, now: float | None) -> int:
        enqueued = 0
        for job_id in self._due_ids(keys.OUTBOX, at):
            claimed = run(self._redis, self._records.operations.claim_outbox(job_id, now))
            if claimed is None:
                continue
            attempt, lane, due = claimed
            self._queues.enqueue(job_id, attempt, lane)
            run(self._redis, self._records.operations.clear_outbox(job_id, due))
            enqueued += 1
        return enqueued

    def _remove_blobs(self, at: float) -> int:
        """Have prep remove what it made of deleted pictures; asked again until it says that it did."""
        due = self._due_ids(keys.FORGET, at)
        for sha256 in due:
            self._redis.zadd(keys.FORGET, {sha256: at + FORGET_AGAIN_S}, xx=True)
            self._queues.enqueue_aside(keys.FORGET_JOB, sha256)
        return len(due)

    def _deliver(self, at: float) -> int:
        """Enqueue the deliveries of webhooks that are due."""
        if self._hooks is None:
            return 0
        enqueued = 0
        for delivery_id in self._due_ids(keys.WEBHOOKS, at):
            attempt = run(self._redis, claim(delivery_id, at))
            if attempt is not None:
                self._hooks.enqueue(delivery_id, attempt)
                enqueued += 1
        return enqueued

    def _forget(self, at: float) -> int:
        """Index entries of jobs whose time to live has ended."""
        members = self._due_ids(keys.ENDED, at)
        for member in members:
            owner, _, job_id = member.rpartition("/")
            self._redis.zrem(keys.index(owner), job_id)
            self._redis.zrem(keys.ENDED, member)
        return len(members)

    def _due(self, zset: str, at: float) -> Iterator[JobRecord]:
        for job_id in self._due_ids(zset, at):
            try:
                yield self._records.get(job_id)
            except (UnknownJob, JobGone):
                self._redis.zrem(zset, job_id)
            except (ValueError, LookupError, TypeError) as error:  # by a newer process, perhaps; the others go on
                log.error("a record cannot be read: %s", error, extra=fields(job=job_id))

    def _due_ids(self, zset: str, at: float) -> list[str]:
        found = cast(Any, self._redis.zrangebyscore(zset, "-inf", repr(at), start=0, num=PAGE))
        return [member.decode() for member in found]

    def _server_time(self) -> float:
        seconds, microseconds = cast(Any, self._redis.time())
        return float(seconds) + float(microseconds) / 1e6


def run_sweeper(sweeper: Sweeper, stopped: Any, every_s: float = 1.0) -> None:
    """Sweep each second until `stopped` (a threading.Event) is set; Redis being away is waited for.

    Leases that ran out while it was away, or may have before this began to look, are no process's death: nobody could
    renew them. They end a little later, if they are not renewed by then.
    """
    away, wait_s = Backoff(log, "cannot sweep"), every_s
    steady_at = time.monotonic() + GRACE_S
    while not stopped.wait(wait_s):
        wait_s = every_s
        try:
            sweeper.sweep(end_leases=time.monotonic() >= steady_at)
            if away.failing:
                steady_at = time.monotonic() + GRACE_S
            away.succeeded()
        except redis.RedisError as error:
            steady_at = float("inf")
            wait_s = away.failed(error)
