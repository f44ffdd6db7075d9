"""Cuts pixels into patches: row-major over the grid, each patch (py, px, rgb), uint8. Normalising is the engine's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from photocall.grid import PATCH_BYTES, PATCH_SIZE


def patchify(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[height, width, 3] -> [patches, 768]; both sides are multiples of 16."""
    height, width, _ = pixels.shape
    tiles = pixels.reshape(height // PATCH_SIZE, PATCH_SIZE, width // PATCH_SIZE, PATCH_SIZE, 3)
    return np.ascontiguousarray(tiles.transpose(0, 2, 1, 3, 4)).reshape(-1, PATCH_BYTES)
