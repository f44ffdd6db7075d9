"""A batch that runs, for programs that block: its rows as they come, with a bar, and its answers as a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

from photocall.client import batch_flows as flows
from photocall.client import tables
from photocall.client.batch_flows import Batch, News, Row
from photocall.client.card import batch_card
from photocall.client.errors import BatchFailed, ClientError
from photocall.client.progress import Progress
from photocall.client.run_protocol import Run

LONGEST_LOOK_S = 1.0  # where somebody looks on


class Reading:
    """How far the rows of a batch are read, and how long to wait for more."""

    def __init__(self) -> None:
        self.answered = self.failed = 0
        self.ended = False
        self.pause_s = 0.0

    def take(self, news: News) -> list[Row]:
        """The rows that came."""
        self.answered += len(news.answered)
        self.failed += len(news.failed)
        rows = [*news.answered, *news.failed]
        self.ended = news.batch.ended and not rows
        if self.ended and (errors := news.batch.errors):
            raise BatchFailed(news.batch.id, errors)
        longer_s = min(LONGEST_LOOK_S, 2 * self.pause_s or flows.FIRST_LOOK_S)
        self.pause_s = 0.0 if rows or self.ended else longer_s
        return rows


class RunView:
    """What is known of a batch that runs, and its rows as tables."""

    def __init__(self, run: Any, batch: Batch, labels: Sequence[Any] | None, progress: bool | None) -> None:
        self._run = run
        self._labels = labels
        self._progress = progress
        self.batch = batch

    @property
    def id(self) -> str:
        """What `client.resume` finds it by."""
        return self.batch.id

    @property
    def status(self) -> str:
        """As the server last said."""
        return self.batch.status

    @property
    def counts(self) -> dict[str, int]:
        """Rows: `total`, `completed`, `failed`; as the server last said."""
        return self.batch.counts

    def __repr__(self) -> str:
        counts = self.counts
        told = f"{counts['completed']} of {counts['total']} answered, {counts['failed']} failed"
        return f"<batch {self.id} {self.status}: {told}>"

    def _repr_html_(self) -> str:
        return batch_card(self.batch)

    def _frame(self, rows: list[Row], probabilities: bool) -> Any:
        rows.sort(key=lambda row: row.number)
        frame = tables.to_pandas(rows, probabilities=probabilities)
        if self._labels is None or not len(frame):
            return frame.set_index("id") if len(frame) else frame
        frame.index = [self._labels[row.number - 1] for row in rows]
        return frame.drop(columns="id")


class BatchRun(RunView):
    """Iterate over it for its rows as they come, those without an answer too; as often as wanted: the server has them.

    A batch whose input cannot be run has no rows: waiting for it raises BatchFailed, which says why.
    Ctrl-C while it is waited for ends the batch on the server, too; what is answered stays. In a `with` block so does
    whatever else ends the block early. To leave it to itself, do neither, and come back with `client.resume`.
    """

    _run: Run

    def __iter__(self) -> Iterator[Row]:
        reading = Reading()
        try:
            with Progress(self._progress, self.batch.ended) as bar:
                while not reading.ended:
                    news = self._run(flows.news(self.id, reading.answered, reading.failed))
                    self.batch = news.batch
                    rows = reading.take(news)
                    bar.show(news.batch)
                    yield from rows
                    self._run(flows.rest(reading.pause_s))
        except KeyboardInterrupt:
            self.cancel()
            raise

    def wait(self) -> Batch:
        """The batch once it has ended, however, without reading its rows."""
        reading = Reading()
        try:
            with Progress(self._progress, self.batch.ended) as bar:
                while not reading.ended:
                    self.batch = self._run(flows.get(self.id))
                    reading.take(News(self.batch, [], []))
                    bar.show(self.batch)
                    self._run(flows.rest(reading.pause_s))
        except KeyboardInterrupt:
            self.cancel()
            raise
        return self.batch

    def failed(self) -> list[Row]:
        """The rows without an answer, once it has ended."""
        return [row for row in self if not row.ok]

    def to_rows(self, *, probabilities: bool = False) -> list[dict[str, Any]]:
        """A dict for each row, in the order of the input; see tables.py."""
        return list(tables.to_rows(self._in_order(), probabilities=probabilities))

    def to_pandas(self, *, probabilities: bool = False) -> Any:
        """A DataFrame in the order of the input. Its index is the ids, or that of the frame which the batch is of."""
        return self._frame(list(self), probabilities)

    def to_arrow(self, *, probabilities: bool = False) -> Any:
        """A table of pyarrow, in the order of the input."""
        return tables.to_arrow(self._in_order(), probabilities=probabilities)

    def cancel(self) -> Batch:
        """End it early; what is answered stays."""
        self.batch = self._run(flows.cancel(self.id))
        return self.batch

    def retry_failed(self) -> BatchRun:
        """Begin another batch, of the rows that this one did not answer."""
        return BatchRun(self._run, self._run(flows.retry_failed(self.id, None)), None, self._progress)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or self._run(flows.get(self.id)).ended:
            return
        try:
            self.cancel()
        except ClientError as refused:
            error.add_note(f"batch {self.id} was not cancelled: {refused}")

    def _in_order(self) -> list[Row]:
        return sorted(self, key=lambda row: row.number)
