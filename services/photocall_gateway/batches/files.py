"""FileShelf: uploaded files on disk, each with its description beside it, by owner.

A file is there once its description is; both are fsynced. What a crash leaves of an upload is swept after a day.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import secrets
import shutil
import sqlite3
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from photocall.errors import CodedError
from photocall.logs import fields
from photocall.settings import DAY_S
from photocall_gateway.batches.places import UPLOAD_ID, Places, new_hex, sync_directory

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as its owner sees it. `expires_at` in seconds since the epoch."""

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: str
    expires_at: int | None

    def shown(self) -> dict[str, Any]:
        """OpenAI's file object."""
        return {**asdict(self), "object": "file", "status": "processed", "status_details": None}


class FileShelf:
    """Keeps files. Every call is blocking and short, but for `sweep`."""

    def __init__(self, places: Places, *, max_files: int, min_free_bytes: int, ttl_s: int) -> None:
        self._places = places
        self._max_files = max_files
        self._min_free = min_free_bytes
        self._ttl_s = ttl_s

    def begin(self, owner: str, announced: int = 0) -> Path:
        """A place for an upload of about `announced` bytes. Raises CodedError `too_many_files` or `disk_full`."""
        directory = self._places.files(owner)
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = sum(1 for _ in directory.glob("*.json"))
        if held >= self._max_files:
            msg = f"{held} files are kept, at most {self._max_files}: delete some first"
            raise CodedError("too_many_files", msg, held=held, allowed=self._max_files)
        self.check_room(announced)
        return directory / f".{secrets.token_hex(12)}.part"

    def check_room(self, more: int = 0) -> None:
        """Raises CodedError `disk_full` unless the disk keeps its reserve with so many bytes more."""
        free = shutil.disk_usage(self._places.root).free
        if free - more < self._min_free:
            raise CodedError("disk_full", f"The disk has {free} bytes free, of which {self._min_free} stay free")

    def keep(
        self,
        owner: str,
        part: Path,
        filename: str,
        purpose: str,
        expires_after_s: int | None,
        file_id: str | None = None,
    ) -> StoredFile:
        """Make an upload, which is on the disk already, a file. `file_id`: the id it is to have."""
        now = int(time.time())
        ttl_s = self._ttl_s if expires_after_s is None else expires_after_s
        file_id = file_id or f"file-{new_hex()}"
        found = StoredFile(file_id, part.stat().st_size, now, filename, purpose, now + ttl_s)
        described = part.with_suffix(".described")
        with described.open("w") as out:
            json.dump(asdict(found), out)
            out.flush()
            os.fsync(out.fileno())
        directory = self._places.files(owner)
        part.rename(directory / f"{file_id}.data")
        described.rename(directory / f"{file_id}.json")
        sync_directory(directory)
        return found

    def get(self, owner: str, file_id: str) -> StoredFile:
        """Raises CodedError `unknown_file`: for another owner's too, and for what no id looks like, as it is a path."""
        if not UPLOAD_ID.fullmatch(file_id):
            raise unknown_file(file_id)
        found = self._read(self._places.files(owner) / f"{file_id}.json")
        if found is None or (found.expires_at is not None and found.expires_at <= time.time()):
            raise unknown_file(file_id)
        return found

    def path(self, owner: str, file_id: str) -> Path:
        """Where its bytes are. For an id that `get` has taken."""
        return self._places.files(owner) / f"{file_id}.data"

    def listing(self, owner: str) -> list[StoredFile]:
        """The owner's files, newest first."""
        now = time.time()
        names = sorted(self._places.files(owner).glob("file-*.json"), reverse=True)
        found = [stored for path in names if (stored := self._read(path)) is not None]
        return [stored for stored in found if stored.expires_at is None or stored.expires_at > now]

    def delete(self, owner: str, file_id: str) -> None:
        """Raises CodedError `unknown_file`. A batch that reads it keeps it for itself."""
        self.get(owner, file_id)
        self._remove(self._places.files(owner), file_id)

    def sweep(self, directory: Path, now: float) -> None:
        """Remove what has expired, and what crashed uploads left."""
        for path in directory.glob("file-*.json"):
            stored = self._read(path)
            if stored is not None and stored.expires_at is not None and stored.expires_at <= now:
                self._remove(directory, path.stem)
        for path in [*directory.glob(".*.part"), *directory.glob(".*.described"), *directory.glob("file-*.data")]:
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < now - DAY_S and not path.with_suffix(".json").exists():
                    path.unlink()

    def _remove(self, directory: Path, file_id: str) -> None:
        for suffix in (".json", ".data"):
            (directory / f"{file_id}{suffix}").unlink(missing_ok=True)

    def _read(self, path: Path) -> StoredFile | None:
        """None for a file that is not there; so is one whose description is damaged, as lists go on without it."""
        try:
            return StoredFile(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            log.error("a file's description cannot be read: %s", error, extra=fields(file=path.stem))
            return None


def unknown_file(file_id: str) -> CodedError:
    """No such file for this caller: which of the reasons, is not told."""
    return CodedError("unknown_file", f"No such File object: {file_id[:80]}")


def is_full(error: BaseException) -> bool:
    """A write failed for want of room; from SQLite, too."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def disk_error(error: OSError | sqlite3.Error) -> CodedError:
    """A write that failed, as what the caller is told. Raises the error itself where it is not about room."""
    if is_full(error):
        return CodedError("disk_full", "The disk is full; nothing was kept")
    raise error
