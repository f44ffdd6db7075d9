"""Pixels of a size, straight from a JPEG's or PNG's bytes, or from pixels that are decoded already.

Several times as fast as Pillow: libvips resizes in vectors, and a PNG strip by strip without ever having all of it in
memory; libjpeg-turbo (simplejpeg) reduces a JPEG of more than twice the size by its transform. Neither is a judge of a
file: what they do not like in the least, Pillow looks at again. libvips' bicubic differs from Pillow's by rounding.
Knows nothing of colours or of turning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import pyvips
except (ImportError, OSError):  # no wheel for this machine, and no libvips of its own
    pyvips = None
try:
    import simplejpeg
except (ImportError, OSError):
    simplejpeg = None

log = logging.getLogger(__name__)

REDUCED = 2
"""A decoder leaves at least so many times the pixels of the size, each side: with less, mean differences to the full
decode pass half a level of 255 on ordinary photographs."""
_SHRINKS = (8, 4, 2)  # what the transform can do
_BANDS = {"RGB": 3, "L": 1}

if pyvips is not None:
    pyvips.cache_set_max(0)  # of operations: nothing is asked for twice
    pyvips.concurrency_set(1)
    logging.getLogger("pyvips").setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True)
class Streamed:
    """Pixels of the size that was asked for, and what was decoded for them: width and height."""

    pixels: NDArray[np.uint8]  # [height, width, 3], or [height, width] of a grey picture
    decoded_size: tuple[int, int]


def available() -> bool:
    """libvips is there. Without it nothing here gives anything, and Pillow does all the work."""
    return pyvips is not None


@contextmanager
def spread(threads: int) -> Iterator[None]:
    """While entered, one picture's strips are worked on by so many threads; the bytes are the same."""
    if pyvips is None or threads == 1:
        yield
        return
    pyvips.concurrency_set(threads)
    try:
        yield
    finally:
        pyvips.concurrency_set(1)


def streamed(data: bytes, kind: str, mode: str, stored: tuple[int, int], size: tuple[int, int]) -> Streamed | None:
    """Pixels of `size` from a whole file, or None where that is Pillow's business.

    `kind` and `mode` are Pillow's names, `stored` and `size` are width and height. Enlarging is not done here.
    """
    if pyvips is None or mode not in _BANDS or not _smaller(size, stored):
        return None
    try:
        if kind == "JPEG" and simplejpeg is not None:
            decoded = _transformed(data, mode, stored, size)
            return None if decoded is None else _streamed(_image(decoded), size, mode)
        if kind == "PNG":
            image = pyvips.Image.pngload_buffer(data, access="sequential", fail_on="warning")
            return _streamed(image, size, mode) if image.format == "uchar" and image.bands == _BANDS[mode] else None
    except (pyvips.Error, ValueError) as error:
        log.debug("left to Pillow: %s", error)
    return None


def reduced(pixels: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8] | None:
    """[height, width, 3] pixels made smaller; None where that is Pillow's business."""
    height, width, _ = pixels.shape
    if pyvips is None or not _smaller(size, (width, height)):
        return None
    try:
        return _streamed(_image(pixels), size, "RGB").pixels
    except pyvips.Error as error:  # memory, mostly: Pillow says so in its own words
        log.debug("left to Pillow: %s", error)
        return None


def _smaller(size: tuple[int, int], stored: tuple[int, int]) -> bool:
    return size[0] <= stored[0] and size[1] <= stored[1]


def _shrink(stored: tuple[int, int], size: tuple[int, int]) -> int:
    """Of the transform. Only where it goes in evenly: else it rounds the last column up, and everything is shifted."""
    for shrink in _SHRINKS:
        if all(
            side % shrink == 0 and side // shrink >= REDUCED * wanted for side, wanted in zip(stored, size, strict=True)
        ):
            return shrink
    return 1


def _transformed(data: bytes, mode: str, stored: tuple[int, int], size: tuple[int, int]) -> NDArray[np.uint8] | None:
    """[height, width, bands] of a JPEG. Raises ValueError for damage of any kind."""
    width, height = (side // _shrink(stored, size) for side in stored)
    colours = "GRAY" if mode == "L" else "RGB"
    decoded: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, colours, min_width=width, min_height=height)
    return decoded if decoded.shape == (height, width, _BANDS[mode]) else None


def _image(pixels: NDArray[np.uint8]) -> Any:
    height, width, bands = pixels.shape
    return pyvips.Image.new_from_memory(np.ascontiguousarray(pixels), width, height, bands, "uchar")


def _streamed(image: Any, size: tuple[int, int], mode: str) -> Streamed:
    width, height = size
    down = image.reducev(image.height / height, kernel="cubic", gap=0)
    small = down.reduceh(image.width / width, kernel="cubic", gap=0)
    pixels = np.frombuffer(small.write_to_memory(), np.uint8).reshape(height, width, _BANDS[mode])
    return Streamed(pixels if mode == "RGB" else pixels[:, :, 0], (image.width, image.height))
