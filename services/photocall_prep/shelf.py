"""Patch blobs under the name of what they were made from, and the grid of each, so that no picture is prepared twice.

A blob is bare patches; its grid lies beside it in a small blob of its own. Either may vanish: then it was never there.
"""

from __future__ import annotations

import struct

from photocall.blobs import BlobStore
from photocall.grid import PATCH_BYTES, Grid
from photocall.keys import blob_key
from photocall_prep.prepare import PreparedImage

_GRID = struct.Struct(">HH")


class PatchShelf:
    """The blobs of one checkpoint's pictures at one budget."""

    def __init__(self, blobs: BlobStore, budget: int, processor_hash: str) -> None:
        self._blobs = blobs
        self.budget = budget
        self._processor_hash = processor_hash

    def key(self, sha256: str) -> str:
        """Under which key the engine finds a picture's patches."""
        return blob_key(sha256, self.budget, self._processor_hash)

    def find(self, sha256: str) -> Grid | None:
        """The grid of a picture whose patches are there; both count as used then."""
        packed = self._blobs.get(_grid_key(self.key(sha256)))
        if packed is None or len(packed) != _GRID.size:
            return None
        grid = Grid(*_GRID.unpack(packed))
        patches = self._blobs.get(self.key(sha256))
        return grid if patches is not None and len(patches) == grid.num_patches * PATCH_BYTES else None

    def put(self, sha256: str, prepared: PreparedImage) -> None:
        """Store the patches, then their grid: a grid is never there before its patches."""
        self._blobs.put(self.key(sha256), prepared.patches)
        self._blobs.put(_grid_key(self.key(sha256)), _GRID.pack(prepared.grid.height, prepared.grid.width))

    def remove(self, sha256: str) -> None:
        """Remove a picture's patches; the grid first, which is never there without them."""
        self._blobs.remove(_grid_key(self.key(sha256)))
        self._blobs.remove(self.key(sha256))


def _grid_key(key: str) -> str:
    return f"{key}-grid"
