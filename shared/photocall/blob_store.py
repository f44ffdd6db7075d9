"""BlobStore: what prep and the engine need of a place for patch blobs: prepared pictures on their way between the two.

Derived, so any of them may vanish. What is in a blob is not known here; `blobs.py` has the places.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

Data: TypeAlias = "bytes | memoryview"

DEFAULT_MAX_BYTES = 512 << 20
TTL_S = 3600  # of one that nobody uses; as long as a picture that no job needs
SWEEP_SHARE = 16  # swept whenever so many-th a part of the bound was put since the last time, by whichever process
SWEPT = 7 / 8  # of the bound is left by a sweep: what is put until the next one stays within it


class BlobsRefused(OSError):
    """A blob cannot be stored now; later it may."""


class BlobsFull(BlobsRefused):
    """There is no room for a blob, and none could be made: somebody else has filled the store."""


class BlobsAway(BlobsRefused):
    """The store does not answer."""


class BlobStore(Protocol):
    """Named bytes that may vanish. A store that does not answer has lost them all, for as long as that."""

    def put(self, key: str, data: Data) -> None:
        """Store; a reader sees all of it or nothing. Raises BlobsRefused."""

    def get(self, key: str) -> bytes | None:
        """The bytes, which count as used now; None when they were never there or have vanished."""

    def size(self, key: str) -> int | None:
        """How many bytes `get` would give, at less cost; they count as used now."""

    def remove(self, key: str) -> None:
        """Remove one; nothing happens when it is not there."""

    def remove_all(self, prefix: str) -> None:
        """Remove those whose keys begin so; it looks at every key."""

    def held(self) -> int:
        """Bytes of what is there, counted or as the store knows it; 0 where it does not answer."""

    def sweep(self) -> int:
        """Remove what nobody used for long, and what is over the bound, the longest unused first; how many went."""
