"""A batch that runs, for programs on asyncio; see batch_run.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

from photocall.client import batch_flows as flows
from photocall.client import tables
from photocall.client.batch_flows import Batch, News, Row
from photocall.client.batch_run import Reading, RunView
from photocall.client.errors import ClientError
from photocall.client.progress import Progress
from photocall.client.run_protocol import AsyncRun


class AsyncBatchRun(RunView):
    """As BatchRun, with coroutines: `async for row in run`. A task that is cancelled leaves the batch to itself; an
    `async with` block that is ended early ends the batch."""

    _run: AsyncRun

    async def __aiter__(self) -> AsyncIterator[Row]:
        reading = Reading()
        with Progress(self._progress, self.batch.ended) as bar:
            while not reading.ended:
                news = await self._run(flows.news(self.id, reading.answered, reading.failed))
                self.batch = news.batch
                rows = reading.take(news)
                bar.show(news.batch)
                for row in rows:
                    yield row
                await self._run(flows.rest(reading.pause_s))

    async def wait(self) -> Batch:
        """See BatchRun.wait."""
        reading = Reading()
        with Progress(self._progress, self.batch.ended) as bar:
            while not reading.ended:
                self.batch = await self._run(flows.get(self.id))
                reading.take(News(self.batch, [], []))
                bar.show(self.batch)
                await self._run(flows.rest(reading.pause_s))
        return self.batch

    async def failed(self) -> list[Row]:
        """See BatchRun.failed."""
        return [row async for row in self if not row.ok]

    async def to_rows(self, *, probabilities: bool = False) -> list[dict[str, Any]]:
        """See BatchRun.to_rows."""
        return list(tables.to_rows(await self._in_order(), probabilities=probabilities))

    async def to_pandas(self, *, probabilities: bool = False) -> Any:
        """See BatchRun.to_pandas."""
        return self._frame(await self._in_order(), probabilities)

    async def to_arrow(self, *, probabilities: bool = False) -> Any:
        """See BatchRun.to_arrow."""
        return tables.to_arrow(await self._in_order(), probabilities=probabilities)

    async def cancel(self) -> Batch:
        """See BatchRun.cancel."""
        self.batch = await self._run(flows.cancel(self.id))
        return self.batch

    async def retry_failed(self) -> AsyncBatchRun:
        """See BatchRun.retry_failed."""
        return AsyncBatchRun(self._run, await self._run(flows.retry_failed(self.id, None)), None, self._progress)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or (await self._run(flows.get(self.id))).ended:
            return
        try:
            await self.cancel()
        except ClientError as refused:
            error.add_note(f"batch {self.id} was not cancelled: {refused}")

    async def _in_order(self) -> list[Row]:
        return sorted([row async for row in self], key=lambda row: row.number)
