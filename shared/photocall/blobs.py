"""Where patch blobs are: a directory in memory (tmpfs) on one host, or a Redis of their own (`redis_blobs.py`)."""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from contextlib import suppress
from pathlib import Path

from photocall.blob_store import DEFAULT_MAX_BYTES, SWEEP_SHARE, SWEPT, TTL_S, BlobsFull, BlobStore, Data
from photocall.redis_blobs import RedisBlobs

STALE_S = 600.0  # a temporary file this old was left by a process that died
_UNSWEPT = ".unswept"
_UNIT = 4096  # bytes of blobs to one of that file
_NAME = re.compile(r"[0-9a-zA-Z][0-9a-zA-Z_-]{0,200}")


class DirBlobs:
    """Blobs as files of one directory (0700), bounded in bytes and in time, the longest unused removed first."""

    def __init__(self, directory: Path, max_bytes: int = DEFAULT_MAX_BYTES, ttl_s: float = TTL_S) -> None:
        self._dir = directory
        self._ttl_s = ttl_s
        self._max_bytes = max_bytes
        self._unswept = directory / _UNSWEPT
        self._make()

    def put(self, key: str, data: Data) -> None:
        """Write and rename. On a full disk half of what is there goes first. A directory that went comes back.

        Raises BlobsFull when that was not enough.
        """
        try:
            self._write(key, data)
        except FileNotFoundError:
            self._make()
            self._write(key, data)
        except BlobsFull:
            self._remove_down_to(self._held() // 2)
            self._write(key, data)
        if self._count(len(data)) * SWEEP_SHARE >= self._max_bytes:
            self.sweep()

    def get(self, key: str) -> bytes | None:
        """Read, and mark as used."""
        path = self._path(key)
        try:
            data = path.read_bytes()
            os.utime(path)
        except FileNotFoundError:
            return None
        return data

    def size(self, key: str) -> int | None:
        """Look, and mark as used."""
        path = self._path(key)
        try:
            os.utime(path)
            return path.stat().st_size
        except FileNotFoundError:
            return None

    def remove(self, key: str) -> None:
        """Unlink."""
        self._path(key).unlink(missing_ok=True)

    def remove_all(self, prefix: str) -> None:
        """Unlink."""
        with suppress(FileNotFoundError), os.scandir(self._path(prefix).parent) as entries:
            for entry in entries:
                if entry.name.startswith(prefix):
                    self.remove(entry.name)

    def held(self) -> int:
        """Counted file by file."""
        with suppress(FileNotFoundError):
            return self._held()
        return 0

    def sweep(self) -> int:
        """Down to seven eighths of the bound, so that the writers between two sweeps stay within it."""
        with suppress(FileNotFoundError):
            os.truncate(self._unswept, 0)
        old = time.time() - self._ttl_s
        return self._remove_down_to(int(self._max_bytes * SWEPT), used_before=old)

    def _make(self) -> None:
        self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(self._dir, 0o700)

    def _count(self, size: int) -> int:
        """Bytes put since the last sweep by all processes: the length of a file that each lengthens, in units.

        Appending is atomic, so the writers need no lock. Nothing is counted while the disk is too full for it.
        """
        try:
            descriptor = os.open(self._unswept, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, bytes(-(-size // _UNIT)))
                return os.fstat(descriptor).st_size * _UNIT
            finally:
                os.close(descriptor)
        except OSError:
            return self._max_bytes

    def _write(self, key: str, data: Data) -> None:
        path = self._path(key)
        mine = self._dir / f".{secrets.token_hex(8)}"
        try:
            mine.write_bytes(data)
            mine.replace(path)
        except OSError as error:
            mine.unlink(missing_ok=True)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise BlobsFull(error.errno, f"no room for {len(data)} bytes of a blob") from error
            raise

    def _held(self) -> int:
        return sum(size for _, size, _ in self._files())

    def _files(self) -> list[tuple[float, int, str]]:
        found = []
        with os.scandir(self._dir) as entries:
            for entry in entries:
                try:
                    stat = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # another process swept it
                if entry.name == _UNSWEPT or (entry.name.startswith(".") and time.time() - stat.st_mtime < STALE_S):
                    continue  # the latter is being written
                found.append((stat.st_mtime, stat.st_size, entry.name))
        return found

    def _remove_down_to(self, wanted: int, used_before: float = float("-inf")) -> int:
        files = sorted(self._files())
        held = sum(size for _, size, _ in files)
        removed = 0
        for used_at, size, name in files:
            if held <= wanted and used_at >= used_before and not name.startswith("."):
                break
            (self._dir / name).unlink(missing_ok=True)
            held -= size
            removed += 1
        return removed

    def _path(self, key: str) -> Path:
        if not _NAME.fullmatch(key):
            raise ValueError(f"{key!r} cannot name a blob")
        return self._dir / key


def open_blobs(url: str, max_bytes: int = DEFAULT_MAX_BYTES) -> BlobStore:
    """The store of `PHOTOCALL_BLOBS`: `dir:/path` or a Redis URL."""
    if url.startswith("dir:"):
        return DirBlobs(Path(url.removeprefix("dir:")), max_bytes)
    return RedisBlobs(url, max_bytes)
