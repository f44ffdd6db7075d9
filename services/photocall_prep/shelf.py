"""Patch blobs under the name of what they were made from, and the grid of each, so that no picture is prepared twice.

A blob is bare patches; its grid and the budget behind it lie beside it in a small blob of their own. Either may vanish:
then it was never there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from photocall.blob_store import BlobStore
from photocall.grid import PATCH_BYTES, Grid
from photocall.keys import blob_key
from photocall.views import AUTO, Budget, View
from photocall_prep.colour import WHITE
from photocall_prep.prepare import Fidelity, PreparedImage

_GRID = struct.Struct(">HHH")


@dataclass(frozen=True, slots=True)
class Shelved:
    """A picture whose patches are there."""

    grid: Grid
    budget: int  # that it was given, or that `auto` chose


class PatchShelf:
    """The blobs of one checkpoint's pictures.

    `budget`: soft tokens of a picture unless its request says otherwise; `allowed`: what it may say, where nothing is
    given `budget` alone. What was prepared in another fidelity or over another background is another blob.
    """

    def __init__(
        self,
        blobs: BlobStore,
        budget: Budget,
        processor_hash: str,
        allowed: Sequence[int] = (),
        fidelity: Fidelity = "fast",
        background: str = WHITE,
    ) -> None:
        self._blobs = blobs
        self.budget = budget
        self.allowed = tuple(allowed) or (() if budget == AUTO else (budget,))
        self._processor_hash = processor_hash
        self.fidelity = fidelity
        self._background = background

    def why_not(self, budget: Budget) -> str | None:
        """Why a picture cannot have a budget; None where it can."""
        if budget == AUTO or budget in self.allowed:
            return None
        return f"a budget of {budget} soft tokens is none of this model's: {', '.join(map(str, self.allowed))}"

    def key(self, sha256: str, view: View) -> str:
        """Under which key the engine finds a picture's patches. What `auto` may choose from is part of it."""
        budget = view.budget or self.budget
        shown = f"{budget}to{max(self.allowed)}" if budget == AUTO else str(budget)
        shown += self.fidelity
        if view.frame:
            shown += f"_f{view.frame}"
        if view.dpi:
            shown += f"_d{view.dpi}"
        background = view.background or self._background
        return blob_key(sha256, shown + (f"_b{background}" if background != WHITE else ""), self._processor_hash)

    def find(self, sha256: str, view: View) -> Shelved | None:
        """A picture whose patches are there; they and their grid count as used then."""
        key = self.key(sha256, view)
        packed = self._blobs.get(_grid_key(key))
        if packed is None or len(packed) != _GRID.size:
            return None
        height, width, budget = _GRID.unpack(packed)
        grid = Grid(height, width)
        return Shelved(grid, budget) if self._blobs.size(key) == grid.num_patches * PATCH_BYTES else None

    def put(self, sha256: str, view: View, prepared: PreparedImage) -> None:
        """Store the patches, then their grid: a grid is never there before its patches."""
        key = self.key(sha256, view)
        self._blobs.put(key, prepared.patches)
        self._blobs.put(_grid_key(key), _GRID.pack(prepared.grid.height, prepared.grid.width, prepared.budget))

    def remove(self, sha256: str) -> None:
        """Remove a picture's patches in every view."""
        self._blobs.remove_all(f"{sha256}-")


def _grid_key(key: str) -> str:
    return f"{key}-grid"
