"""Settler: jobs of a batch that ended become lines of its results, and what they cost becomes the measured pace."""

from __future__ import annotations

import logging
import time
from collections import deque

from photocall import keys
from photocall.errors import CodedError
from photocall.jobs import JobRecord, JobStatus
from photocall.logs import fields
from photocall_gateway.batches import row_shapes
from photocall_gateway.batches.book import Book
from photocall_gateway.batches.flights import Flight, Flights
from photocall_gateway.batches.ledger import Line
from photocall_gateway.batches.parts import Parts
from photocall_gateway.batches.window import Window
from photocall_gateway.load import RATE_WINDOW_S

log = logging.getLogger(__name__)

REREAD_S = 5.0  # a lost wake-up costs no more
PACE_S = 2.0
MAX_TRIES = 3  # of a row whose job vanished from Redis


class Settler:
    """Lets a row land once its line is on the disk, and not before."""

    def __init__(self, book: Book, flights: Flights, window: Window, parts: Parts) -> None:
        self._book = book
        self._flights = flights
        self._window = window
        self._parts = parts
        self._reread_at = 0.0
        self._ended_jobs: deque[tuple[float, str]] = deque()  # when, and the member of keys.ENDED
        self._measured = [0] * 6
        self._measured_since = time.monotonic()

    async def settle(self, everything: bool = False, but: JobStatus | None = None) -> None:
        """Write the rows whose jobs have ended, `but` those that ended so; jobs that vanished are sent again."""
        now = time.monotonic()
        if everything or now - self._reread_at > REREAD_S:
            self._flights.wake_all()
            self._reread_at = now
        looked = self._flights.take_woken()
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
                lines.append(self._line(self._flights[job_id], record))
        if not await self._book.answered(lines):
            return
        wanted = _SETTLED - {but}
        settled = [
            job_id
            for job_id, status in zip(looked, statuses, strict=True)
            if status in wanted and job_id in self._flights
        ]
        owner = self._book.batch.head.owner
        for job_id in settled:
            self._flights.land(job_id)
            self._ended_jobs.append((now, f"{owner}/{job_id}"))
        self._window.ended(len(settled), now)
        await self._parts.records.forget(owner, settled)
        await self._forget_pace(now)
        await self._note_pace(now)

    def _line(self, flight: Flight, record: JobRecord) -> Line:
        head, row = self._book.batch.head, flight.row
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
        flight = self._flights.land(job_id)
        if flight.tries + 1 < MAX_TRIES:
            self._flights.again.append((flight.row, flight.tries + 1))
            return []
        head = self._book.batch.head
        error = CodedError("internal", f"The job of this row vanished {MAX_TRIES} times")
        return [row_shapes.refused(head.endpoint, head.id, flight.row.number, flight.row.custom_id, error)]

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


_SETTLED = {status for status in JobStatus if status.terminal}
