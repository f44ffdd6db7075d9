"""EXIF orientation: how stored pixels are turned to stand upright. Knows nothing of files."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

_FLIPS = {2: (1, -1), 3: (-1, -1), 4: (-1, 1), 6: (1, -1), 7: (-1, -1), 8: (-1, 1)}  # after the sides were swapped


def known(orientation: object) -> int:
    """1 to 8; 1 for everything that the standard does not know."""
    return orientation if isinstance(orientation, int) and orientation in _TURNS else 1


def upright(image: Image.Image, orientation: int) -> Image.Image:
    """The picture as it is looked at."""
    return image.transpose(_TURNS[orientation]) if orientation in _TURNS else image


def upright_pixels(pixels: NDArray[np.uint8], orientation: int) -> NDArray[np.uint8]:
    """[height, width, 3] as it is looked at; a view."""
    if on_its_side(orientation):
        pixels = pixels.swapaxes(0, 1)
    down, across = _FLIPS.get(orientation, (1, 1))
    return pixels[::down, ::across]


def on_its_side(orientation: int) -> bool:
    """Stored columns are rows of the upright picture."""
    return orientation >= 5


def turned(size: tuple[int, int], orientation: int) -> tuple[int, int]:
    """The upright size of a stored one, and the stored size of an upright one."""
    return (size[1], size[0]) if on_its_side(orientation) else size
