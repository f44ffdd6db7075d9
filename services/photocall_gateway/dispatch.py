"""From a checked request to an accepted job on its way: pictures, record, queue.

Pictures are durable before the record names them, the record and its outbox entry are one write, and the queue comes
last: whatever dies in between, the job is either not accepted or runs.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from redis.exceptions import RedisError
from starlette.background import BackgroundTasks

from photocall import failpoints, tracing
from photocall.calibrations import AsyncCalibrations
from photocall.errors import CodedError, KeyBusy, QueueFull, StoreFull, UnknownCalibration
from photocall.images import AsyncImageStore
from photocall.invalid import Loc
from photocall.jobs import Accepted, NewJob, Webhook
from photocall.key_limits import KeyLimits
from photocall.keys import Lane
from photocall.logs import fields
from photocall.recalibration import Recalibration
from photocall.records import AsyncRecords
from photocall.wire import pack
from photocall_gateway.load import Load
from photocall_gateway.metrics import Metrics
from photocall_gateway.models import ModelNames
from photocall_gateway.parsing import ParsedRequest, with_calibration
from photocall_gateway.problems import RETRY_AFTER_S

BEHIND_S = 30.0  # an entry of the queue is worked on by then, or was lost

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TurnOf:
    """What makes a request a turn: its session, the pictures of the transcript, and whether it stays in there."""

    session_id: str
    images: tuple[str, ...]
    remember: bool


class PrepQueue(Protocol):
    """Where prep takes its work from; blocking, so it is called in a thread."""

    def enqueue(self, job_id: str, attempt: int, lane: Lane, *more: str) -> object: ...


class Dispatcher:
    """Accepts requests."""

    def __init__(
        self,
        records: AsyncRecords,
        images: AsyncImageStore,
        queue: PrepQueue,
        models: ModelNames,
        load: Load,
        metrics: Metrics,
        limits_of: Callable[[str], KeyLimits],
        calibrations: AsyncCalibrations,
    ) -> None:
        self._records = records
        self._images = images
        self._queue = queue
        self._models = models
        self._load = load
        self._metrics = metrics
        self._limits_of = limits_of
        self._calibrations = calibrations

    def max_jobs_of(self, owner: str) -> int:
        """Unfinished jobs that an owner may have."""
        most = self._records.operations.policy.max_jobs_per_owner
        return min(most, self._limits_of(owner).concurrency or most)

    def check_model(self, request: ParsedRequest) -> None:
        """Raises CodedError `unknown_model`, before anything is stored."""
        self._models.check(request.ask.model)

    async def calibration(self, owner: str, name: str, loc: Loc = ("calibration",)) -> Recalibration:
        """A stored one that a request names at `loc`. Raises UnknownCalibration."""
        try:
            return await self._calibrations.use(owner, name)
        except UnknownCalibration as error:
            error.data["loc"] = list(loc)
            raise

    async def calibrated(self, request: ParsedRequest, owner: str) -> ParsedRequest:
        """With the calibration that it names in its ask: from here on nothing can take it away.

        Raises UnknownCalibration.
        """
        if request.calibration_id is None:
            return request
        return with_calibration(request, await self.calibration(owner, request.calibration_id))

    async def accept(
        self,
        request: ParsedRequest,
        *,
        owner: str,
        shape: str,
        priority: Lane,
        deadline_s: float,
        idempotency_key: str | None = None,
        metadata: dict[str, str] | None = None,
        after_response: BackgroundTasks | None = None,
        webhook: Webhook | None = None,
        turn: TurnOf | None = None,
        row: bool = False,
    ) -> Accepted:
        """Keep a request. When this returns, its job ends in an answer or a clear error.

        The queue follows at once, or with `after_response` when the caller has its answer already. For a `row` of a
        batch it is left to `enqueue_together`, and its pictures are kept no longer than its job.
        Raises IdempotencyMismatch, UnknownImage, UnknownCalibration, QueueFull, KeyBusy and StoreFull with a time to
        come back, UnknownSession, SessionFull, or Redis' errors: then no job was accepted.
        """
        try:
            request = await self.calibrated(request, owner)
        except UnknownCalibration:  # a job of before, under this key, has it in its ask
            known = await self._records.replayed(owner, idempotency_key, request.hash)
            if known is None:
                raise
            return known
        now = time.time()
        own = request.ask.images
        ask = pack(request.ask.to_content())
        new = NewJob(
            job_id=f"job_{secrets.token_hex(12)}",
            owner=owner,
            shape=shape,
            ask=ask,
            images=own if turn is None else tuple(dict.fromkeys((*turn.images, *own))),
            priority=priority,
            created_at=now,
            deadline_at=now + deadline_s,
            request_hash=request.hash,
            idempotency_key=idempotency_key,
            metadata=metadata or {},
            view=request.view,
            # What is kept, not what came: a compressed body may become a thousand times its size.
            body_bytes=len(ask) + sum(map(len, request.images.values())),
            session_id=turn.session_id if turn else "",
            remember=turn.remember if turn else True,
            webhook=webhook,
            max_jobs=self._limits_of(owner).concurrency,
            keeps_ask=request.ask.provenance and turn is None,
            to_prepare=bool(request.ask.assets),
            traceparent=tracing.current(),
        )
        try:
            if request.images:
                stored = [sha256 for sha256 in own if sha256 not in request.images]
                await self._records.check_room(new, stored)
            for sha256, data in request.images.items():
                await self._images.put(sha256, data, owner, brief=row)
            if not row:
                failpoints.reach("gateway.store")
            accepted = await self._records.accept(new)
        except (QueueFull, StoreFull) as error:
            error.data[RETRY_AFTER_S] = await self._load.retry_after_s()
            raise
        except KeyBusy as error:
            depth = await self._records.depth()
            share = max(1, depth.get(f"jobs:{owner}", 0)) / max(1, depth.get("jobs", 0))
            error.data[RETRY_AFTER_S] = await self._load.key_retry_after_s(min(1.0, share))
            raise
        if accepted.created:
            self._metrics.accepted.labels(shape, priority).inc()
            if row:
                return accepted
            failpoints.reach("gateway.accept")
            if new.to_prepare and after_response is not None:
                after_response.add_task(self._enqueue, new)
            elif new.to_prepare:
                await self._enqueue(new)
        return accepted

    async def enqueue_together(self, job_ids: Sequence[str]) -> None:
        """One queue entry for several jobs of the batch lane; what is lost of it comes back from the outbox."""
        first, *more = job_ids
        try:
            if more:
                await self._records.postpone(more, time.time() + BEHIND_S)
            await asyncio.to_thread(self._queue.enqueue, first, 1, "batch", *more)
            await self._records.clear_outbox(first)
        except (RedisError, OSError) as error:
            log.warning("not enqueued, left to the sweeper: %s", error, extra=fields(job=first, more=len(more)))

    async def _enqueue(self, new: NewJob) -> None:
        """The sweeper does the same from the outbox two seconds later, so a failure here is no failure of the job."""
        failpoints.reach("gateway.enqueue")
        try:
            await asyncio.to_thread(self._queue.enqueue, new.job_id, 1, new.priority)
            failpoints.reach("gateway.enqueued")
            await self._records.clear_outbox(new.job_id)
        except (RedisError, OSError) as error:
            log.warning("not enqueued, left to the sweeper: %s", error, extra=fields(job=new.job_id))


def late_failure(error: dict[str, object] | None) -> CodedError:
    """The error of an ended job, to be raised to a caller that waited for its answer."""
    found = dict(error or {})
    code = str(found.pop("code", "internal"))
    message = str(found.pop("message", "Internal error"))
    return CodedError(code, message, **found)
