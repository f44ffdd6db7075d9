"""A follower writes each row once, whatever becomes of the calls that read them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from photocall.cli.follower import Follower, Interrupts
from photocall.cli.output import Progress
from photocall.cli.run_state import Place, RunState, state_file
from photocall.cli.server import Server
from photocall.client import Batch
from photocall.client.batch_flows import Row
from photocall.client.errors import refused

ROWS, PAGE = 60, 20


class Flaky:
    """`server.batches` of a batch with `ROWS` answers: `PAGE` more with each look, every second page call lost."""

    def __init__(self) -> None:
        self.there = 0
        self._calls = 0

    def get(self, batch_id: str) -> Batch:
        ended = self.there == ROWS
        self.there = min(self.there + PAGE, ROWS)
        counts = {"total": ROWS, "completed": ROWS if ended else 0, "failed": 0}
        return Batch({"id": batch_id, "status": "completed" if ended else "in_progress", "request_counts": counts})

    def results(self, batch_id: str, after: int = 0, *, failed: bool, follow: bool) -> Iterator[Row]:
        while not failed:
            self._calls += 1
            if self._calls % 2 == 0:
                raise refused(0, {"detail": "no answer"})
            rows = range(after, min(after + PAGE, self.there))
            if not rows:
                return
            yield from (Row(number + 1, {"row": number}) for number in rows)
            after += len(rows)


class FlakyServer:
    def __init__(self) -> None:
        self.batches = Flaky()


def test_a_page_that_does_not_come_doubles_no_row_and_loses_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that waited were read and written again; the count then skipped as many behind them."""
    monkeypatch.setattr("photocall.cli.follower.time.sleep", lambda seconds: None)
    output = tmp_path / "out.jsonl"
    state = replace(RunState.begin("f"), batch_id="batch_1")
    with Progress() as progress:
        follows = Follower(cast(Server, cast(Any, FlakyServer())), state, output, progress)
        assert follows.to_the_end(Interrupts("batch_1")).ended
    assert [json.loads(line)["row"] for line in output.read_text().splitlines()] == list(range(ROWS))
    kept = RunState.read(state_file(output))
    assert kept is not None
    assert (kept.answers, kept.unanswered) == (Place(ROWS, output.stat().st_size), 0)
