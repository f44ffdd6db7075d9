"""One ledger, several threads: who closes it waits for who uses it."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from photocall_gateway.batches.batch import Batch, BatchStatus, Head
from photocall_gateway.batches.ledger import Ledger

HEAD = Head("batch_1", "key", "/v1/jobs", "jsonl", "file-1", "24h", 1, 2)


def test_a_statement_that_runs_is_not_closed_under(tmp_path: Path) -> None:
    """A cancelled task leaves its thread in SQLite, and closes: that ended the process by a segmentation fault."""
    ledger = Ledger.create(tmp_path, HEAD)
    inside, go_on, found = threading.Event(), threading.Event(), list[Batch]()

    def hold() -> int:
        inside.set()
        go_on.wait(30)
        return 0

    ledger._db.set_progress_handler(hold, 1)
    reader = threading.Thread(target=lambda: found.append(ledger.batch()))
    reader.start()
    assert inside.wait(30)
    closer = threading.Thread(target=ledger.close)
    closer.start()
    closer.join(0.2)
    assert closer.is_alive()
    go_on.set()
    reader.join(30)
    closer.join(30)
    assert [batch.status for batch in found] == [BatchStatus.VALIDATING]
    with pytest.raises(sqlite3.ProgrammingError):
        ledger.batch()


def test_every_use_takes_its_turn() -> None:
    public = [name for name, method in vars(Ledger).items() if callable(method) and not name.startswith("_")]
    assert {"close", "batch", "write", "add_rows", "leaders_answered"} <= set(public)
    assert all(hasattr(getattr(Ledger, name), "__wrapped__") for name in public)
