"""RunState: how far a `photocall batch run` is, in a file beside its output, so that the same command goes on."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from photocall.cli.errors import Unable

VERSION = 1
SUFFIX = ".photocall"
KEY_S = 23 * 3600.0  # a server knows an idempotency key for a day


@dataclass(frozen=True, slots=True)
class Place:
    """How far one file of results is written: lines of this batch in it, and its bytes in all."""

    lines: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class RunState:
    """What was asked for (`fingerprint`), under which key since when, and what has come of it.

    `rows`: the sha256 of rows that came on standard input; None where they are a file's or a folder's.
    `batch_id`: None while it is not known that the batch has begun; the same key finds it. `retry_of`: the batch whose
    unanswered rows this one is about. `unanswered`: rows without an answer, once the batch has ended and all of it is
    written.
    """

    fingerprint: str
    key: str
    key_at: float
    batch_id: str | None = None
    retry_of: str | None = None
    unanswered: int | None = None
    rows: str | None = None
    answers: Place = field(default_factory=Place)
    failures: Place = field(default_factory=Place)

    @classmethod
    def begin(cls, fingerprint: str, rows: str | None = None) -> Self:
        """Of a run that nothing has come of."""
        return cls(fingerprint, secrets.token_hex(16), time.time(), rows=rows)

    @property
    def lost(self) -> bool:
        """Nobody knows any more whether the batch has begun."""
        return self.batch_id is None and time.time() - self.key_at > KEY_S

    def again(self) -> Self:
        """Of the rows that an ended batch did not answer. What was said of their failure goes: they are asked again."""
        return replace(
            self,
            key=secrets.token_hex(16),
            key_at=time.time(),
            batch_id=None,
            retry_of=self.batch_id,
            unanswered=None,
            answers=replace(self.answers, lines=0),
            failures=Place(),
        )

    def write(self, file: Path) -> None:
        """All or nothing, and on the disk. Raises OSError."""
        written = file.with_name(f"{file.name}.new")
        with written.open("w", encoding="utf-8") as out:
            out.write(json.dumps({"version": VERSION, **asdict(self)}))
            out.flush()
            os.fsync(out.fileno())
        written.replace(file)

    @classmethod
    def read(cls, file: Path) -> Self | None:
        """None where there is none. Raises Unable for one that cannot be read."""
        try:
            fields: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            if fields.pop("version") != VERSION:
                raise Unable(f"{file} was written by another version: go on with that one, or remove it to begin anew")
            places = {name: Place(**fields.pop(name)) for name in ("answers", "failures")}
            return cls(**(fields | places))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Unable(f"{file} is damaged: remove it, and the output, to begin anew") from None


def state_file(output: Path) -> Path:
    """Beside the output."""
    return output.with_name(output.name + SUFFIX)


def failures_file(output: Path) -> Path:
    """Where the rows without an answer go: `out.errors.jsonl` beside `out.jsonl`."""
    return output.with_name(f"{output.stem}.errors{output.suffix}")


def fingerprint(source: Path | None, asked: Any) -> str:
    """Another one for another input, for one that has changed, and for other questions. OSError.

    None is a stream, which has `RunState.rows` instead.
    """
    found = hashlib.sha256(json.dumps(asked, sort_keys=True).encode())
    for path in _files(source) if source is not None else ():
        about = path.stat()
        found.update(b"\n" + os.fsencode(path) + f" {about.st_size} {about.st_mtime_ns}".encode())
    return found.hexdigest()


def _files(source: Path) -> Iterable[Path]:
    if not source.is_dir():
        return [source]
    return sorted(path for path in source.rglob("*") if path.is_file() and not path.is_symlink())
