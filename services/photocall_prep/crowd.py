"""Crowd: how many pictures are being prepared on this host, and so how many cores one of them may use.

Workers are processes, one for each core. The first picture in preparation may use all cores for what can use them,
every later one has a single thread: where all share all cores, each waits for every other in each of its steps. The
count is kept by the kernel, as shared locks on a directory that all workers read, the checkpoint's: a worker that dies,
however it dies, is no longer counted, and nothing is written.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class Crowd:
    """Of the workers that name the same directory. `cores` are the first one's; with one there is nothing to count."""

    def __init__(self, directory: Path = Path(), cores: int = 1) -> None:
        self._directory = directory
        self._cores = cores

    @contextmanager
    def joined(self) -> Iterator[int]:
        """While entered, one more picture is in preparation; gives how many threads it may use."""
        if self._cores == 1:
            yield 1
            return
        try:
            place = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # as good as any other reason not to spread
            yield 1
            return
        try:
            yield self._cores if _is_first(place) else 1
        finally:
            os.close(place)  # and the lock goes with it


def own_cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


def _is_first(place: int) -> bool:
    """Nobody else holds a lock; from then on, this one does."""
    with suppress(OSError):  # somebody holds one, or the file system has none
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(place, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    with suppress(OSError):  # in the moment in which the first one comes; then this one is not counted
        fcntl.flock(place, fcntl.LOCK_SH | fcntl.LOCK_NB)
    return False
