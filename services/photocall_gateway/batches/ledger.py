"""Ledger: the SQLite file of one batch: its state, its rows, and how far its results are written.

A row has no answer or exactly one, and a result line belongs to the results once its end is committed here. Whoever
writes holds the fence: every write compares it inside its transaction, so a gateway that lost the batch writes nothing,
into the result files neither. Lines are on the disk before the commit that counts them; what stands behind the
committed end was written by somebody who died before that, and is overwritten.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from types import FunctionType
from typing import Any

from photocall import failpoints
from photocall_gateway.batches.batch import Batch, BatchError, BatchStatus, Head
from photocall_gateway.batches.places import ERRORS, LEDGER, OUTPUT

BUSY_S = 10.0  # another gateway's transaction is a few rows long
OPEN, DONE, FAILED = 0, 1, 2  # states of a row

_SCHEMA = """
CREATE TABLE batch (
    head TEXT NOT NULL, status TEXT NOT NULL, cancel INTEGER NOT NULL DEFAULT 0, fence INTEGER NOT NULL DEFAULT 0,
    total INTEGER NOT NULL DEFAULT 0, completed INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0,
    output_bytes INTEGER NOT NULL DEFAULT 0, output_lines INTEGER NOT NULL DEFAULT 0,
    error_bytes INTEGER NOT NULL DEFAULT 0, error_lines INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0, output_tokens INTEGER NOT NULL DEFAULT 0,
    model TEXT, paused TEXT, times TEXT NOT NULL DEFAULT '{}', errors TEXT NOT NULL DEFAULT '[]'
);
CREATE TABLE rows (
    number INTEGER PRIMARY KEY, custom_id TEXT NOT NULL UNIQUE,
    start INTEGER NOT NULL, length INTEGER NOT NULL, detail TEXT NOT NULL,
    hash BLOB NOT NULL, leader INTEGER, state INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX leaders ON rows (hash) WHERE leader IS NULL;
CREATE INDEX followers ON rows (leader, number) WHERE leader IS NOT NULL AND state = 0;
CREATE INDEX waiting ON rows (number) WHERE leader IS NULL AND state = 0;
CREATE TABLE lines (
    file INTEGER NOT NULL, number INTEGER NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL, row INTEGER NOT NULL,
    PRIMARY KEY (file, number)
) WITHOUT ROWID;
CREATE INDEX line_of ON lines (row);
"""


class FenceLost(Exception):
    """Another gateway has the batch by now."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the input. Where its bytes are: `start`, `length` and `detail` are the input kind's own.

    Rows of equal `hash` are answered once: all but the first have that one's number as `leader`.
    """

    number: int
    custom_id: str
    start: int
    length: int
    detail: str
    hash: bytes = b""


@dataclass(frozen=True, slots=True)
class Line:
    """The answer of a row, as a line of one of the result files, and what it took."""

    row: int
    data: bytes
    ok: bool
    input_tokens: int = 0
    output_tokens: int = 0


def _by_turns(kind: type[Ledger]) -> type[Ledger]:
    """Every public method is one thread's at a time, the closing too.

    A task that is cancelled leaves its `asyncio.to_thread` running: SQLite closed under a statement ends the process.
    """
    for name, method in list(vars(kind).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(kind, name, _in_turn(method))
    return kind


def _in_turn(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Ledger, *arguments: Any, **options: Any) -> Any:
        with self.turn:
            return method(self, *arguments, **options)

    return call


@_by_turns
class Ledger:
    """Blocking: callers on an event loop go through `asyncio.to_thread`. Who comes while it is used waits."""

    def __init__(self, directory: Path, fence: int = 0) -> None:
        if not (directory / LEDGER).exists():
            raise FileNotFoundError(directory / LEDGER)
        self.directory = directory
        self.fence = fence
        self.turn = threading.RLock()
        self._db = _connect(directory / LEDGER)

    @classmethod
    def create(cls, directory: Path, head: Head) -> Ledger:
        """A new batch's, in a directory that is there already."""
        db = _connect(directory / LEDGER)
        db.executescript(_SCHEMA)
        db.execute(
            "INSERT INTO batch (head, status) VALUES (?, ?)", (json.dumps(asdict(head)), BatchStatus.VALIDATING.value)
        )
        db.close()
        for name in (OUTPUT, ERRORS):
            (directory / name).touch(0o600)
        return cls(directory)

    def close(self) -> None:
        """Once whoever uses it is done. What is asked of it later raises sqlite3.ProgrammingError."""
        self._db.close()

    def batch(self) -> Batch:
        """The batch as it stands."""
        row = dict(self._db.execute("SELECT * FROM batch").fetchone())
        head = Head(**json.loads(row.pop("head")))
        times, errors = json.loads(row.pop("times")), json.loads(row.pop("errors"))
        status, cancel = BatchStatus(row.pop("status")), bool(row.pop("cancel"))
        return Batch(head=head, status=status, cancel_asked=cancel, times=times, errors=errors, **row)

    def claim(self, fence: int) -> None:
        """Take the batch under a new fence; whoever had it before writes nothing more. Raises FenceLost."""
        with self._write(check=False):
            if self._db.execute("UPDATE batch SET fence = ? WHERE fence < ?", (fence, fence)).rowcount != 1:
                raise FenceLost
        self.fence = fence

    def ask_cancel(self) -> None:
        """Whoever runs the batch will see it. Any gateway may ask."""
        with self._write(check=False):
            self._db.execute("UPDATE batch SET cancel = 1")
            self._stamp("cancelling_at")

    def set_status(self, status: BatchStatus, errors: Sequence[BatchError] = ()) -> None:
        """Move on. Raises FenceLost."""
        with self._write():
            self._db.execute("UPDATE batch SET status = ?, paused = NULL", (status.value,))
            if errors:
                self._db.execute("UPDATE batch SET errors = ?", (json.dumps([error.shown() for error in errors]),))
            self._stamp(f"{status.value}_at")

    def set_paused(self, why: str | None) -> None:
        """Say why no row is sent at the moment. Raises FenceLost."""
        with self._write():
            self._db.execute("UPDATE batch SET paused = ?", (why,))

    def set_model(self, model: str | None) -> None:
        """The model that the rows ask for. Raises FenceLost."""
        with self._write():
            self._db.execute("UPDATE batch SET model = ?", (model,))

    def clear_rows(self) -> None:
        """Begin the validation anew. Raises FenceLost."""
        with self._write():
            self._db.execute("DELETE FROM rows")
            self._db.execute("UPDATE batch SET total = 0")

    def add_rows(self, rows: Iterable[Row]) -> list[Row]:
        """Note rows of the input; those whose custom_id is there already are not, and come back. Raises FenceLost."""
        refused = []
        with self._write():
            for row in rows:
                found = self._db.execute("SELECT number FROM rows WHERE hash = ? AND leader IS NULL", (row.hash,))
                leader = found.fetchone() if row.hash else None
                values = (*_columns(row), None if leader is None else leader[0])
                done = self._db.execute(
                    "INSERT OR IGNORE INTO rows (number, custom_id, start, length, detail, hash, leader) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    values,
                )
                if done.rowcount:
                    self._db.execute("UPDATE batch SET total = total + 1")
                else:
                    refused.append(row)
        return refused

    def copy_failed(self, parent: Path) -> int:
        """Take over the rows that another batch did not answer, their equality too; how many. Raises FenceLost."""
        self._db.execute("ATTACH DATABASE ? AS parent", (str(parent / LEDGER),))
        try:
            with self._write():
                self._db.execute(
                    f"INSERT INTO rows ({_COLUMNS}, leader) SELECT {_COLUMNS}, nullif(first, number) FROM ("
                    f"  SELECT {_COLUMNS}, min(number) OVER (PARTITION BY coalesce(leader, number)) AS first "
                    "  FROM parent.rows WHERE state != 1)"
                )
                self._db.execute("UPDATE batch SET total = (SELECT count(*) FROM rows)")
                self._db.execute("UPDATE batch SET model = (SELECT model FROM parent.batch)")
        finally:
            self._db.execute("DETACH DATABASE parent")
        return self.batch().total

    def row(self, number: int) -> Row:
        """One row of the input."""
        return _row(self._db.execute(f"SELECT {_COLUMNS} FROM rows WHERE number = ?", (number,)).fetchone())

    def waiting(self, after: int, limit: int) -> list[Row]:
        """Rows without an answer that follow no other one, in order, behind a number."""
        found = self._db.execute(
            f"SELECT {_COLUMNS} FROM rows WHERE leader IS NULL AND state = 0 AND number > ? ORDER BY number LIMIT ?",
            (after, limit),
        )
        return [_row(values) for values in found]

    def unanswered(self, limit: int) -> list[Row]:
        """Rows without an answer, whether they follow another one or not."""
        found = self._db.execute(f"SELECT {_COLUMNS} FROM rows WHERE state = 0 ORDER BY number LIMIT ?", (limit,))
        return [_row(values) for values in found]

    def sample(self, limit: int) -> tuple[int, list[Row]]:
        """How many rows follow no other one, and up to `limit` of them from all over the input."""
        distinct = int(self._db.execute("SELECT count(*) FROM rows WHERE leader IS NULL").fetchone()[0])
        step = max(1, distinct // limit)
        found = self._db.execute(
            f"SELECT {_COLUMNS} FROM rows WHERE leader IS NULL AND number % ? = 0 LIMIT ?", (step, limit)
        )
        return distinct, [_row(values) for values in found] or self.waiting(0, limit)

    def followers(self, leader: int, limit: int) -> list[Row]:
        """Rows without an answer that take that of `leader`."""
        found = self._db.execute(
            f"SELECT {_COLUMNS} FROM rows WHERE leader = ? AND state = 0 ORDER BY number LIMIT ?", (leader, limit)
        )
        return [_row(values) for values in found]

    def leaders_answered(self) -> list[int]:
        """Rows with an answer that others still wait to take; what a gateway that died left."""
        found = self._db.execute(
            "SELECT DISTINCT f.leader FROM rows f JOIN rows l ON l.number = f.leader "
            "WHERE f.leader IS NOT NULL AND f.state = 0 AND l.state != 0"
        )
        return [int(number) for (number,) in found]

    def line_of(self, row: int) -> Line:
        """The committed line of an answered row."""
        file, start, end = self._db.execute("SELECT file, start, end FROM lines WHERE row = ?", (row,)).fetchone()
        with (self.directory / (OUTPUT if file == DONE else ERRORS)).open("rb") as source:
            source.seek(start)
            return Line(row, source.read(end - start), file == DONE)

    def end_of(self, file: int, lines: int) -> int | None:
        """The byte behind the first `lines` lines of a result file (DONE or FAILED); None when it has fewer."""
        if lines == 0:
            return 0
        found = self._db.execute("SELECT end FROM lines WHERE file = ? AND number = ?", (file, lines)).fetchone()
        return None if found is None else int(found[0])

    def write(self, lines: Sequence[Line]) -> int:
        """Answer rows; those that have an answer keep it. How many were written.

        Raises FenceLost, OSError and sqlite3's errors (a full disk among them): then nothing counts.
        """
        with self._write():
            fresh = [line for line in lines if self._is_open(line.row)]
            batch = self.batch()
            ends = {DONE: batch.output_bytes, FAILED: batch.error_bytes}
            counts = {DONE: batch.output_lines, FAILED: batch.error_lines}
            for file, name in ((DONE, OUTPUT), (FAILED, ERRORS)):
                mine = [line for line in fresh if line.ok is (file == DONE)]
                if mine:
                    _write_at(self.directory / name, ends[file], b"".join(line.data for line in mine))
                for line in mine:
                    counts[file] += 1
                    start, ends[file] = ends[file], ends[file] + len(line.data)
                    self._db.execute(
                        "INSERT INTO lines VALUES (?, ?, ?, ?, ?)", (file, counts[file], start, ends[file], line.row)
                    )
                    self._db.execute("UPDATE rows SET state = ? WHERE number = ?", (file, line.row))
            self._db.execute(
                "UPDATE batch SET completed = ?, failed = ?, output_bytes = ?, output_lines = ?, error_bytes = ?, "
                "error_lines = ?, input_tokens = input_tokens + ?, output_tokens = output_tokens + ?",
                (
                    counts[DONE],
                    counts[FAILED],
                    ends[DONE],
                    counts[DONE],
                    ends[FAILED],
                    counts[FAILED],
                    sum(line.input_tokens for line in fresh),
                    sum(line.output_tokens for line in fresh),
                ),
            )
            failpoints.reach("batch.write")
        failpoints.reach("batch.commit")
        return len(fresh)

    def truncate(self) -> None:
        """Cut off what was written and never committed. Raises FenceLost."""
        with self._write():
            batch = self.batch()
            for name, end in ((OUTPUT, batch.output_bytes), (ERRORS, batch.error_bytes)):
                if (self.directory / name).stat().st_size > end:
                    os.truncate(self.directory / name, end)

    def _is_open(self, number: int) -> bool:
        found = self._db.execute("SELECT state FROM rows WHERE number = ?", (number,)).fetchone()
        return found is not None and found[0] == OPEN

    def _stamp(self, name: str) -> None:
        times = json.loads(self._db.execute("SELECT times FROM batch").fetchone()[0])
        times.setdefault(name, int(time.time()))
        self._db.execute("UPDATE batch SET times = ?", (json.dumps(times),))

    @contextmanager
    def _write(self, check: bool = True) -> Iterator[None]:
        """A transaction that nobody else writes beside, under the fence."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            if check and self._db.execute("SELECT fence FROM batch").fetchone()[0] != self.fence:
                raise FenceLost
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


_COLUMNS = "number, custom_id, start, length, detail, hash"


def _columns(row: Row) -> tuple[Any, ...]:
    return row.number, row.custom_id, row.start, row.length, row.detail, row.hash


def _row(values: Sequence[Any]) -> Row:
    return Row(*values)


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        db.row_factory = sqlite3.Row
        db.execute("PRAGMA journal_mode = WAL")  # readers of other gateways wait for nobody
        db.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error:
        db.close()
        raise
    return db


def _write_at(path: Path, offset: int, data: bytes) -> None:
    """On the disk when this returns. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        view = memoryview(data)
        while view:
            written = os.pwrite(descriptor, view, offset)
            view, offset = view[written:], offset + written
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
