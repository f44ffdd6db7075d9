"""Pixels of a size, straight from a JPEG's or PNG's bytes.

Decoded by libjpeg-turbo (simplejpeg) or libvips, which are faster than Pillow and give the same pixels, and made
smaller by `smaller.py`. A large picture is reduced while it is decoded: a JPEG by its transform, which saves much of
the time, a PNG strip by strip, so that it is never whole in memory. Neither library is a judge of a file: what they do
not like in the least, Pillow looks at again. Knows nothing of colours.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from photocall_prep.smaller import PADDED, available, pixels_of, smaller, threads

try:
    import pyvips
except (ImportError, OSError):  # no wheel for this machine, and no libvips of its own
    pyvips = None
try:
    import simplejpeg
except (ImportError, OSError):
    simplejpeg = None

log = logging.getLogger(__name__)

WHOLE = {"JPEG": 4_000_000, "PNG": 25_000_000}
"""So many pixels are decoded as they are, and only rounding differs from the reference."""
REDUCED = 2
"""Of a larger JPEG at least so many times the size are left, each side: with less, mean differences to the full decode
pass half a level of 255 on ordinary photographs."""
_SHRINKS = (8, 4, 2)  # what the transform can do
_BANDS = {"RGB": 3, "L": 1}
_DAMAGE = (ValueError,) if pyvips is None else (ValueError, pyvips.Error)

if pyvips is not None:
    pyvips.cache_set_max(0)  # of operations: nothing is asked for twice
    pyvips.concurrency_set(1)
    logging.getLogger("pyvips").setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True)
class Streamed:
    """Pixels of the size that was asked for, and what was decoded for them: width and height."""

    pixels: NDArray[np.uint8]  # [height, width, 3], or [height, width] of a grey picture
    decoded_size: tuple[int, int]


@contextmanager
def spread(count: int) -> Iterator[None]:
    """While entered, one picture is worked on by so many threads where that helps; the bytes are the same."""
    with threads(count):
        if pyvips is None or count == 1:
            yield
            return
        pyvips.concurrency_set(count)
        try:
            yield
        finally:
            pyvips.concurrency_set(1)


def streamed(
    data: bytes, kind: str, mode: str, stored: tuple[int, int], size: tuple[int, int], on_its_side: bool = False
) -> Streamed | None:
    """Pixels of `size` from a whole file, or None where that is Pillow's business.

    `kind` and `mode` are Pillow's names, `stored` and `size` are width and height; `on_its_side` as in `smaller`.
    Enlarging is not done here.
    """
    if not available() or mode not in _BANDS or size[0] > stored[0] or size[1] > stored[1]:
        return None
    try:
        if kind == "JPEG" and simplejpeg is not None:
            decoded = _jpeg(data, mode, stored, size)
        elif kind == "PNG" and pyvips is not None:
            decoded = _png(data, mode, stored, size)
        else:
            return None
    except _DAMAGE as error:
        log.debug("left to Pillow: %s", error)
        return None
    if decoded is None or (small := smaller(decoded, size, on_its_side)) is None:
        return None
    return Streamed(pixels_of(small), decoded.size if kind == "JPEG" else stored)


def reducing(kind: str, stored: tuple[int, int]) -> bool:
    """Whether a picture of this size is reduced while it is decoded."""
    return stored[0] * stored[1] > WHOLE[kind]


def _shrink(stored: tuple[int, int], size: tuple[int, int]) -> int:
    """Of the transform. Only where it goes in evenly: else it rounds the last column up, and everything is shifted."""
    for shrink in _SHRINKS if reducing("JPEG", stored) else ():
        if all(
            side % shrink == 0 and side // shrink >= REDUCED * wanted for side, wanted in zip(stored, size, strict=True)
        ):
            return shrink
    return 1


def _jpeg(data: bytes, mode: str, stored: tuple[int, int], size: tuple[int, int]) -> Image.Image | None:
    """The pixels of a JPEG. Raises ValueError for damage of any kind."""
    shrink = _shrink(stored, size)
    width, height = (side // shrink for side in stored)
    colours, kind, bands = ("GRAY", "L", 1) if mode == "L" else ("RGBX", PADDED, 4)
    decoded: NDArray[np.uint8] = simplejpeg.decode_jpeg(data, colours, min_width=width, min_height=height)
    if decoded.shape != (height, width, bands):
        return None
    return Image.frombuffer(kind, (width, height), decoded, "raw", kind, 0, 1)


def _png(data: bytes, mode: str, stored: tuple[int, int], size: tuple[int, int]) -> Image.Image | None:
    """The pixels of a PNG, or those of `size` where it is a large one. Raises pyvips.Error for damage of any kind."""
    image: Any = pyvips.Image.pngload_buffer(data, access="sequential", fail_on="warning")
    if image.format != "uchar" or image.bands != _BANDS[mode] or (image.width, image.height) != stored:
        return None
    if reducing("PNG", stored):
        image = image.reduceh(image.width / size[0], kernel="cubic", gap=0)
        image = image.reducev(image.height / size[1], kernel="cubic", gap=0)
    return Image.frombuffer(mode, (image.width, image.height), image.write_to_memory(), "raw", mode, 0, 1)
