"""The client for programs that block."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Self

import httpx

from photocall.client import flows
from photocall.client.batch_items import EVERY_COLUMN, Columns, given, split
from photocall.client.batch_run import BatchRun
from photocall.client.event_stream import READ_S, Event, EventStream
from photocall.client.flows import Call, Flow, Look, Pause, T
from photocall.client.pictures import Images
from photocall.client.questions import Questions
from photocall.client.shown import Job
from photocall.client.sync_batches import Batches
from photocall.client.sync_calibrations import Calibrations
from photocall.client.transport import arguments, no_reply, options, reply_of


class Client:
    """Calls to one server, over connections that are kept. Threads may share it.

    Without a URL it asks `PHOTOCALL_URL` with `PHOTOCALL_API_KEY`, else a server on this machine.
    """

    def __init__(
        self, base_url: str | None = None, api_key: str | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        self._http = httpx.Client(transport=transport, **options(base_url, api_key))
        self.batches = Batches(self._run)
        self.calibrations = Calibrations(self._run)

    def ask(
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
        """Ask, and wait for the answers: `submit` and `wait`. Raises JobFailed for a job that ends without any."""
        submitting = flows.submit(images, questions, state, idempotency_key, fields)
        return self._run(flows.ask(submitting, timeout_s, on_progress))

    def submit(
        self,
        images: Images,
        questions: Questions,
        *,
        state: Any = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Job:
        """Hand a job over; it runs whether or not anybody waits. Raises RequestRefused.

        `state`: what the questions are about, in words (a text, or JSON), with the pictures where they are named:
        `[image 1]`, or the words of a mapping. Without it the pictures stand by themselves. `fields`: budget, order,
        abstain, calibration, provenance, priority, deadline_s, metadata, webhook, model.
        """
        return self._run(flows.submit(images, questions, state, idempotency_key, fields))

    def wait(self, job: Job | str, timeout_s: float | None = None, *, on_progress: Look | None = None) -> Job:
        """The job once it has ended, however. Raises NotAnswered or RequestRefused."""
        return self._run(flows.wait(job, timeout_s, on_progress))

    def stream(
        self,
        images: Images,
        questions: Questions,
        *,
        state: Any = None,
        idempotency_key: str | None = None,
        **fields: Any,
    ) -> Iterator[Event]:
        """Ask, and see what happens: states, and texts as they are made. The last event, `ended`, has the job."""
        job = self.submit(images, questions, state=state, idempotency_key=idempotency_key, **fields)
        yield from self.events(job)

    def events(self, job: Job | str, after: str | None = None) -> Iterator[Event]:
        """What happened to a job and what happens yet, over lost connections too; `after`: behind this event's id."""
        found = self.get(job)
        stream = EventStream(found.id, after)
        while True:
            ended = found.ended
            try:
                with self._http.stream("GET", stream.path, headers=stream.headers, timeout=READ_S) as response:
                    if response.status_code != 200:
                        response.read()
                        time.sleep(stream.broken(reply_of(response)))
                        continue
                    for piece in response.iter_bytes():
                        yield from stream.feed(piece)
            except httpx.TransportError as error:
                time.sleep(stream.broken(no_reply(self._http.base_url, error)))
                ended = False
            found = self.get(found)
            if ended:
                yield Event("ended", {}, job=found)
                return

    def batch(
        self,
        source: Any,
        questions: Questions | None = None,
        *,
        state: Any = None,
        columns: Columns = EVERY_COLUMN,
        key: str | None = None,
        progress: bool | None = None,
        **fields: Any,
    ) -> BatchRun:
        """Ask the same of many pictures: a batch on the server, whose rows are answered when there is room.

        `source`: a folder, an archive, a glob ("shots/**/*.jpg"), a list of pictures, pictures by id, a table (a
        DataFrame, one of Arrow's, a list of dicts, a JSONL file: its column `image`, or the one that `columns` names,
        is the picture), or a JSONL file of whole requests, which needs no questions.
        `state`: as in `submit`; its texts name columns of a table in braces, or it is a function of the row.
        `key`: the same source under the same key is the same batch, for a day, whichever program comes with it; so who
        was interrupted goes on. `progress`: a bar; None: where somebody looks on. `fields`: completion_window, metadata
        and webhook of the batch; budget, order, abstain, calibration, deadline_s and model of each row.
        Raises RequestRefused, OSError for a picture that cannot be read, ValueError and TypeError for what is none.
        """
        own, of_rows = split(fields)
        made = given(source, questions, state, columns, of_rows)
        batch = self.batches.create(made.source, made.request, endpoint=made.endpoint, idempotency_key=key, **own)
        return BatchRun(self._run, batch, made.labels, progress)

    def resume(self, batch_id: str, *, progress: bool | None = None) -> BatchRun:
        """A batch that was begun before, by whomever: its rows from the first on."""
        return BatchRun(self._run, self.batches.get(batch_id), None, progress)

    def get(self, job: Job | str) -> Job:
        """A job as it is. Raises RequestRefused."""
        return self._run(flows.get(job))

    def jobs(self, status: str | None = None, *, after: str | None = None, limit: int = 20) -> list[Job]:
        """One's own jobs, newest first; `after`: behind the one with this id."""
        return self._run(flows.jobs(status, after, limit))

    def replay(self, job: Job | str, timeout_s: float | None = None) -> Job:
        """Ask again what a job asked that had `provenance=True`, and wait. Raises RequestRefused or JobFailed."""
        return self._run(flows.ask(flows.replay(job), timeout_s))

    def cancel(self, job: Job | str) -> Job:
        """End a job early."""
        return self._run(flows.cancel(job))

    def delete(self, job: Job | str) -> None:
        """Cancel and forget a job, with the pictures that came with it."""
        self._run(flows.delete(job))

    def models(self) -> list[str]:
        """The names that the server's models answer to."""
        return self._run(flows.models())

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
        except httpx.TransportError as error:
            return no_reply(self._http.base_url, error)
