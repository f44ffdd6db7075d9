"""Batches, for programs that block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from photocall.client import batch_flows as flows
from photocall.client.batch_flows import Batch, Row
from photocall.client.batch_source import Source, packed
from photocall.client.run_protocol import Run

SYSTEMONE = "/v1/systemone"


class Batches:
    """`Client.batches`. Every call raises RequestRefused."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def create(
        self, source: Source, request: Mapping[str, Any] | None = None, *, endpoint: str = SYSTEMONE, **fields: Any
    ) -> Batch:
        """Begin a batch: of a JSONL, zip or tar file, of a folder of pictures, or of pairs of id and request body.

        `request`: what is asked of each picture. `fields`: completion_window, metadata, webhook, idempotency_key.
        """
        with packed(source, endpoint) as file:
            return self._run(flows.create(file, endpoint, request, fields))

    def list(self, *, after: str | None = None, limit: int = 20) -> list[Batch]:
        """One's own batches, newest first; `after`: behind the one with this id."""
        return self._run(flows.batches(after, limit))

    def get(self, batch_id: str) -> Batch:
        """A batch as it is."""
        return self._run(flows.get(batch_id))

    def wait(self, batch_id: str, timeout_s: float | None = None) -> Batch:
        """The batch once it has ended, however. Raises NotAnswered."""
        return self._run(flows.wait(batch_id, timeout_s))

    def results(self, batch_id: str, after: int = 0, *, failed: bool = False, follow: bool = True) -> Iterator[Row]:
        """Its answers as they come, until it has ended; `failed`: the rows without one.

        `after`: the `place` of the last row that was read before. Without `follow`: those that are there now.
        """
        while rows := self._run(flows.page(batch_id, after, failed, follow)):
            after += len(rows)
            yield from rows

    def cancel(self, batch_id: str) -> Batch:
        """End it early; what is answered stays."""
        return self._run(flows.cancel(batch_id))

    def retry_failed(self, batch_id: str, *, idempotency_key: str | None = None) -> Batch:
        """Begin another batch, of the rows that an ended one did not answer."""
        return self._run(flows.retry_failed(batch_id, idempotency_key))

    def delete(self, batch_id: str) -> None:
        """Take a batch that has ended away, with its results."""
        self._run(flows.delete(batch_id))
