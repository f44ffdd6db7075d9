"""The client for programs on asyncio; see Client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

import httpx

from photocall.client import flows
from photocall.client.async_batch_run import AsyncBatchRun
from photocall.client.async_batches import AsyncBatches
from photocall.client.async_calibrations import AsyncCalibrations
from photocall.client.batch_items import EVERY_COLUMN, Columns, given, split
from photocall.client.event_stream import READ_S, Event, EventStream
from photocall.client.flows import Call, Flow, Look, Pause, T
from photocall.client.pictures import Images
from photocall.client.questions import Questions
from photocall.client.shown import Job
from photocall.client.transport import arguments, no_reply, options, reply_of


class AsyncClient:
    """As Client, with coroutines. Files are read where they are called: a picture is read in a millisecond."""

    def __init__(
        self, base_url: str | None = None, api_key: str | None = None, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._http = httpx.AsyncClient(transport=transport, **options(base_url, api_key))
        self.batches = AsyncBatches(self._run)
        self.calibrations = AsyncCalibrations(self._run)

    async def ask(
        self,
        images: Images,
        questions: Questions,
        *,
        state: Any = None,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        on_progress: Look | None = None,
        **fields: Any,
    ) -> Job:
        """See Client.ask."""
        submitting = flows.submit(images, questions, state, idempotency_key, fields)
        return await self._run(flows.ask(submitting, timeout_s, on_progress))

    async def submit(
        self,
        images: Images,
        questions: Questions,
        *,
        state: Any = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Job:
        """See Client.submit."""
        return await self._run(flows.submit(images, questions, state, idempotency_key, fields))

    async def wait(self, job: Job | str, timeout_s: float | None = None, *, on_progress: Look | None = None) -> Job:
        """See Client.wait."""
        return await self._run(flows.wait(job, timeout_s, on_progress))

    async def stream(
        self,
        images: Images,
        questions: Questions,
        *,
        state: Any = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> AsyncIterator[Event]:
        """See Client.stream."""
        job = await self.submit(images, questions, state=state, idempotency_key=idempotency_key, **fields)
        async for event in self.events(job):
            yield event

    async def events(self, job: Job | str, after: str | None = None) -> AsyncIterator[Event]:
        """See Client.events."""
        found = await self.get(job)
        stream = EventStream(found.id, after)
        while True:
            ended = found.ended
            try:
                async with self._http.stream("GET", stream.path, headers=stream.headers, timeout=READ_S) as response:
                    if response.status_code != 200:
                        await response.aread()
                        await asyncio.sleep(stream.broken(reply_of(response)))
                        continue
                    async for piece in response.aiter_bytes():
                        for event in stream.feed(piece):
                            yield event
            except httpx.TransportError as error:
                await asyncio.sleep(stream.broken(no_reply(self._http.base_url, error)))
                ended = False
            found = await self.get(found)
            if ended:
                yield Event("ended", {}, job=found)
                return

    async def batch(
        self,
        source: Any,
        questions: Questions | None = None,
        *,
        state: Any = None,
        columns: Columns = EVERY_COLUMN,
        key: str | None = None,
        progress: bool | None = None,
        **fields: Any,
    ) -> AsyncBatchRun:
        """See Client.batch."""
        own, of_rows = split(fields)
        made = given(source, questions, state, columns, of_rows)
        batch = await self.batches.create(made.source, made.request, endpoint=made.endpoint, idempotency_key=key, **own)
        return AsyncBatchRun(self._run, batch, made.labels, progress)

    async def resume(self, batch_id: str, *, progress: bool | None = None) -> AsyncBatchRun:
        """See Client.resume."""
        return AsyncBatchRun(self._run, await self.batches.get(batch_id), None, progress)

    async def get(self, job: Job | str) -> Job:
        """See Client.get."""
        return await self._run(flows.get(job))

    async def jobs(self, status: str | None = None, *, after: str | None = None, limit: int = 20) -> list[Job]:
        """See Client.jobs."""
        return await self._run(flows.jobs(status, after, limit))

    async def replay(self, job: Job | str, timeout_s: float | None = None) -> Job:
        """See Client.replay."""
        return await self._run(flows.ask(flows.replay(job), timeout_s))

    async def cancel(self, job: Job | str) -> Job:
        """See Client.cancel."""
        return await self._run(flows.cancel(job))

    async def delete(self, job: Job | str) -> None:
        """See Client.delete."""
        await self._run(flows.delete(job))

    async def models(self) -> list[str]:
        """See Client.models."""
        return await self._run(flows.models())

    async def aclose(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def _run(self, flow: Flow[T]) -> T:
        reply = None
        try:
            while True:
                step = flow.send(reply)
                if isinstance(step, Pause):
                    await asyncio.sleep(step.seconds)
                    reply = None
                else:
                    reply = await self._call(step)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _call(self, call: Call) -> flows.Reply:
        try:
            with arguments(call) as fields:
                return reply_of(await self._http.request(call.method, call.path, **fields))
        except httpx.TransportError as error:
            return no_reply(self._http.base_url, error)
