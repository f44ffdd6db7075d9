"""Patch blobs under the name of what they were made from, and the grid of each, so that no picture is prepared twice.

A blob is bare patches; its grid lies beside it in a small blob of its own. Either may vanish: then it was never there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from photocall.blob_store import BlobStore
from photocall.grid import PATCH_BYTES, Grid
from photocall.keys import blob_key
from photocall_prep.prepare import Fidelity, PreparedImage

_GRID = struct.Struct(">HH")


class PatchShelf:
    """The blobs of one checkpoint's pictures.

    `budget`: soft tokens of a picture unless its request says otherwise; `allowed`: what it may say, where nothing is
    given `budget` alone. What was prepared in another fidelity is another blob.
    """

    def __init__(
        self,
        blobs: BlobStore,
        budget: int,
        processor_hash: str,
        allowed: Sequence[int] = (),
        fidelity: Fidelity = "fast",
    ) -> None:
        self._blobs = blobs
        self.budget = budget
        self.allowed = tuple(allowed) or (budget,)
        self._processor_hash = processor_hash
        self._fidelity = fidelity

    def key(self, sha256: str, budget: int) -> str:
        """Under which key the engine finds a picture's patches."""
        return blob_key(sha256, f"{budget}{self._fidelity}", self._processor_hash)

    def find(self, sha256: str, budget: int) -> Grid | None:
        """The grid of a picture whose patches are there; both count as used then."""
        key = self.key(sha256, budget)
        packed = self._blobs.get(_grid_key(key))
        if packed is None or len(packed) != _GRID.size:
            return None
        grid = Grid(*_GRID.unpack(packed))
        return grid if self._blobs.size(key) == grid.num_patches * PATCH_BYTES else None

    def put(self, sha256: str, budget: int, prepared: PreparedImage) -> None:
        """Store the patches, then their grid: a grid is never there before its patches."""
        key = self.key(sha256, budget)
        self._blobs.put(key, prepared.patches)
        self._blobs.put(_grid_key(key), _GRID.pack(prepared.grid.height, prepared.grid.width))

    def remove(self, sha256: str) -> None:
        """Remove a picture's patches of every budget; the grid first, which is never there without them."""
        for budget in self.allowed:
            self._blobs.remove(_grid_key(self.key(sha256, budget)))
            self._blobs.remove(self.key(sha256, budget))


def _grid_key(key: str) -> str:
    return f"{key}-grid"
