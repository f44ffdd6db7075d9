"""Follower: writes a batch's results as they come, until it has ended; and what Ctrl-C means meanwhile."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from photocall.cli.output import Progress
from photocall.cli.parser import PROGRAM, warn
from photocall.cli.result_file import ResultFile
from photocall.cli.run_state import RunState, failures_file, state_file
from photocall.cli.server import Server
from photocall.client import Batch, RequestRefused

BOUNCE_S = 0.2  # one press may arrive twice, to the process and to its group
GRACE_S = 2.0  # between Ctrl-C and the cancel that follows it
FIRST_LOOK_S, LAST_LOOK_S = 0.1, 1.0
COMMIT_LINES, COMMIT_S = 500, 1.0
PATIENCE_S = 600.0  # with a server that does not answer


class Detached(Exception):
    """The second Ctrl-C: whoever runs this wants to go."""


class Interrupts:
    """Ctrl-C once: cancel in a moment, and write what is there. Twice: leave; within the moment, without cancelling."""

    def __init__(self, batch_id: str) -> None:
        self.cancelled = False
        self._batch_id = batch_id
        self._first_at: float | None = None
        self._after: Any = signal.SIG_DFL  # what Ctrl-C means behind the `with` block; filled there

    def act(self, server: Server) -> None:
        """Cancel, where that is wanted and the moment is over."""
        if self.cancelled or self._first_at is None or time.monotonic() - self._first_at < GRACE_S:
            return
        self.cancelled = True
        try:
            server.batches.cancel(self._batch_id)
        except RequestRefused as refused:
            if refused.code != "batch_state":  # it has ended meanwhile
                raise

    def __enter__(self) -> Self:
        self._after = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._after)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._first_at is not None:
            if time.monotonic() - self._first_at > BOUNCE_S:
                self._after = signal.SIG_IGN  # whoever is on the way out hears no third one
                signal.signal(signal.SIGINT, self._after)
                raise Detached
            return
        self._first_at = time.monotonic()
        warn(
            f"\n{PROGRAM} batch run: cancelling {self._batch_id} in {GRACE_S:.0f} s and writing what is answered;"
            " Ctrl-C again leaves it running"
        )


class Follower:
    """The results of one batch into two files, from where `state` says they are; `state` moves along."""

    def __init__(self, server: Server, state: RunState, output: Path, progress: Progress) -> None:
        """Raises Unable and OSError; see ResultFile."""
        assert state.batch_id is not None
        self.state = state
        self._id = state.batch_id
        self._server = server
        self._file = state_file(output)
        self._answers = ResultFile(output, state.answers)
        self._failures = ResultFile(failures_file(output), state.failures)
        self._progress = progress
        self._began: tuple[float, int] | None = None

    def to_the_end(self, interrupts: Interrupts) -> Batch:
        """The batch once it has ended and everything of it is written. Raises Detached, RequestRefused, OSError."""
        pause_s = FIRST_LOOK_S
        away_since: float | None = None
        while True:
            try:
                batch = self._server.batches.get(self._id)  # before its lines: if it had ended, these are the last
                moved = self._take(self._answers, failed=False) + self._take(self._failures, failed=True)
                if batch.ended:
                    counts = batch.counts
                    self._commit(unanswered=counts["total"] - counts["completed"])
                    return batch
                self._show(batch)
                interrupts.act(self._server)
                away_since = None
            except RequestRefused as refused:
                if refused.status:
                    raise
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > PATIENCE_S:
                    raise
                self._progress.show("the server does not answer; trying again")
                continue
            pause_s = FIRST_LOOK_S if moved else min(2 * pause_s, LAST_LOOK_S)
            time.sleep(pause_s)

    def _take(self, into: ResultFile, *, failed: bool) -> int:
        """Write the lines that are there; how many. What waits when a call fails is written with the next."""
        found = 0
        committed = time.monotonic()
        for row in self._server.batches.results(self._id, into.lines, failed=failed, follow=False):
            into.add(row.line)
            found += 1
            if into.dirty >= COMMIT_LINES or time.monotonic() - committed > COMMIT_S:
                self._commit()
                committed = time.monotonic()
        if into.dirty:
            self._commit()
        return found

    def _commit(self, **fields: Any) -> None:
        """The files first: what the state counts is there."""
        answers, failures = self._answers.commit(), self._failures.commit()
        self.state = replace(self.state, answers=answers, failures=failures, **fields)
        self.state.write(self._file)

    def _show(self, batch: Batch) -> None:
        counts, now = batch.counts, time.monotonic()
        done = counts["completed"] + counts["failed"]
        began_at, began_with = self._began = self._began or (now, done)
        rate = (done - began_with) / (now - began_at) if now > began_at + 1 else 0.0
        left = f", {rate:.1f}/s, {(counts['total'] - done) / rate:.0f} s left" if rate else ""
        paused = f", paused: {batch.fields['paused']}" if batch.fields.get("paused") else ""
        failed = f", {counts['failed']:,} failed" if counts["failed"] else ""
        self._progress.show(f"{batch.status}: {done:,} of {counts['total']:,} rows{failed}{left}{paused}")
