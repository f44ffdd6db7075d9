"""Feeder: rows of a batch become jobs, as many at a time as the window, the queue and the store have room for.

A row is a job of the batch lane under a key of its own, so a gateway that takes a batch over finds the jobs of the one
before it and asks for nothing twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from redis.exceptions import RedisError

from photocall import failpoints
from photocall.errors import KeyBusy, PhotocallError, QueueFull, StoreFull
from photocall.logs import fields
from photocall.questions import InvalidField
from photocall_gateway.batches import row_shapes
from photocall_gateway.batches.book import STORE_AWAY, Book
from photocall_gateway.batches.flights import Flight, Flights
from photocall_gateway.batches.inputs import Input
from photocall_gateway.batches.ledger import Row
from photocall_gateway.batches.parts import Parts
from photocall_gateway.batches.row_shapes import Asked
from photocall_gateway.batches.window import Window

log = logging.getLogger(__name__)

CHUNK_ROWS = 32  # read and parsed at once
CHUNK_BYTES = 8 << 20  # as much of it at once, but for a single larger row
FLIGHT_BYTES = 64 << 20  # of rows in flight: what Redis keeps of them
MICRO_BATCH = 16  # jobs to one queue entry: what RQ costs is paid once for all of them


class Feeder:
    """Sends each row once, and again those that `Flights.again` holds."""

    def __init__(self, book: Book, source: Input, flights: Flights, window: Window, parts: Parts) -> None:
        self._book = book
        self._source = source
        self._flights = flights
        self._window = window
        self._parts = parts
        self._sent_to = 0  # rows up to here have been sent
        self._all_sent = False

    @property
    def all_sent(self) -> bool:
        """No row waits to be sent, for the first time or again."""
        return self._all_sent and not self._flights.again

    def can_send(self, now: float) -> bool:
        """A row waits, and the batch does not pause. `now` is monotonic."""
        return now >= self._book.paused_until and not self.all_sent

    async def feed(self) -> None:
        """Send rows until there is no room or no row. Raises RedisError and OSError."""
        now = time.monotonic()
        if not self.can_send(now):
            return
        room = min(self._window.size(now) - len(self._flights), await self._room())
        while room > 0 and not self._book.stopping and self._flights.bytes < FLIGHT_BYTES:
            rows = await self._next(min(room, CHUNK_ROWS))
            if not rows:
                return
            room -= len(rows)
            read = await self._book.call(self._read, rows)
            for row, tries in rows[len(read) :]:
                self._flights.again.append((row, tries))
            if not await self._send(read):
                return

    async def _room(self) -> int:
        """Rows that the queue and the key still take. Batches fill half of either, so that others find a place."""
        policy, owner = self._parts.records.operations.policy, self._book.batch.head.owner
        depth = await self._parts.records.depth()
        jobs, own = depth.get("jobs", 0), depth.get(f"jobs:{owner}", 0)
        room = {
            "queue_full": min(policy.max_jobs // 2 - jobs, policy.max_jobs_per_owner // 2 - own),
            KeyBusy.code: max(1, self._parts.dispatcher.max_jobs_of(owner) // 2) - own,
        }
        why = min(room, key=room.__getitem__)
        if room[why] <= 0 and not len(self._flights):
            await self._book.pause(why)
        return room[why]

    async def _next(self, limit: int) -> list[tuple[Row, int]]:
        again = self._flights.again
        if again:
            return [again.popleft() for _ in range(min(limit, len(again)))]
        rows = await self._book.call(self._book.ledger.waiting, self._sent_to, limit)
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
        head = self._book.batch.head
        try:
            return row_shapes.parse(head.endpoint, self._source.body(row), self._parts.limits)
        except (PhotocallError, InvalidField) as error:
            return error
        except Exception:  # a defect of ours, or a damaged disk: this row fails, the batch goes on
            log.exception("cannot read a row", extra=fields(batch=head.id, row=row.number))
            return row_shapes.internal()

    async def _send(self, read: Sequence[tuple[Row, int, Asked | PhotocallError | InvalidField]]) -> bool:
        """False when the service takes no more for now."""
        head = self._book.batch.head
        outcomes = await asyncio.gather(*(self._accept(row, tries, asked) for row, tries, asked in read))
        lines, to_prepare, full = [], [], None
        for (row, tries, asked), outcome in zip(read, outcomes, strict=True):
            if isinstance(outcome, (QueueFull, KeyBusy, StoreFull, RedisError, OSError)):
                full = outcome
                self._flights.again.append((row, tries))
            elif isinstance(outcome, Exception):
                lines.append(row_shapes.refused(head.endpoint, head.id, row.number, row.custom_id, outcome))
            else:
                assert isinstance(asked, Asked)
                job_id, created = outcome
                self._flights.fly(job_id, _flight(row, tries, asked))
                if created and asked.request.ask.assets:
                    to_prepare.append(job_id)
        for first in range(0, len(to_prepare), MICRO_BATCH):
            await self._parts.dispatcher.enqueue_together(to_prepare[first : first + MICRO_BATCH])
        failpoints.reach("batch.submit")
        await self._book.answered(lines)
        if full is not None:
            await self._book.pause(full.code if isinstance(full, PhotocallError) else STORE_AWAY, full)
        elif self._book.batch.paused is not None:
            await self._book.resume()
        return full is None

    async def _accept(
        self, row: Row, tries: int, asked: Asked | PhotocallError | InvalidField
    ) -> tuple[str, bool] | PhotocallError | InvalidField | RedisError | OSError:
        """The job's id and whether it is new; or why there is none."""
        if not isinstance(asked, Asked):
            return asked
        head = self._book.batch.head
        left_s = max(1.0, head.expires_at - time.time())
        try:
            self._parts.models.check(asked.request.ask.model)
            accepted = await self._parts.dispatcher.accept(
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


def _flight(row: Row, tries: int, asked: Asked) -> Flight:
    request = asked.request
    size = row.length + sum(map(len, request.images.values()))
    chars = len(request.ask.to_content()["body"])
    return Flight(row, tries, size, chars, len(request.ask.images))
