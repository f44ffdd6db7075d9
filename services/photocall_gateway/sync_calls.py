"""Synchronous calls: equal ones share a job, and a job that every caller has left is given up.

Clients of this shape give up after 10 s and send the same request again while the first still runs. So a request
joins an equal one of the same caller that is in flight or has just been answered, and work is only given up when
nobody has asked for it for a while. Who asks is noted in Redis: the second try may reach another gateway.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from redis.exceptions import RedisError

from photocall import keys
from photocall.errors import CodedError, IdempotencyMismatch, JobGone, UnknownJob
from photocall.jobs import JobRecord, JobStatus
from photocall.logs import fields
from photocall.records import AsyncRecords
from photocall_gateway.admission import Admission
from photocall_gateway.dispatch import Dispatcher, late_failure
from photocall_gateway.load import Load
from photocall_gateway.metrics import Metrics
from photocall_gateway.parsing import ParsedRequest
from photocall_gateway.problems import RETRY_AFTER_S
from photocall_gateway.tasks import stop
from photocall_gateway.waiting import WakeReader, ended, wait_for

log = logging.getLogger(__name__)

ABANDONED_AFTER_S = 8.0  # longer than a client's pause between two tries
REUSE_S = 60.0  # an answer is kept so long for a client that asks again
DEADLINE_S = 60.0  # longer than a client tries in all
_NOTE_EVERY_S = 2.0
# Ends that say nothing about the request itself: asking again may do better.
_PASSING = frozenset({"cancelled", "abandoned", "deadline_exceeded", "poison", "internal", "image_lost"})


@dataclass(frozen=True, slots=True)
class Queue:
    """What a new job would wait for, and how long it may."""

    admission: Admission
    load: Load
    longest_s: float


@dataclass(slots=True)
class _Asking:
    """One caller that waits; `answered` is set by `SyncCalls.answer`."""

    answered: bool = False


class SyncCalls:
    """Answers requests while their callers wait."""

    def __init__(
        self,
        records: AsyncRecords,
        dispatcher: Dispatcher,
        wakes: WakeReader,
        metrics: Metrics,
        queue: Queue,
        abandoned_after_s: float = ABANDONED_AFTER_S,
    ) -> None:
        self._records = records
        self._dispatcher = dispatcher
        self._wakes = wakes
        self._metrics = metrics
        self._queue = queue
        self._abandoned_after_s = abandoned_after_s
        self._watchers: set[asyncio.Task[None]] = set()

    async def answer(
        self, request: ParsedRequest, *, shape: str, owner: str, wait_s: float, key: str | None = None
    ) -> JobRecord:
        """The record of the succeeded job. Raises the job's error, or `overloaded` when `wait_s` was not enough.

        An idempotency `key` stands for one body for as long as a finished job is kept: with another one it raises
        IdempotencyMismatch. Equal bodies share a job whatever their keys.
        """
        if key is not None:
            await self.bind(owner, shape, key, request.hash)
        request = await self._dispatcher.calibrated(request, owner)  # one that is gone is so for who would join, too
        job_id, record = await self._job(request, shape, owner)
        if record is None or not record.status.terminal:
            async with self._asking(job_id) as asking:
                record = await wait_for(self._records.look, self._wakes, job_id, ended, wait_s)
                asking.answered = record.status.terminal
        if record.status is JobStatus.SUCCEEDED:
            return record
        if record.status.terminal:
            raise late_failure(record.error)
        raise CodedError("overloaded", f"Not answered within {wait_s:.1f} s; asking again joins the work in progress")

    async def bind(self, owner: str, shape: str, key: str, request_hash: str) -> None:
        """Let a key stand for a body. Raises IdempotencyMismatch where it stands for another one."""
        name, ttl_s = keys.bound(owner, f"{shape}:{key}"), self._records.operations.policy.job_ttl_s
        if await self._records.redis.set(name, request_hash, nx=True, ex=ttl_s):
            return
        known = await self._records.redis.get(name)
        if known is not None and known != request_hash.encode():
            raise IdempotencyMismatch(key)

    async def _job(self, request: ParsedRequest, shape: str, owner: str) -> tuple[str, JobRecord | None]:
        """The job that answers this request: an equal one with its record where that is of use, else a new one."""
        key = f"join:{request.hash}"
        await self._check_queue(owner, key)
        while True:
            accepted = await self._dispatcher.accept(
                request,
                owner=owner,
                shape=shape,
                priority="interactive",
                deadline_s=DEADLINE_S,
                idempotency_key=key,
            )
            if accepted.created:
                return accepted.job_id, None
            with suppress(JobGone, UnknownJob):
                record = await self._records.get(accepted.job_id)
                if _useful(record):
                    self._metrics.joined.inc()
                    return accepted.job_id, record
                if record.status is JobStatus.SUCCEEDED and record.keeps_ask:  # its answer names it: to be replayed
                    await self._records.unjoin(record)
                else:
                    await self._records.delete(accepted.job_id)
            await self._check_queue(owner, key)  # an answer of before is of no use: this one adds work after all

    async def _check_queue(self, owner: str, key: str) -> None:
        """Raises `overloaded` for a new job that would wait too long; one that joins another adds no work."""
        queue = self._queue
        wait_s = await queue.admission.wait_s(time.time() + DEADLINE_S)
        if wait_s <= queue.longest_s or await self._records.redis.exists(keys.idempotency(owner, key)):
            return
        message = f"Calls before this one take about {wait_s:.1f} s, and {queue.longest_s:g} s are allowed"
        raise CodedError("overloaded", message, **{RETRY_AFTER_S: await queue.load.retry_after_s()})

    @asynccontextmanager
    async def _asking(self, job_id: str) -> AsyncIterator[_Asking]:
        """Notes for as long as it is open, and a while longer, that somebody wants this job."""
        asking = _Asking()
        noting = asyncio.create_task(self._keep_noting(job_id))
        try:
            yield asking
        finally:
            await stop(noting)
            if not asking.answered:  # the time was over, or the caller left
                watcher = asyncio.create_task(self._give_up_unless_asked(job_id))
                self._watchers.add(watcher)
                watcher.add_done_callback(self._watchers.discard)

    async def _note(self, job_id: str) -> None:
        await self._records.redis.set(keys.asked(job_id), b"1", px=int(self._abandoned_after_s * 1000))

    async def _keep_noting(self, job_id: str) -> None:
        while True:
            with suppress(RedisError, OSError):
                await self._note(job_id)
            await asyncio.sleep(min(_NOTE_EVERY_S, self._abandoned_after_s / 4))

    async def _give_up_unless_asked(self, job_id: str) -> None:
        try:
            await self._note(job_id)
            await asyncio.sleep(self._abandoned_after_s + 0.05)
            if await self._records.redis.exists(keys.asked(job_id)):
                return  # somebody came back
            if not (await self._records.get(job_id)).status.terminal:
                await self._records.cancel(job_id)
                log.info("given up, nobody waits for it", extra=fields(job=job_id))
        except (JobGone, UnknownJob):
            return
        except (RedisError, OSError) as error:
            log.warning("could not look after an abandoned job: %s", error, extra=fields(job=job_id))

    async def close(self) -> None:
        """Stop looking after abandoned jobs; they run to their end."""
        for watcher in tuple(self._watchers):
            await stop(watcher)


def _useful(record: JobRecord) -> bool:
    """Whether a request that equals this job's is answered by it."""
    if not record.status.terminal:
        return record.status is not JobStatus.CANCELLING
    if time.time() - record.completed_at > REUSE_S:
        return False
    return record.status is JobStatus.SUCCEEDED or (
        record.status is JobStatus.FAILED and (record.error or {}).get("code") not in _PASSING
    )
