"""Cuts pixels into patches: row-major over the grid, each patch (py, px, rgb), uint8. Normalising is the engine's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from photocall.grid import PATCH_BYTES, PATCH_SIZE


def patchify(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[height, width, 3] -> [patches, 768]; both sides are multiples of 16."""
    height, width, _ = pixels.shape
    # What a patch has of a row, 48 bytes, is moved as one: byte by byte NumPy takes twenty times as long.
    rows = np.ascontiguousarray(pixels).reshape(height, -1).view(f"V{3 * PATCH_SIZE}")
    tiles = rows.reshape(height // PATCH_SIZE, PATCH_SIZE, width // PATCH_SIZE)
    return np.ascontiguousarray(tiles.transpose(0, 2, 1)).view(np.uint8).reshape(-1, PATCH_BYTES)
