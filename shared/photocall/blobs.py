"""Patch blobs: prepared pictures on their way from prep to the engine. Derived, so any of them may vanish.

A directory in memory (tmpfs) on one host, a second Redis without persistence across hosts. What is in a blob is not
known here.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import time
from pathlib import Path
from typing import Protocol, cast

from photocall import keys
from photocall.connections import connect

DEFAULT_MAX_BYTES = 512 << 20
STALE_S = 600.0  # a temporary file this old was left by a process that died
TTL_S = 3600  # of one that nobody uses; as long as a picture that no job needs
_NAME = re.compile(r"[0-9a-zA-Z][0-9a-zA-Z_-]{0,200}")


class BlobsFull(OSError):
    """There is no room for a blob, and none could be made: somebody else has filled the disk."""


class BlobStore(Protocol):
    """Named bytes that may vanish."""

    def put(self, key: str, data: bytes) -> None:
        """Store; a reader sees all of it or nothing. Raises BlobsFull, or redis' errors."""

    def get(self, key: str) -> bytes | None:
        """The bytes, or None when they were never there or have vanished."""

    def remove(self, key: str) -> None:
        """Remove one; nothing happens when it is not there."""

    def sweep(self) -> int:
        """Remove what nobody used for long, and what is over the bound, the longest unused first; how many went."""


class DirBlobs:
    """Blobs as files of one directory (0700), bounded in bytes and in time, the longest unused removed first."""

    def __init__(self, directory: Path, max_bytes: int = DEFAULT_MAX_BYTES, ttl_s: float = TTL_S) -> None:
        self._dir = directory
        self._ttl_s = ttl_s
        self._max_bytes = max_bytes
        self._unswept = 0  # bytes put by this process since its last sweep
        self._make()

    def put(self, key: str, data: bytes) -> None:
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
        self._unswept += len(data)
        if self._unswept * 16 >= self._max_bytes:
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

    def remove(self, key: str) -> None:
        """Unlink."""
        self._path(key).unlink(missing_ok=True)

    def sweep(self) -> int:
        """Down to seven eighths of the bound, so that the writers between two sweeps stay within it."""
        self._unswept = 0
        old = time.time() - self._ttl_s
        return self._remove_down_to(self._max_bytes * 7 // 8, used_before=old)

    def _make(self) -> None:
        self._dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.chmod(self._dir, 0o700)

    def _write(self, key: str, data: bytes) -> None:
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
                if entry.name.startswith(".") and time.time() - stat.st_mtime < STALE_S:
                    continue  # being written
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


class RedisBlobs:
    """Blobs on a Redis of their own, whose `maxmemory-policy` (allkeys-lru) bounds them."""

    def __init__(self, url: str) -> None:
        self._redis = connect(url)

    def put(self, key: str, data: bytes) -> None:
        """Store with a TTL."""
        self._redis.set(keys.blob(key), data, ex=TTL_S)

    def get(self, key: str) -> bytes | None:
        """Read, and start its TTL again."""
        return cast("bytes | None", self._redis.getex(keys.blob(key), ex=TTL_S))

    def remove(self, key: str) -> None:
        """Delete."""
        self._redis.delete(keys.blob(key))

    def sweep(self) -> int:
        """The server does it."""
        return 0


def open_blobs(url: str, max_bytes: int = DEFAULT_MAX_BYTES) -> BlobStore:
    """The store of `PHOTOCALL_BLOBS`: `dir:/path` or a Redis URL."""
    if url.startswith("dir:"):
        return DirBlobs(Path(url.removeprefix("dir:")), max_bytes)
    return RedisBlobs(url)
