"""Wear: how much a worker process has done and holds, and whether a fresh one should take its place.

Decoders leak and fragment, a little for each picture. A process that begins anew between two entries costs half a
second and loses nothing; it keeps its process id, so no supervisor sees it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn

_PAGE = os.sysconf("SC_PAGE_SIZE")


class Wear:
    """Counted in pictures and in bytes of resident memory; 0 bounds nothing.

    `helpers`: the processes that do the worker's work beside it, and end with it.
    """

    def __init__(self, max_pictures: int = 0, max_bytes: int = 0, helpers: Callable[[], Iterable[int]] = tuple) -> None:
        self._max_pictures = max_pictures
        self._max_bytes = max_bytes
        self._helpers = helpers
        self._pictures = 0
        self.reason: str | None = None  # `look` fills it, once there is one

    def add(self) -> None:
        """One more picture was prepared, or tried."""
        self._pictures += 1

    def look(self) -> None:
        """Between two entries: compare with the bounds."""
        if 0 < self._max_pictures <= self._pictures:
            self.reason = f"{self._pictures} pictures"
        elif self._max_bytes and (held := self._held()) > self._max_bytes:
            self.reason = f"{held >> 20} MiB resident"

    def _held(self) -> int:
        return sum(map(resident_bytes, (os.getpid(), *self._helpers())))


def resident_bytes(pid: int) -> int:
    """Of a process; 0 where the system does not say."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * _PAGE
    except OSError:
        return 0


def renew() -> NoReturn:
    """Become a fresh process of the same command. Signals that are blocked reach it when it unblocks them."""
    os.execv(sys.executable, sys.orig_argv)
