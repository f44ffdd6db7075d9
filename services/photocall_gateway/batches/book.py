"""Book: the ledger of the batch that is run, on a thread of its own: lines are written, a full disk is waited out."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from photocall.logs import fields
from photocall_gateway.batches import row_shapes
from photocall_gateway.batches.batch import Batch
from photocall_gateway.batches.ledger import Ledger, Line

log = logging.getLogger(__name__)
T = TypeVar("T")

COPY_ROWS = 500  # lines written at once for equal rows, or for those that are not run
LOOK_S = 0.5  # between looks at the batch's own state
PAUSE_S = 0.5
DISK_PAUSE_S = 2.0


class Book:
    """`batch` is as it was last read. After a lost lease every call that writes raises FenceLost."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.batch: Batch = ledger.batch()
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
        """A full disk is waited out. False when the batch is to be left meanwhile."""
        if not lines:
            return True
        while True:
            try:
                await self.call(self.ledger.write, lines)
            except (OSError, sqlite3.OperationalError) as error:
                log.error("cannot write results, waiting: %s", error, extra=fields(batch=self.batch.head.id))
                await self.set_paused("disk_full")
                await asyncio.sleep(DISK_PAUSE_S)
                if self.stopping:
                    return False
            else:
                return True

    async def pause(self, why: str, error: Exception | None = None) -> None:
        """Send no row for PAUSE_S, and let the batch say why."""
        self.paused_until = time.monotonic() + PAUSE_S
        if self.batch.paused != why:
            log.info("a batch pauses: %s", error or why, extra=fields(batch=self.batch.head.id, why=why))
            await self.set_paused(why)

    async def set_paused(self, why: str | None) -> None:
        """What the batch says of it; None: rows are sent. A ledger that cannot be written is no reason to stop."""
        try:
            await self.call(self.ledger.set_paused, why)
            await self.reread()
        except (OSError, sqlite3.OperationalError) as failed:
            log.warning("cannot note that a batch pauses: %s", failed, extra=fields(batch=self.batch.head.id))
