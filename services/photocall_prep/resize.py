"""From RGB pixels of any size to the upright pixels of a grid: 8-bit bicubic, as the reference processor does.

The aspect ratio changes by less than one soft token, since each side is cut to a multiple of 48 on its own. The result
is rounded to 8 bits before the model scales it, which is what the checkpoints were trained with.

Pillow rounds between its two passes, so their order, and whether a picture is turned before or after, changes some
values: pictures are turned first, as the reference does, unless they are made smaller by `smaller.py`, which keeps to
the order of the upright picture, or a decoder has reduced them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from photocall.grid import Grid
from photocall_prep.smaller import smaller
from photocall_prep.turning import on_its_side, turned, upright, upright_pixels


def to_grid(
    rgb: Image.Image, orientation: int, grid: Grid, covers: tuple[float, float] | None = None, exact: bool = True
) -> NDArray[np.uint8]:
    """[height, width, 3] upright pixels of the grid; pixels that are already of that size keep their bytes.

    `covers`: width and height of the part of `rgb` that is the picture; None is all of it. A decoder that reduces
    rounds its last column and row up.
    """
    height, width = grid.pixels
    if exact:
        return np.asarray(_resized(upright(rgb, orientation), (width, height), None))
    size = turned((width, height), orientation)
    if covers not in (None, rgb.size):
        return np.asarray(upright(_resized(rgb, size, covers), orientation))
    small = smaller(rgb, size, on_its_side(orientation))
    if small is not None:
        return upright_pixels(np.asarray(small), orientation)
    return np.asarray(_resized(upright(rgb, orientation), (width, height), None))


def _resized(rgb: Image.Image, size: tuple[int, int], covers: tuple[float, float] | None) -> Image.Image:
    box = (0.0, 0.0, *(covers or rgb.size))
    if rgb.size == size and box[2:] == size:
        return rgb
    return rgb.resize(size, Image.Resampling.BICUBIC, box=box)
