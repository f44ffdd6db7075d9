"""The client for programs that block."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from photocall.client import flows
from photocall.client.flows import Call, Flow, Image, Job, Pause, T
from photocall.client.sync_batches import Batches
from photocall.client.transport import arguments, options, reply_of


class Client:
    """Calls to one server, over connections that are kept. Threads may share it."""

    def __init__(self, base_url: str, api_key: str | None = None, transport: httpx.BaseTransport | None = None) -> None:
        self._http = httpx.Client(transport=transport, **options(base_url, api_key))
        self.batches = Batches(self._run)

    def submit(
        self,
        state: Any,
        questions: Mapping[str, Any],
        images: Mapping[str, Image] | None = None,
        *,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Job:
        """Hand a job over; it runs whether or not anybody waits. Raises RequestRefused.

        `images`: what each word of the request stands for. `fields`: priority, deadline_s, metadata, webhook, model.
        """
        return self._run(flows.submit(state, questions, images or {}, idempotency_key, fields))

    def get(self, job_id: str) -> Job:
        """A job as it is. Raises RequestRefused."""
        return self._run(flows.get(job_id))

    def wait(self, job_id: str, timeout_s: float | None = None) -> Job:
        """The job once it has ended, however. Raises NotAnswered or RequestRefused."""
        return self._run(flows.wait(job_id, timeout_s))

    def ask(
        self,
        state: Any,
        questions: Mapping[str, Any],
        images: Mapping[str, Image] | None = None,
        *,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Job:
        """`submit` and `wait`. Raises JobFailed for a job that ends without answers."""
        return self._run(flows.ask(flows.submit(state, questions, images or {}, idempotency_key, fields), timeout_s))

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, flow: Flow[T]) -> T:
        reply = None
        try:
            while True:
                step = flow.send(reply)
                if isinstance(step, Pause):
                    time.sleep(step.seconds)
                    reply = None
                else:
                    reply = self._call(step)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _call(self, call: Call) -> flows.Reply:
        try:
            with arguments(call) as fields:
                return reply_of(self._http.request(call.method, call.path, **fields))
        except httpx.TransportError:
            return reply_of(None)
