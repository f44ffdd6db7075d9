"""Book: the ledger of the batch that is run, on a thread of its own: lines are written, a full disk is waited out.

Whoever follows the batch hears of it here, as it is read.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from redis.exceptions import RedisError

from photocall.backoff import Backoff
from photocall.logs import fields
from photocall_gateway.batches import row_shapes
from photocall_gateway.batches.batch import Batch
from photocall_gateway.batches.files import is_full
from photocall_gateway.batches.ledger import Ledger, Line
from photocall_gateway.batches.news import BatchNews

log = logging.getLogger(__name__)
T = TypeVar("T")

COPY_ROWS = 500  # lines written at once for equal rows, or for those that are not run
LOOK_S = 0.5  # between looks at the batch's own state
PAUSE_S = 0.5
DISK_PAUSE_S = 2.0
DISK_FULL, DISK_ERROR, STORE_AWAY = "disk_full", "disk_error", "store_away"
TELL_S = 2.0  # between events that only count; a change of status or pause is told at once


class Book:
    """`batch` is as it was last read. After a lost lease every call that writes raises FenceLost."""

    def __init__(self, ledger: Ledger, news: BatchNews) -> None:
        self.ledger = ledger
        self._news = news
        self._told: tuple[object, ...] = ()
        self._told_at = 0.0
        self.batch: Batch = ledger.batch()
        self._away = Backoff(log, f"{self.batch.head.id} waits for Redis", PAUSE_S)
        self.stopping = False  # the runner says so: whoever waits here leaves the batch as it is
        self.paused_until = 0.0  # monotonic; no row is sent before
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="batch")  # the ledger is for one thread at a time
        self._looked_at = 0.0

    async def call(self, call: Callable[..., T], *arguments: object) -> T:
        """Blocking work on the ledger, or on the input beside it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    async def close(self) -> None:
        """Once, after the last call."""
        await asyncio.to_thread(self._thread.shutdown)
        self.ledger.close()

    async def reread(self) -> Batch:
        """The batch as it is now."""
        self.batch = await self.call(self.ledger.batch)
        await self._tell()
        return self.batch

    async def look(self) -> None:
        """Read the batch now and then: somebody may have asked to cancel it."""
        now = time.monotonic()
        if now - self._looked_at > LOOK_S:
            await self.reread()
            self._looked_at = now

    async def answered(self, lines: Sequence[Line]) -> bool:
        """Write rows, and then the rows that equal them. False when the batch is to be left."""
        if not await self._write(lines):
            return False
        for line in lines:
            if not await self.copy(line.row):
                return False
        return True

    async def copy(self, leader: int) -> bool:
        """The answer of a row for all that equal it. False when the batch is to be left."""
        batch_id = self.batch.head.id
        while rows := await self.call(self.ledger.followers, leader, COPY_ROWS):
            line = await self.call(self.ledger.line_of, leader)
            lines = [row_shapes.same_answer(batch_id, row.number, row.custom_id, line) for row in rows]
            if not await self._write(lines):
                return False
        return True

    async def not_run(self, code: str, message: str) -> bool:
        """Each unanswered row says why it was not run. False when the batch is to be left."""
        batch_id = self.batch.head.id
        while rows := await self.call(self.ledger.unanswered, COPY_ROWS):
            lines = [row_shapes.not_run(batch_id, row.number, row.custom_id, code, message) for row in rows]
            if not await self._write(lines):
                return False
        return True

    async def _write(self, lines: Sequence[Line]) -> bool:
        return not lines or await self.write(self.ledger.write, lines)

    async def write(self, call: Callable[..., object], *arguments: object) -> bool:
        """`call`, for what writes: a disk that takes nothing is waited out. False: the batch is to be left meanwhile.

        Nothing is lost by the wait: what was not written whole does not count, and is written again.
        """
        while True:
            try:
                await self.call(call, *arguments)
            except (OSError, sqlite3.OperationalError) as error:
                if not await self.wait_for_disk(error):
                    return False
            else:
                if self.batch.paused in (DISK_FULL, DISK_ERROR):
                    await self.set_paused(None)
                return True

    async def wait_for_disk(self, error: Exception) -> bool:
        """A write failed: say so, and let some time pass. False when the batch is to be left meanwhile."""
        why = DISK_FULL if is_full(error) else DISK_ERROR
        if self.batch.paused != why:
            log.error("cannot write a batch, waiting: %s", error, extra=fields(batch=self.batch.head.id, why=why))
            await self.set_paused(why)
        await asyncio.sleep(DISK_PAUSE_S)
        return not self.stopping

    async def pause(self, why: str, error: Exception | None = None) -> None:
        """Send no row for PAUSE_S, longer each time while Redis is away, and let the batch say why."""
        away_s = self._away.failed(error) if why == STORE_AWAY and error is not None else 0.0
        self.paused_until = time.monotonic() + max(PAUSE_S, away_s)
        if self.batch.paused != why:
            log.info("a batch pauses: %s", error or why, extra=fields(batch=self.batch.head.id, why=why))
            await self.set_paused(why)

    async def resume(self) -> None:
        """Rows are sent again."""
        self._away.succeeded()
        await self.set_paused(None)

    async def set_paused(self, why: str | None) -> None:
        """What the batch says of it; None: rows are sent. A ledger that cannot be written is no reason to stop."""
        try:
            await self.call(self.ledger.set_paused, why)
            await self.reread()
        except (OSError, sqlite3.OperationalError) as failed:  # Redis knows it, for followers and readers
            log.warning("cannot note that a batch pauses: %s", failed, extra=fields(batch=self.batch.head.id))
            self.batch = replace(self.batch, paused=why)
            await self._tell()

    async def _tell(self) -> None:
        """An event of what has changed. The end is the keeper's to tell."""
        batch, now = self.batch, time.monotonic()
        state: tuple[object, ...] = batch.shown_status, batch.paused
        counts: tuple[object, ...] = batch.total, batch.completed, batch.failed
        if batch.status.terminal or (*state, *counts) == self._told:
            return
        if self._told[:2] == state and now - self._told_at < TELL_S:
            return
        try:
            await self._news.tell(batch, self.ledger.fence)
        except (RedisError, OSError) as error:
            log.warning("nobody hears of a batch: %s", error, extra=fields(batch=batch.head.id))
            return
        self._told, self._told_at = (*state, *counts), now
