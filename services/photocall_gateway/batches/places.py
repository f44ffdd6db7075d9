"""Where files and batches lie below the state directory, and what their ids look like.

All gateways of a machine share the directory. Ids begin with the time, so that names in order are in order of creation.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import time
from pathlib import Path

UPLOAD_ID = re.compile(r"file-[0-9a-f]{24}")
FILE_ID = re.compile(r"file-([0-9a-f]{24})(-output|-errors)?")
BATCH_ID = re.compile(r"batch_[0-9a-f]{24}")
INPUT, OUTPUT, ERRORS, LEDGER = "input", "output.jsonl", "errors.jsonl", "ledger.sqlite"


class Places:
    """Paths only; nothing here reads or writes but `make`."""

    def __init__(self, data: Path) -> None:
        self.root = data
        self._files, self._batches = data / "files", data / "batches"
        self.live = data / "batches" / "live"  # an empty file for each batch that has not ended: <owner tag>.<batch id>

    def make(self) -> None:
        """The directories that are always there."""
        for directory in (self._files, self._batches, self.live):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def files(self, owner: str) -> Path:
        """An owner's uploaded files."""
        return self._files / tag(owner)

    def batches(self, owner: str) -> Path:
        """An owner's batches, a directory each."""
        return self._batches / tag(owner)

    def batch(self, owner: str, batch_id: str) -> Path:
        """One batch: its input, its ledger, its results."""
        return self.batches(owner) / batch_id

    def marker(self, owner: str, batch_id: str) -> Path:
        """What says that a batch has not ended."""
        return self.live / f"{tag(owner)}.{batch_id}"

    def marked(self, marker: Path) -> Path:
        """The directory of the batch that a marker stands for."""
        owner_tag, _, batch_id = marker.name.partition(".")
        return self._batches / owner_tag / batch_id

    def find(self, batch_id: str) -> Path | None:
        """The directory of a batch, whoever has it; None where nobody has."""
        found = (owner / batch_id for owner in self._batches.iterdir() if owner != self.live)
        return next((directory for directory in found if (directory / LEDGER).exists()), None)

    def owners(self) -> list[Path]:
        """Directories of every owner, of files and of batches."""
        found = [*self._files.iterdir(), *(path for path in self._batches.iterdir() if path != self.live)]
        return [path for path in found if path.is_dir()]


def tag(owner: str) -> str:
    """An owner's directory: no character of an id becomes a path."""
    return hashlib.sha256(owner.encode()).hexdigest()[:24]


def new_hex(now: float | None = None) -> str:
    """24 hex digits: milliseconds, then chance."""
    return f"{int((time.time() if now is None else now) * 1000):012x}{secrets.token_hex(6)}"


def sync_directory(directory: Path) -> None:
    """New names in it are on the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
