"""How stored colours become RGB: one definition for every mode a decoder may hand over.

- alpha (a channel, a palette's entries or a colour key) is laid over white;
- CMYK is converted without a profile; JPEGs store it inverted, as Adobe does, which the decoder has undone;
- more than 8 bits a channel keep their high byte, grey and colour alike;
- palettes, grey, bilevel and YCbCr convert by their definition; embedded profiles are not applied;
- floats, 32-bit integers and Lab have no defined brightness or no defined white, and are refused.
"""

from __future__ import annotations

import numpy as np
from PIL import Image

_WHITE = (255, 255, 255)
_DIRECT = frozenset({"1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr"})
_TIFF_BITS, _TIFF_PHOTOMETRIC, _WHITE_IS_ZERO = 258, 262, 0


class ColourRefused(Exception):
    """Pixels of a kind that has no defined way to RGB."""


def way(image: Image.Image) -> str:
    """Which of the ways above a loaded picture takes to RGB, in words. Raises ColourRefused."""
    if image.mode.startswith("I;16"):
        return "16 bits to 8"
    if image.has_transparency_data:
        return "alpha over white"
    if image.mode not in _DIRECT:
        raise ColourRefused(f"pixels of type {image.mode!r} cannot be shown as RGB")
    return "as it is" if image.mode == "RGB" else f"{image.mode} to RGB"


def to_rgb(image: Image.Image) -> Image.Image:
    """A loaded picture as RGB of the same size. Raises ColourRefused."""
    taken = way(image)
    if taken == "16 bits to 8":
        return _from_16_bit(image)
    if taken == "alpha over white":
        rgba = image.convert("RGBA")
        flat = Image.new("RGB", image.size, _WHITE)
        flat.paste(rgba, mask=rgba.getchannel("A"))
        return flat
    return image.convert("RGB")


def _from_16_bit(image: Image.Image) -> Image.Image:
    grey = np.asarray(image)
    tags = getattr(image, "tag_v2", {})  # TIFF only
    bits = tags.get(_TIFF_BITS, (16,))[0]
    high = (grey >> (bits - 8)).astype(np.uint8)
    if tags.get(_TIFF_PHOTOMETRIC) == _WHITE_IS_ZERO:
        high = 255 - high
    key = image.info.get("transparency")  # PNG: the one grey that stands for nothing
    if isinstance(key, int):
        high[grey == key] = 255
    return Image.fromarray(high).convert("RGB")
