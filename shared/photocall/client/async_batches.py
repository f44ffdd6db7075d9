"""Batches, for programs on asyncio; see sync_batches.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from photocall.client import batch_flows as flows
from photocall.client.batch_flows import Batch, Row
from photocall.client.batch_source import Source, packed
from photocall.client.run_protocol import AsyncRun
from photocall.client.sync_batches import SYSTEMONE


class AsyncBatches:
    """`AsyncClient.batches`: as Batches, with coroutines."""

    def __init__(self, run: AsyncRun) -> None:
        self._run = run

    async def create(
        self, source: Source, request: Mapping[str, Any] | None = None, *, endpoint: str = SYSTEMONE, **fields: Any
    ) -> Batch:
        """See Batches.create."""
        packing = packed(source, endpoint)
        file = await asyncio.to_thread(packing.__enter__)  # a folder may be large
        try:
            return await self._run(flows.create(file, endpoint, request, fields))
        finally:
            await asyncio.to_thread(packing.__exit__, None, None, None)

    async def list(self, *, after: str | None = None, limit: int = 20) -> list[Batch]:
        """One's own batches, newest first; `after`: behind the one with this id."""
        return await self._run(flows.batches(after, limit))

    async def get(self, batch_id: str) -> Batch:
        """See Batches.get."""
        return await self._run(flows.get(batch_id))

    async def wait(self, batch_id: str, timeout_s: float | None = None) -> Batch:
        """See Batches.wait."""
        return await self._run(flows.wait(batch_id, timeout_s))

    async def results(
        self, batch_id: str, after: int = 0, *, failed: bool = False, follow: bool = True
    ) -> AsyncIterator[Row]:
        """See Batches.results."""
        while rows := await self._run(flows.page(batch_id, after, failed, follow)):
            after += len(rows)
            for row in rows:
                yield row

    async def cancel(self, batch_id: str) -> Batch:
        """See Batches.cancel."""
        return await self._run(flows.cancel(batch_id))

    async def retry_failed(self, batch_id: str, *, idempotency_key: str | None = None) -> Batch:
        """See Batches.retry_failed."""
        return await self._run(flows.retry_failed(batch_id, idempotency_key))

    async def delete(self, batch_id: str) -> None:
        """See Batches.delete."""
        await self._run(flows.delete(batch_id))
