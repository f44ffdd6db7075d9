"""BatchKeeper: what this gateway does for the batches on its disk: takes those nobody runs, and runs them."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from redis.exceptions import RedisError

from photocall.backoff import Backoff
from photocall.logs import fields
from photocall_gateway.batches.batch import Batch, Head
from photocall_gateway.batches.files import FileShelf
from photocall_gateway.batches.inputs import Input
from photocall_gateway.batches.leases import BatchLeases
from photocall_gateway.batches.ledger import FenceLost, Ledger
from photocall_gateway.batches.parts import Parts
from photocall_gateway.batches.places import Places
from photocall_gateway.batches.runner import BatchRunner
from photocall_gateway.batches.shelf import BatchShelf
from photocall_gateway.tasks import stop

log = logging.getLogger(__name__)

LOOK_S = 1.0
SWEEP_S = 60.0
MAX_RUNNING = 8  # batches of one gateway; the others wait for a place, here or elsewhere
ORPHAN_S = 3600.0  # a marker whose batch never appeared


class BatchKeeper:
    """Looks each second, from `start` to `stop`."""

    def __init__(
        self,
        places: Places,
        files: FileShelf,
        batches: BatchShelf,
        leases: BatchLeases,
        parts: Parts,
        open_input: Callable[[Head, Path], Input],
    ) -> None:
        self._places = places
        self._files = files
        self._batches = batches
        self._leases = leases
        self._parts = parts
        self._open_input = open_input
        self._running: dict[str, tuple[BatchRunner, asyncio.Task[None]]] = {}
        self._unreadable: set[str] = set()  # markers whose ledger was reported already
        self._looking: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._swept_at = time.monotonic()

    def start(self) -> None:
        self._places.make()
        self._looking = asyncio.create_task(self._look())

    def hurry(self) -> None:
        """There is a new batch."""
        self._hurry.set()

    async def stop(self, timeout_s: float | None = None) -> None:
        """Hand every batch back, for another gateway or for later. What is in flight stays in flight.

        One that is not handed back in time is left where it is, and taken when its lease has ended.
        """
        if self._looking is not None:
            await stop(self._looking)
            self._looking = None
        running = [task for _, task in self._running.values()]
        for runner, _ in self._running.values():
            runner.stop()
        if running:
            await asyncio.wait(running, timeout=timeout_s)

    @property
    def running(self) -> int:
        """Batches that this gateway runs now."""
        return len(self._running)

    async def _look(self) -> None:
        away = Backoff(log, "cannot look after batches")
        while True:
            wait_s = LOOK_S
            try:
                for marker in await asyncio.to_thread(lambda: sorted(self._places.live.iterdir())):
                    if marker.name not in self._running and len(self._running) < MAX_RUNNING:
                        await self._try(marker)
                if time.monotonic() - self._swept_at > SWEEP_S:
                    self._swept_at = time.monotonic()
                    await asyncio.to_thread(self._sweep)
                away.succeeded()
            except (RedisError, OSError) as error:
                wait_s = max(LOOK_S, away.failed(error))
            except Exception:
                log.exception("a defect in looking after batches")
            self._hurry.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._hurry.wait()

    async def _try(self, marker: Path) -> None:
        """Take a batch; one that cannot be read keeps no other from being taken. Raises RedisError and OSError."""
        try:
            await self._take(marker)
        except sqlite3.Error as error:
            if marker.name not in self._unreadable:
                log.error("a batch cannot be read: %s", error, extra=fields(batch=self._places.marked(marker).name))
            self._unreadable.add(marker.name)
        else:
            self._unreadable.discard(marker.name)

    async def _take(self, marker: Path) -> None:
        """Run a batch unless another gateway does."""
        directory = self._places.marked(marker)
        batch_id = directory.name
        try:
            ledger = await asyncio.to_thread(Ledger, directory)
        except FileNotFoundError:
            await asyncio.to_thread(_remove_orphan, marker)
            return
        with ExitStack() as unless_run:
            unless_run.callback(ledger.close)
            batch = await asyncio.to_thread(ledger.batch)
            fence = await self._leases.take(batch_id, batch.fence)
            if fence is None:
                return
            if not await asyncio.to_thread(directory.exists):  # deleted since it was opened: nobody hears of it again
                await self._leases.forget(batch_id)
                return
            if batch.status.terminal:  # it ended, and whoever ran it died before that was told
                await self._close(marker, batch, fence)
                return
            try:
                await asyncio.to_thread(ledger.claim, fence)
            except FenceLost:
                return
            unless_run.pop_all()
        log.info("a batch is taken", extra=fields(batch=batch_id, fence=fence, status=batch.status))
        runner = BatchRunner(ledger, self._open_input(batch.head, directory), self._parts)
        task = asyncio.create_task(self._run(runner, marker, batch_id, fence))
        self._running[marker.name] = runner, task

    async def _run(self, runner: BatchRunner, marker: Path, batch_id: str, fence: int) -> None:
        try:
            await runner.run()
        except Exception:  # a defect of ours: the batch is tried again when its lease has ended
            log.exception("a batch stumbled", extra=fields(batch=batch_id))
            return
        finally:
            del self._running[marker.name]
        try:
            if runner.batch.status.terminal:
                await self._close(marker, runner.batch, fence)
            else:
                await self._leases.give_up(batch_id, fence)
        except (RedisError, OSError) as error:
            log.warning("a batch's lease is left to end by itself: %s", error, extra=fields(batch=batch_id))

    async def _close(self, marker: Path, batch: Batch, fence: int) -> None:
        """Tell that a batch has ended, and look after it no more. The marker goes last: it says what is not told."""
        if not await self._parts.news.tell_end(batch, fence):
            return  # whoever has it now does
        marker.unlink(missing_ok=True)
        await self._leases.forget(batch.head.id)
        await self._parts.news.wake(batch.head.id)  # who follows has its last event, and sees only now that it is

    def _sweep(self) -> None:
        now = time.time()
        for directory in self._places.owners():
            self._files.sweep(directory, now)
            self._batches.sweep(directory, now)


def _remove_orphan(marker: Path) -> None:
    with suppress(FileNotFoundError):
        if marker.stat().st_mtime < time.time() - ORPHAN_S:
            marker.unlink()
