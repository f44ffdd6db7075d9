"""BatchRunner: answers the rows of one batch: feed, settle, write, until none is left.

A row is a job of the batch lane under a key of its own, so a gateway that takes a batch over finds the jobs of the one
before it and asks for nothing twice. A few rows are in flight, whatever the size of the batch; a full queue, store or
disk is waited out.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from redis.exceptions import RedisError

from photocall import failpoints, keys
from photocall.errors import CodedError, JobGone, PhotocallError, QueueFull, StoreFull, UnknownJob
from photocall.jobs import JobRecord, JobStatus
from photocall.logs import fields
from photocall.questions import InvalidField
from photocall.records import AsyncRecords
from photocall_gateway.batches import row_shapes
from photocall_gateway.batches.batch import Batch, BatchError, BatchStatus
from photocall_gateway.batches.inputs import Input
from photocall_gateway.batches.leases import RENEW_S, BatchLeases
from photocall_gateway.batches.ledger import FenceLost, Ledger, Line, Row
from photocall_gateway.batches.pace import Pace
from photocall_gateway.batches.row_shapes import Asked
from photocall_gateway.batches.validation import Validation
from photocall_gateway.batches.window import Window
from photocall_gateway.body import Limits
from photocall_gateway.dispatch import Dispatcher
from photocall_gateway.load import RATE_WINDOW_S
from photocall_gateway.models import ModelNames
from photocall_gateway.tasks import stop
from photocall_gateway.waiting import WakeReader

log = logging.getLogger(__name__)
T = TypeVar("T")

CHUNK_ROWS = 32  # read and parsed at once
CHUNK_BYTES = 8 << 20  # as much of it at once, but for a single larger row
FLIGHT_BYTES = 64 << 20  # of rows in flight: what Redis keeps of them
MICRO_BATCH = 16  # jobs to one queue entry: what RQ costs is paid once for all of them
COPY_ROWS = 500  # lines written at once for equal rows, or for those that are not run
LOOK_S = 0.5  # between looks at the batch's own state
REREAD_S = 5.0  # a lost wake-up costs no more
PAUSE_S = 0.5
DISK_PAUSE_S = 2.0
PACE_S = 2.0
MAX_TRIES = 3  # of a row whose job vanished from Redis


@dataclass(frozen=True, slots=True)
class Parts:
    """What a runner works with."""

    records: AsyncRecords
    dispatcher: Dispatcher
    wakes: WakeReader
    leases: BatchLeases
    pace: Pace
    models: ModelNames
    limits: Limits
    max_in_flight: int
    max_rows: int


@dataclass(slots=True)
class _Flight:
    """A row that is a job."""

    row: Row
    tries: int
    bytes: int
    chars: int
    pictures: int


class _Woken:
    """Tells the runner which job may have changed."""

    def __init__(self, job_id: str, jobs: set[str], event: asyncio.Event) -> None:
        self._job_id, self._jobs, self._event = job_id, jobs, event

    def set(self) -> None:
        self._jobs.add(self._job_id)
        self._event.set()


class BatchRunner:
    """Runs one batch under a lease that was just taken. `run` may be called once."""

    def __init__(self, ledger: Ledger, source: Input, parts: Parts) -> None:
        self._ledger = ledger
        self._source = source
        self._parts = parts
        self._batch: Batch = ledger.batch()
        self._window = Window(parts.max_in_flight)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batch")  # the ledger is for one thread at a time
        self._flying: dict[str, _Flight] = {}
        self._listeners: dict[str, _Woken] = {}
        self._woken: set[str] = set()
        self._event = asyncio.Event()
        self._again: deque[tuple[Row, int]] = deque()  # rows to send again, with how often they were sent
        self._sent_to = 0  # rows up to here have been sent
        self._all_sent = False
        self._paused_until = 0.0
        self._looked_at = self._reread_at = 0.0
        self._ended_jobs: deque[tuple[float, str]] = deque()
        self._stopping = False
        self._measured = [0] * 6
        self._measured_since = time.monotonic()

    def stop(self) -> None:
        """Leave the batch as it is, for whoever takes it next."""
        self._stopping = True
        self._event.set()

    async def run(self) -> None:
        """Until the batch ends, the lease is lost, or `stop`. What happens to the batch is in its ledger."""
        keeping = asyncio.create_task(self._keep_lease())
        head = self._batch.head
        try:
            await self._on_thread(self._ledger.truncate)
            if self._batch.status is BatchStatus.VALIDATING:
                await self._validate()
            if not self._stopping and not self._batch.status.terminal:
                await self._answer()
            self._batch = await self._on_thread(self._ledger.batch)
            if self._batch.status.terminal:
                log.info("a batch has ended", extra=fields(batch=head.id, status=self._batch.status))
        except FenceLost:
            log.warning("another gateway has the batch", extra=fields(batch=head.id))
        finally:
            await stop(keeping)
            for job_id in tuple(self._listeners):
                self._unlisten(job_id)
            await asyncio.to_thread(self._thread.shutdown)
            self._ledger.close()

    @property
    def ended(self) -> bool:
        """There is nothing left to do for anybody."""
        return self._batch.status.terminal

    async def _validate(self) -> None:
        validation = Validation(self._ledger, self._source, self._parts.models, self._parts.max_rows)
        await self._on_thread(validation.begin)
        while not self._stopping:
            if await self._on_thread(validation.go_on):
                break
            failpoints.reach("batch.validate")
            self._batch = await self._on_thread(self._ledger.batch)
            if self._batch.cancel_asked:
                break
        else:
            return
        if not self._batch.cancel_asked:
            await self._on_thread(validation.finish)
        self._batch = await self._on_thread(self._ledger.batch)

    async def _answer(self) -> None:
        """Every row, and the end of the batch."""
        for leader in await self._on_thread(lambda: list(self._ledger.leaders_answered())):
            await self._copy(leader)
        while not self._stopping:
            try:
                await self._look()
                if self._batch.cancel_asked:
                    return await self._break_off(BatchStatus.CANCELLED, "batch_cancelled", _CANCELLED)
                if time.time() >= self._batch.head.expires_at:
                    return await self._break_off(BatchStatus.EXPIRED, "batch_expired", _EXPIRED)
                await self._feed()
                await self._settle()
            except (RedisError, OSError) as error:
                await self._pause("store_away", error)
            if self._all_sent and not self._flying and not self._again:
                return await self._finish()
            await self._nap()
        return None

    async def _finish(self) -> None:
        await self._on_thread(self._ledger.set_status, BatchStatus.FINALIZING)
        failpoints.reach("batch.finish")
        batch = await self._on_thread(self._ledger.batch)
        if batch.completed:
            await self._on_thread(self._ledger.set_status, BatchStatus.COMPLETED)
        else:
            msg = f"All {batch.total} rows failed; the error file says why of each"
            await self._on_thread(self._ledger.set_status, BatchStatus.FAILED, [BatchError("all_rows_failed", msg)])

    async def _break_off(self, status: BatchStatus, code: str, message: str) -> None:
        """End early: rows in flight are cancelled unless they are done, and each unanswered row says why."""
        await self._settle(everything=True)
        for job_id in tuple(self._flying):
            try:
                await self._parts.records.cancel(job_id)
            except (JobGone, UnknownJob, RedisError, OSError):
                continue
        await self._settle(everything=True, but=JobStatus.CANCELLED)
        for job_id in tuple(self._flying):
            self._land(job_id)
        batch_id = self._batch.head.id
        while rows := await self._on_thread(self._ledger.unanswered, COPY_ROWS):
            lines = [row_shapes.not_run(batch_id, row.number, row.custom_id, code, message) for row in rows]
            if not await self._write(lines):
                return
        await self._on_thread(self._ledger.set_status, status)

    # Feed: rows become jobs.

    async def _feed(self) -> None:
        now = time.monotonic()
        if now < self._paused_until or (self._all_sent and not self._again):
            return
        room = min(self._window.size(now) - len(self._flying), await self._room())
        while room > 0 and not self._stopping and sum(flight.bytes for flight in self._flying.values()) < FLIGHT_BYTES:
            rows = await self._next(min(room, CHUNK_ROWS))
            if not rows:
                return
            room -= len(rows)
            read = await self._on_thread(self._read, rows)
            for row, tries in rows[len(read) :]:
                self._again.append((row, tries))
            if not await self._send(read):
                return

    async def _room(self) -> int:
        """Rows that the queue still takes. Batches fill half of it, so that others find a place."""
        policy, owner = self._parts.records.operations.policy, self._batch.head.owner
        depth = await self._parts.records.depth()
        room = min(
            policy.max_jobs // 2 - depth.get("jobs", 0),
            policy.max_jobs_per_owner // 2 - depth.get(f"jobs:{owner}", 0),
        )
        if room <= 0 and not self._flying:
            await self._pause("queue_full")
        return room

    async def _next(self, limit: int) -> list[tuple[Row, int]]:
        if self._again:
            return [self._again.popleft() for _ in range(min(limit, len(self._again)))]
        rows = await self._on_thread(self._ledger.waiting, self._sent_to, limit)
        if rows:
            self._sent_to = rows[-1].number
        else:
            self._all_sent = True
        return [(row, 0) for row in rows]

    def _read(self, rows: Sequence[tuple[Row, int]]) -> list[tuple[Row, int, Asked | PhotocallError | InvalidField]]:
        """The requests of rows, or why one cannot be asked; fewer than there are rows where they are large."""
        found: list[tuple[Row, int, Asked | PhotocallError | InvalidField]] = []
        size = 0
        for row, tries in rows:
            if found and size + row.length > CHUNK_BYTES:
                break
            size += row.length
            found.append((row, tries, self._asked(row)))
        return found

    def _asked(self, row: Row) -> Asked | PhotocallError | InvalidField:
        try:
            return row_shapes.parse(self._batch.head.endpoint, self._source.body(row), self._parts.limits)
        except (PhotocallError, InvalidField) as error:
            return error
        except Exception:  # a defect of ours, or a damaged disk: this row fails, the batch goes on
            log.exception("cannot read a row", extra=fields(batch=self._batch.head.id, row=row.number))
            return row_shapes.internal()

    async def _send(self, read: Sequence[tuple[Row, int, Asked | PhotocallError | InvalidField]]) -> bool:
        """False when the service takes no more for now."""
        head = self._batch.head
        outcomes = await asyncio.gather(*(self._accept(row, tries, asked) for row, tries, asked in read))
        lines, to_prepare, full = [], [], None
        for (row, tries, asked), outcome in zip(read, outcomes, strict=True):
            if isinstance(outcome, (QueueFull, StoreFull, RedisError, OSError)):
                full = outcome
                self._again.append((row, tries))
            elif isinstance(outcome, Exception):
                lines.append(row_shapes.refused(head.endpoint, head.id, row.number, row.custom_id, outcome))
            else:
                assert isinstance(asked, Asked)
                job_id, created = outcome
                self._fly(job_id, row, tries, asked)
                if created and asked.request.ask.assets:
                    to_prepare.append(job_id)
        for first in range(0, len(to_prepare), MICRO_BATCH):
            await self._parts.dispatcher.enqueue_together(to_prepare[first : first + MICRO_BATCH])
        failpoints.reach("batch.submit")
        await self._answered(lines)
        if full is not None:
            await self._pause(full.code if isinstance(full, PhotocallError) else "store_away", full)
        elif self._batch.paused is not None:
            await self._set_paused(None)
        return full is None

    async def _accept(
        self, row: Row, tries: int, asked: Asked | PhotocallError | InvalidField
    ) -> tuple[str, bool] | PhotocallError | InvalidField | RedisError | OSError:
        if not isinstance(asked, Asked):
            return asked
        head, limits = self._batch.head, self._parts
        left_s = max(1.0, head.expires_at - time.time())
        try:
            limits.models.check(asked.request.ask.model)
            accepted = await limits.dispatcher.accept(
                asked.request,
                owner=head.owner,
                shape=row_shapes.SHAPES[head.endpoint].name,
                priority="batch",
                deadline_s=min(left_s, asked.deadline_s or left_s),
                idempotency_key=f"batch:{head.id}:{row.number}:{tries}",
                metadata=asked.metadata or {},
                row=True,
            )
        except (PhotocallError, InvalidField, RedisError, OSError) as error:
            return error
        return accepted.job_id, accepted.created

    def _fly(self, job_id: str, row: Row, tries: int, asked: Asked) -> None:
        request = asked.request
        size = row.length + sum(map(len, request.images.values()))
        chars = len(request.ask.to_content()["body"])
        self._flying[job_id] = _Flight(row, tries, size, chars, len(request.ask.images))
        self._listeners[job_id] = listener = _Woken(job_id, self._woken, self._event)
        self._parts.wakes.add(job_id, listener)
        listener.set()  # it may have ended before anybody listened

    def _land(self, job_id: str) -> _Flight:
        self._unlisten(job_id)
        self._woken.discard(job_id)
        return self._flying.pop(job_id)

    def _unlisten(self, job_id: str) -> None:
        self._parts.wakes.remove(job_id, self._listeners.pop(job_id))

    # Settle: jobs that ended become lines.

    async def _settle(self, everything: bool = False, but: JobStatus | None = None) -> None:
        """Write the rows whose jobs have ended, `but` those that ended so; jobs that vanished are sent again."""
        now = time.monotonic()
        if everything or now - self._reread_at > REREAD_S:
            self._woken.update(self._flying)
            self._reread_at = now
        looked = [job_id for job_id in self._woken if job_id in self._flying]
        self._woken.clear()
        self._event.clear()
        if not looked:
            return
        statuses = await self._parts.records.statuses(looked)
        ended = [job_id for job_id, status in zip(looked, statuses, strict=True) if status and status.terminal]
        lines = []
        for job_id, status in zip(looked, statuses, strict=True):
            if status is None:
                lines += self._vanished(job_id)
        for job_id, record in zip(ended, await self._parts.records.read(ended), strict=True):
            if record is None:
                lines += self._vanished(job_id)
            elif record.status is not but:
                lines.append(self._line(self._flying[job_id], record))
        if not await self._answered(lines):
            return
        wanted = _SETTLED - {but}
        settled = [
            job_id
            for job_id, status in zip(looked, statuses, strict=True)
            if status in wanted and job_id in self._flying
        ]
        for job_id in settled:
            self._land(job_id)
            self._ended_jobs.append((now, f"{self._batch.head.owner}/{job_id}"))
        self._window.ended(len(settled), now)
        await self._parts.records.forget(self._batch.head.owner, settled)
        await self._forget_pace(now)
        await self._note_pace(now)

    def _line(self, flight: _Flight, record: JobRecord) -> Line:
        head, row = self._batch.head, flight.row
        try:
            line = row_shapes.answered(head.endpoint, head.id, row.number, row.custom_id, record)
        except Exception:  # a defect of ours
            log.exception("cannot show an answer", extra=fields(batch=head.id, row=row.number))
            return row_shapes.refused(head.endpoint, head.id, row.number, row.custom_id, row_shapes.internal())
        if line.ok:
            tokens = int(record.usage.get("image_tokens", 0))
            added = (1, flight.chars, flight.pictures, line.input_tokens, tokens, line.output_tokens)
            self._measured = [old + new for old, new in zip(self._measured, added, strict=True)]
        return line

    def _vanished(self, job_id: str) -> list[Line]:
        """Somebody deleted the job, or Redis lost it."""
        flight = self._land(job_id)
        if flight.tries + 1 < MAX_TRIES:
            self._again.append((flight.row, flight.tries + 1))
            return []
        head = self._batch.head
        error = CodedError("internal", f"The job of this row vanished {MAX_TRIES} times")
        return [row_shapes.refused(head.endpoint, head.id, flight.row.number, flight.row.custom_id, error)]

    async def _answered(self, lines: Sequence[Line]) -> bool:
        """Write rows, and then the rows that equal them. False when the batch is to be left."""
        if not await self._write(lines):
            return False
        for line in lines:
            if not await self._copy(line.row):
                return False
        return True

    async def _copy(self, leader: int) -> bool:
        """The answer of a row for all that equal it."""
        batch_id = self._batch.head.id
        while rows := await self._on_thread(self._ledger.followers, leader, COPY_ROWS):
            line = await self._on_thread(self._ledger.line_of, leader)
            lines = [row_shapes.same_answer(batch_id, row.number, row.custom_id, line) for row in rows]
            if not await self._write(lines):
                return False
        return True

    async def _write(self, lines: Sequence[Line]) -> bool:
        """A full disk is waited out. False when the batch is to be left meanwhile."""
        if not lines:
            return True
        while True:
            try:
                await self._on_thread(self._ledger.write, lines)
            except (OSError, sqlite3.OperationalError) as error:
                log.error("cannot write results, waiting: %s", error, extra=fields(batch=self._batch.head.id))
                await self._set_paused("disk_full")
                await asyncio.sleep(DISK_PAUSE_S)
                if self._stopping:
                    return False
            else:
                return True

    # The rest of the loop.

    async def _look(self) -> None:
        """Read the batch: somebody may have asked to cancel it."""
        now = time.monotonic()
        if now - self._looked_at > LOOK_S:
            self._batch = await self._on_thread(self._ledger.batch)
            self._looked_at = now

    async def _nap(self) -> None:
        """Until a job may have changed; not at all while rows can be sent."""
        now = time.monotonic()
        can_send = now >= self._paused_until and (self._again or not self._all_sent)
        if self._woken or (can_send and len(self._flying) < self._window.size(now)):
            await asyncio.sleep(0.02)
            return
        try:
            async with asyncio.timeout(LOOK_S):
                await self._event.wait()
        except TimeoutError:
            return
        await asyncio.sleep(0.01)  # what ends together is written together

    async def _pause(self, why: str, error: Exception | None = None) -> None:
        self._paused_until = time.monotonic() + PAUSE_S
        if self._batch.paused != why:
            log.info("a batch pauses: %s", error or why, extra=fields(batch=self._batch.head.id, why=why))
            await self._set_paused(why)

    async def _set_paused(self, why: str | None) -> None:
        try:
            await self._on_thread(self._ledger.set_paused, why)
            self._batch = await self._on_thread(self._ledger.batch)
        except (OSError, sqlite3.OperationalError) as failed:
            log.warning("cannot note that a batch pauses: %s", failed, extra=fields(batch=self._batch.head.id))

    async def _forget_pace(self, now: float) -> None:
        """Ended rows count in the measured pace for as long as that looks back, and no longer."""
        old = []
        while self._ended_jobs and self._ended_jobs[0][0] < now - RATE_WINDOW_S:
            old.append(self._ended_jobs.popleft()[1])
        if old:
            await self._parts.records.redis.zrem(keys.ENDED, *old)

    async def _note_pace(self, now: float) -> None:
        """What rows cost, for estimates; only of stretches in which some were always in flight."""
        rows, chars, pictures, tokens, picture_tokens, written = self._measured
        seconds = now - self._measured_since
        if seconds < PACE_S or not rows:
            return
        self._measured, self._measured_since = [0] * 6, now
        await self._parts.pace.add(rows, seconds, chars, pictures, tokens, picture_tokens, written)

    async def _keep_lease(self) -> None:
        batch_id, fence = self._batch.head.id, self._ledger.fence
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                if not await self._parts.leases.renew(batch_id, fence):
                    self.stop()
                    return
            except (RedisError, OSError) as error:  # whoever takes it meanwhile raises the fence in the ledger
                log.warning("cannot renew a batch's lease: %s", error, extra=fields(batch=batch_id))

    async def _on_thread(self, call: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)


_CANCELLED = "The batch was cancelled before this request was run."
_EXPIRED = "This request could not be executed before the completion window expired."
_SETTLED = {status for status in JobStatus if status.terminal}
