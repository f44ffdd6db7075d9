"""BatchRunner: runs one batch from where it stands: validate, then feed and settle until no row is left, then end it.

What a row becomes is not known here: `feeder.py` makes jobs of rows, `settler.py` lines of ended jobs. A few rows are
in flight, whatever the size of the batch; a full queue, store or disk is waited out.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time

from redis.exceptions import RedisError

from photocall import failpoints
from photocall.errors import JobGone, UnknownJob
from photocall.jobs import JobStatus
from photocall.logs import fields
from photocall_gateway.batches.batch import Batch, BatchError, BatchStatus
from photocall_gateway.batches.book import LOOK_S, STORE_AWAY, Book
from photocall_gateway.batches.feeder import Feeder
from photocall_gateway.batches.flights import Flights
from photocall_gateway.batches.inputs import Input
from photocall_gateway.batches.leases import RENEW_S
from photocall_gateway.batches.ledger import FenceLost, Ledger
from photocall_gateway.batches.parts import Parts
from photocall_gateway.batches.settler import Settler
from photocall_gateway.batches.validation import Validation
from photocall_gateway.batches.window import Window
from photocall_gateway.tasks import stop

log = logging.getLogger(__name__)


class BatchRunner:
    """Runs one batch under a lease that was just taken. `run` may be called once."""

    def __init__(self, ledger: Ledger, source: Input, parts: Parts) -> None:
        self._ledger = ledger
        self._source = source
        self._parts = parts
        self._book = Book(ledger, parts.news)
        self._flights = Flights(parts.wakes)
        self._window = Window(parts.max_in_flight)
        self._feeder = Feeder(self._book, source, self._flights, self._window, parts)
        self._settler = Settler(self._book, self._flights, self._window, parts)

    def stop(self) -> None:
        """Leave the batch as it is, for whoever takes it next."""
        self._book.stopping = True
        self._flights.event.set()

    async def run(self) -> None:
        """Until the batch ends, the lease is lost, or `stop`. What happens to the batch is in its ledger."""
        keeping = asyncio.create_task(self._keep_lease())
        book, head = self._book, self._book.batch.head
        try:
            await book.reread()
            await book.write(self._ledger.truncate)
            if book.batch.status is BatchStatus.VALIDATING:
                await self._validate()
            if not book.stopping and not book.batch.status.terminal:
                await self._answer()
            if (await book.reread()).status.terminal:
                log.info("a batch has ended", extra=fields(batch=head.id, status=book.batch.status))
        except FenceLost:
            log.warning("another gateway has the batch", extra=fields(batch=head.id))
        finally:
            await stop(keeping)
            self._flights.close()
            await book.close()

    @property
    def batch(self) -> Batch:
        """As it was last read; once `run` is over, as it was left."""
        return self._book.batch

    async def _validate(self) -> None:
        """Read the input; anew from its beginning when the disk takes no more of what is noted, once it does again."""
        while not self._book.stopping:
            try:
                return await self._validate_once()
            except (OSError, sqlite3.OperationalError) as error:
                await self._book.wait_for_disk(error)
        return None

    async def _validate_once(self) -> None:
        book = self._book
        validation = Validation(self._ledger, self._source, self._parts.models, self._parts.max_rows)
        await book.call(validation.begin)
        while not book.stopping:
            if await book.call(validation.go_on):
                break
            failpoints.reach("batch.validate")
            if (await book.reread()).cancel_asked:
                break
        else:
            return
        if not book.batch.cancel_asked:
            await book.call(validation.finish)
        await book.reread()

    async def _answer(self) -> None:
        """Every row, and the end of the batch."""
        book = self._book
        for leader in await book.call(self._ledger.leaders_answered):
            await book.copy(leader)
        while not book.stopping:
            try:
                await book.look()
                if book.batch.cancel_asked:
                    return await self._break_off(BatchStatus.CANCELLED, "batch_cancelled", _CANCELLED)
                if time.time() >= book.batch.head.expires_at:
                    return await self._break_off(BatchStatus.EXPIRED, "batch_expired", _EXPIRED)
                await self._feeder.feed()
                await self._settler.settle()
            except (RedisError, ConnectionError, TimeoutError) as error:
                await book.pause(STORE_AWAY, error)
            except (OSError, sqlite3.OperationalError) as error:  # its own disk, or the folder that it reads
                await book.wait_for_disk(error)
            if self._feeder.all_sent and not len(self._flights):
                return await self._finish()
            await self._nap()
        return None

    async def _finish(self) -> None:
        if not await self._book.write(self._ledger.set_status, BatchStatus.FINALIZING):
            return
        failpoints.reach("batch.finish")
        batch = await self._book.reread()
        if batch.completed:
            await self._book.write(self._ledger.set_status, BatchStatus.COMPLETED)
        else:
            msg = f"All {batch.total} rows failed; the error file says why of each"
            errors = [BatchError("all_rows_failed", msg)]
            await self._book.write(self._ledger.set_status, BatchStatus.FAILED, errors)

    async def _break_off(self, status: BatchStatus, code: str, message: str) -> None:
        """End early: rows in flight are cancelled unless they are done, and each unanswered row says why."""
        await self._settler.settle(everything=True)
        for job_id in self._flights:
            try:
                await self._parts.records.cancel(job_id)
            except (JobGone, UnknownJob, RedisError, OSError):
                continue
        await self._settler.settle(everything=True, but=JobStatus.CANCELLED)
        for job_id in self._flights:
            self._flights.land(job_id)
        if await self._book.not_run(code, message):
            await self._book.write(self._ledger.set_status, status)

    async def _nap(self) -> None:
        """Until a job may have changed; not at all while rows can be sent."""
        now = time.monotonic()
        if self._flights.woken or (self._feeder.can_send(now) and len(self._flights) < self._window.size(now)):
            await asyncio.sleep(0.02)
            return
        try:
            async with asyncio.timeout(LOOK_S):
                await self._flights.event.wait()
        except TimeoutError:
            return
        await asyncio.sleep(0.01)  # what ends together is written together

    async def _keep_lease(self) -> None:
        batch_id, fence = self._book.batch.head.id, self._ledger.fence
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                if not await self._parts.leases.renew(batch_id, fence):
                    self.stop()
                    return
            except (RedisError, OSError) as error:  # whoever takes it meanwhile raises the fence in the ledger
                log.warning("cannot renew a batch's lease: %s", error, extra=fields(batch=batch_id))


_CANCELLED = "The batch was cancelled before this request was run."
_EXPIRED = "This request could not be executed before the completion window expired."
