"""From upright RGB pixels of any size to the pixels of a grid: 8-bit bicubic, as the reference processor does.

The aspect ratio changes by less than one soft token, since each side is cut to a multiple of 48 on its own. The result
is rounded to 8 bits before the model scales it, which is what the checkpoints were trained with.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from photocall.grid import Grid


def resize(rgb: Image.Image, grid: Grid) -> NDArray[np.uint8]:
    """[height, width, 3] pixels of the grid; a picture already of that size keeps its bytes."""
    height, width = grid.pixels
    if rgb.size != (width, height):
        rgb = rgb.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(rgb)
