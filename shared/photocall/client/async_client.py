"""The client for programs on asyncio; see Client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from photocall.client import flows
from photocall.client.async_batches import AsyncBatches
from photocall.client.flows import Call, Flow, Image, Job, Pause, T
from photocall.client.transport import arguments, options, reply_of


class AsyncClient:
    """As Client, with coroutines. Files are read where they are called: a picture is read in a millisecond."""

    def __init__(
        self, base_url: str, api_key: str | None = None, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._http = httpx.AsyncClient(transport=transport, **options(base_url, api_key))
        self.batches = AsyncBatches(self._run)

    async def submit(
        self,
        state: Any,
        questions: Mapping[str, Any],
        images: Mapping[str, Image] | None = None,
        *,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Job:
        """See Client.submit."""
        return await self._run(flows.submit(state, questions, images or {}, idempotency_key, fields))

    async def get(self, job_id: str) -> Job:
        """See Client.get."""
        return await self._run(flows.get(job_id))

    async def wait(self, job_id: str, timeout_s: float | None = None) -> Job:
        """See Client.wait."""
        return await self._run(flows.wait(job_id, timeout_s))

    async def ask(
        self,
        state: Any,
        questions: Mapping[str, Any],
        images: Mapping[str, Image] | None = None,
        *,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Job:
        """See Client.ask."""
        submitting = flows.submit(state, questions, images or {}, idempotency_key, fields)
        return await self._run(flows.ask(submitting, timeout_s))

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
        except httpx.TransportError:
            return reply_of(None)
