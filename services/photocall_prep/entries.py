"""Entries: the prep queues as a worker sees them. What is taken stays on a list of its lane until it has been run.

RQ's own bookkeeping of a run (executions, registries, statistics, states) is a dozen round trips; all of it is said
already by the job's record and its lease. So an entry is RQ's as long as it waits, and here two lists and a hash. What
a dead worker left on its lane's list goes to the outbox, whose sweeper enqueues it again if the job still needs it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import redis
from rq import Queue
from rq.exceptions import NoSuchJobError
from rq.intermediate_queue import IntermediateQueue
from rq.job import Job

from photocall.errors import PhotocallError
from photocall.keys import OUTBOX, PREPARE_JOB, job_of_rq_id
from photocall.logs import fields
from photocall.queueing import PrepareJob
from photocall.scripts import Call, run

log = logging.getLogger(__name__)

RECOVER_S = 5.0  # an entry seen on a list of taken ones for so long was left by a dead worker, or has a lease by now
FORGET_S = 60


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry that was taken: its job, verified, and its lane's number, from 1."""

    job: Job
    lane: int


class Entries:
    """The lanes' queues, the most urgent first, over one connection."""

    def __init__(self, client: redis.Redis, queues: Sequence[Queue]) -> None:
        self._redis = client
        self._queues = queues
        self._lists = [(queue.key, IntermediateQueue.get_intermediate_queue_key(queue.key)) for queue in queues]
        self._keys = tuple(key for pair in self._lists for key in pair)
        self._ran: Entry | None = None  # dropped with the next round trip
        self._first_seen: dict[str, float] = {}  # entries on the lists of taken ones, by when they were seen first here
        self._recovered_at = float("-inf")

    def take(self, block_s: float = 0.0) -> Entry | None:
        """The oldest entry of the first lane that has one; after `block_s` in which the first lane had none, None."""
        while taken := self._take_oldest():
            if found := self._read(*taken):
                return found
        if not block_s:
            return None
        waiting, mine = self._lists[0]
        raw = self._redis.blmove(waiting, mine, cast(int, block_s), "LEFT", "RIGHT")
        if raw is None:
            return None
        entry_id = _text(raw)
        return self._read(1, entry_id, cast(Any, self._redis.hgetall(PrepareJob.key_for(entry_id))))

    def ran(self, entry: Entry) -> None:
        """It has been run. The next `take` drops it, in the same round trip, or else `close`."""
        self._ran = entry

    def close(self) -> None:
        """Nothing more is taken."""
        if self._ran is not None:
            with self._redis.pipeline() as pipe:
                pipe.lrem(self._lists[self._ran.lane - 1][1], 1, self._ran.job.id)
                pipe.delete(self._ran.job.key)
                pipe.execute()
            self._ran = None

    def give_back(self, entry_id: str, lane: int) -> None:
        """Leave it to the outbox whether the job is enqueued again: its sweeper looks at the record, this does not."""
        job_id = job_of_rq_id(entry_id)
        with self._redis.pipeline() as pipe:
            if job_id is not None:
                pipe.zadd(OUTBOX, {job_id: time.time()}, nx=True)
            pipe.expire(PrepareJob.key_for(entry_id), FORGET_S)  # a slow worker may be at it yet
            pipe.lrem(self._lists[lane - 1][1], 1, entry_id)
            pipe.execute()

    def recover(self) -> None:
        """Give back what stays taken. An entry in a live worker's hands has a lease by then."""
        now = time.monotonic()
        if now - self._recovered_at < RECOVER_S / 2:
            return
        self._recovered_at = now
        seen: dict[str, float] = {}
        for lane, (_, mine) in enumerate(self._lists, 1):
            for raw in cast("list[bytes]", self._redis.lrange(mine, 0, -1)):
                entry_id = _text(raw)
                if self._ran is not None and self._ran.job.id == entry_id:
                    continue
                seen[entry_id] = self._first_seen.get(entry_id, now)
                if now - seen[entry_id] >= RECOVER_S:
                    log.info("an entry left by another worker", extra=_about(entry_id))
                    self.give_back(entry_id, lane)
        self._first_seen = seen

    def _take_oldest(self) -> tuple[int, str, dict[bytes, bytes]] | None:
        ran = self._ran
        arguments = (PrepareJob.redis_job_namespace_prefix, ran.lane if ran else 0, ran.job.id if ran else "")
        taken = run(self._redis, Call("take_entry", self._keys, arguments, _taken, job=False))
        self._ran = None
        return taken

    def _read(self, lane: int, entry_id: str, found: dict[bytes, bytes]) -> Entry | None:
        """The job of an entry; None for one that may not or cannot be run."""
        try:
            job = PrepareJob(entry_id, connection=self._redis, serializer=self._queues[lane - 1].serializer)
            job.restore_work(found)
            _ = job.func  # verifies and decodes: refused here, before anything is run
            if job.func_name != PREPARE_JOB:
                self._redis.persist(job.key)  # what may run out while it waits must not while it runs
        except (NoSuchJobError, PhotocallError, ValueError, TypeError, LookupError) as error:
            log.warning("an entry is not run: %s", error, extra=_about(entry_id))
            self.give_back(entry_id, lane)
            return None
        return Entry(job, lane)


def _about(entry_id: str) -> dict[str, Any]:
    """The entry, and the job that it prepares, for the log."""
    job_id = job_of_rq_id(entry_id)
    return fields(entry=entry_id, **({"job": job_id} if job_id else {}))


def _taken(found: Any) -> tuple[int, str, dict[bytes, bytes]] | None:
    if not found:
        return None
    lane, entry_id, pairs = found
    return int(lane), _text(entry_id), dict(zip(pairs[::2], pairs[1::2], strict=True))


def _text(raw: Any) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw)
