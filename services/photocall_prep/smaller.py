"""Pixels made smaller: Pillow's bicubic filter, several times as fast, the same to two levels of 255.

fast_image_resize (as `cykooz_resizer`) computes it in vectors, in the same fixed point. By itself it always goes down
the columns first; rounding and clipping between the passes then give other values where edges are sharp, up to ten
levels in print. So each pass is a call of its own, in the order in which Pillow makes them of the upright picture.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

try:
    import cykooz_resizer
except ImportError:  # no wheel for this machine
    cykooz_resizer = None

PADDED = "CMYK"
"""Pillow's name of four bytes a pixel none of which is alpha: how RGB and a byte of padding are handed over."""
_MODES = ("RGB", "L", PADDED)
MOST_THREADS = 8  # of one picture: each has a stack, and a decoder's memory is bounded
_threads = 1


def available() -> bool:
    """The library is there. Without it Pillow makes pictures smaller."""
    return cykooz_resizer is not None


def smaller(image: Image.Image, size: tuple[int, int], on_its_side: bool = False) -> Image.Image | None:
    """A picture of `size`, width and height; None where that is Pillow's business. Enlarging is not done here.

    `on_its_side`: as `turning` has it, its columns will be rows.
    """
    if cykooz_resizer is None or image.mode not in _MODES or size[0] > image.width or size[1] > image.height:
        return None
    across, down = (size[0], image.height), (image.width, size[1])
    first = down if _columns_first(image.size, size, on_its_side) else across
    for step in (first, size):
        if step != image.size:
            image = _resized(image, step)
    return image


def pixels_of(image: Image.Image) -> NDArray[np.uint8]:
    """[height, width, 3] of PADDED or RGB, [height, width] of L, with nothing between the pixels."""
    if image.mode != PADDED:
        return np.asarray(image)
    padded = Image.frombuffer("RGBX", image.size, image.tobytes(), "raw", "RGBX", 0, 1)
    rgb = padded.tobytes("raw", "RGB")  # a tenth of what NumPy takes for it
    return np.frombuffer(rgb, np.uint8).reshape(image.height, image.width, 3)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """While entered, a picture is worked on by so many threads; the bytes are the same."""
    global _threads
    before, _threads = _threads, min(count, MOST_THREADS)
    try:
        yield
    finally:
        _threads = before


def _columns_first(before: tuple[int, int], after: tuple[int, int], on_its_side: bool) -> bool:
    """Pillow from version 13 on: where the height loses more than twice what the width does (pull request 9549)."""
    width, height = (old - new for old, new in zip(before, after, strict=True))
    return width <= 2 * height if on_its_side else height > 2 * width


def _resized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    made = Image.new(image.mode, size)
    cykooz_resizer.Resizer().resize_pil(image, made, _options(_threads))
    return made


@cache
def _options(count: int) -> Any:
    cubic = cykooz_resizer.FilterType.catmull_rom  # with a = -0.5, as Pillow's
    pool = None
    with suppress(RuntimeError):  # no more threads may be had: then without
        pool = cykooz_resizer.ResizerThreadPool(count) if count > 1 else None
    bicubic = cykooz_resizer.ResizeAlg.convolution(cubic)
    return cykooz_resizer.ResizeOptions(resize_alg=bicubic, use_alpha=False, thread_pool=pool)
