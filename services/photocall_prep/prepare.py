"""ImagePrep: the bytes of a picture file in, its patch blob out. Read first.

Decode, fit to the grid, resize, cut. The model is known only by its soft-token budget. The same bytes and budget make
the same blob on every machine with the same Pillow.
"""

from __future__ import annotations

from dataclasses import dataclass

from photocall.grid import Grid, grid_for
from photocall_prep.decode import DecodedImage, Limits, decode
from photocall_prep.patches import patchify
from photocall_prep.resize import resize


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """A picture as the engine takes it."""

    grid: Grid
    patches: bytes  # uint8 [grid.num_patches, 768]
    source: DecodedImage


class ImagePrep:
    """Prepares pictures within fixed limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    def prepare(self, data: bytes, budget: int) -> PreparedImage:
        """Raises ImageRefused, naming the reason."""
        decoded = decode(data, self._limits)
        grid = grid_for(decoded.rgb.width, decoded.rgb.height, budget)
        return PreparedImage(grid, patchify(resize(decoded.rgb, grid)).tobytes(), decoded)
