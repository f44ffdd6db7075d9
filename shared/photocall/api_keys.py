"""The file of API keys: who may call, for what, and how much. Keys themselves are in no file, only their hashes.

A line is `id:sha256`, `id:sha256:scopes` or `id:sha256:scopes:limits`, (`bob:9f86...:ask:rate=10/s,concurrency=32`);
`#` starts a comment. A key without scopes may ask and run batches; one without limits has none.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import secrets
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from photocall.key_limits import BadLimit, KeyLimits

# jobs, sessions, pictures and synchronous calls; files and batches; jobs and batches of every key, to see and to cancel
SCOPES = ("ask", "batch", "admin")
USUAL_SCOPES = ("ask", "batch")
NO_LIMITS = KeyLimits()

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
ID_FORM = "letters, digits and . _ @ -, 64 at most"
_LINE = re.compile(r"(?P<id>.+?):(?P<digest>[0-9a-fA-F]{64})(?::(?P<scopes>[a-z,]*))?(?::(?P<limits>[a-z0-9=/,]+))?")


class KeyFileError(Exception):
    """A file that cannot be used, or a change of it that cannot be made; the message says why."""


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One key. What is asked with it belongs to its id; `digest` is the hash of the key, in hex."""

    id: str
    digest: str
    scopes: frozenset[str] = frozenset(USUAL_SCOPES)
    limits: KeyLimits = NO_LIMITS


class KeyFile:
    """The file at a path. Changes replace it whole, so a gateway that reads it sees the old one or the new one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> tuple[ApiKey, ...]:
        """Every key. Raises KeyFileError."""
        return tuple(key for _, key in self._lines() if key is not None)

    def create(self, owner: str, scopes: Collection[str] = USUAL_SCOPES, limits: KeyLimits = NO_LIMITS) -> str:
        """Make a key and give it: this is the only time that it can be seen. Raises KeyFileError."""
        if not _ID.fullmatch(owner):
            raise KeyFileError(f"{owner!r} cannot be an id: {ID_FORM}")
        if not scopes or not set(scopes) <= set(SCOPES):
            raise KeyFileError(f"scopes are {', '.join(SCOPES)}")
        made = "pc_" + secrets.token_urlsafe(32)
        parts = (owner, digest_of(made), ",".join(scope for scope in SCOPES if scope in scopes), limits.shown)
        with self._alone():
            lines = self._lines() if self.path.exists() else []
            if any(key is not None and key.id == owner for _, key in lines):
                raise KeyFileError(f"there is a key {owner!r}; revoke it first, or take another id")
            self._write([*(text for text, _ in lines), ":".join(part for part in parts if part)])
        return made

    def revoke(self, owner: str) -> None:
        """Remove every key of an id. Raises KeyFileError when there is none."""
        with self._alone():
            lines = self._lines()
            kept = [text for text, key in lines if key is None or key.id != owner]
            if len(kept) == len(lines):
                raise KeyFileError(f"there is no key {owner!r}")
            self._write(kept)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One change at a time: of two at once the later would take back what the earlier did, a revocation too."""
        directory = self.path.resolve().parent  # the file is replaced, so it cannot be what is locked
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _lines(self) -> list[tuple[str, ApiKey | None]]:
        """Each line, with the key that it holds."""
        try:
            text = self.path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise KeyFileError("a readable text file") from error
        found: list[tuple[str, ApiKey | None]] = []
        limits: dict[str, KeyLimits] = {}
        for number, line in enumerate(text.splitlines(), 1):
            key = _parsed(line, number)
            if key is not None and limits.setdefault(key.id, key.limits) != key.limits:
                raise KeyFileError(f"in line {number} the limits that {key.id!r} has above: they are the id's")
            found.append((line, key))
        return found

    def _write(self, lines: list[str]) -> None:
        path = self.path.resolve()  # a link goes on pointing to the file
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".keys-")  # 0600
        try:
            with os.fdopen(descriptor, "w") as out:
                if path.exists():  # whoever could read it can read it still: the gateway may be another user
                    old = path.stat()
                    os.fchmod(descriptor, old.st_mode & 0o777)
                    if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                        os.fchown(descriptor, old.st_uid, old.st_gid)
                out.write("".join(f"{line}\n" for line in lines))
                out.flush()
                os.fsync(out.fileno())
            os.replace(name, path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise


def digest_of(key: str) -> str:
    """What the file holds of a key. Keys are long and random, so a plain hash cannot be turned round."""
    return hashlib.sha256(key.encode()).hexdigest()


def _parsed(line: str, number: int) -> ApiKey | None:
    entry = line.partition("#")[0].strip()
    if not entry:
        return None
    found = _LINE.fullmatch(entry)
    scopes = frozenset((found["scopes"] or ",".join(USUAL_SCOPES)).split(",")) if found else frozenset()
    if found is None or not scopes <= set(SCOPES):
        raise KeyFileError(f"`id:sha256`, `id:sha256:scopes` or `id:sha256:scopes:limits` in line {number}")
    if not _ID.fullmatch(found["id"]):
        raise KeyFileError(f"an id of {ID_FORM}, in line {number}")
    try:
        limits = KeyLimits.parse(found["limits"] or "")
    except BadLimit as error:
        raise KeyFileError(f"{error}, in line {number}") from error
    return ApiKey(found["id"], found["digest"].lower(), scopes, limits)
