"""How stored colours become RGB: one definition for every mode a decoder may hand over.

- alpha (a channel, a palette's entries or a colour key) is laid over the background, white unless told otherwise;
- CMYK is converted without a profile; JPEGs store it inverted, as Adobe does, which the decoder has undone;
- more than 8 bits a channel keep their high byte, grey and colour alike;
- palettes, grey, bilevel and YCbCr convert by their definition; embedded profiles are not applied;
- floats, 32-bit integers and Lab have no defined brightness or no defined white, and are refused.
"""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageColor

WHITE = "ffffff"
_DIRECT = frozenset({"1", "L", "P", "RGB", "RGBX", "CMYK", "YCbCr"})
_REFUSED = {"F": "floating-point samples", "I": "32-bit integer samples", "LAB": "Lab colours"}
_TIFF_BITS, _TIFF_PHOTOMETRIC, _WHITE_IS_ZERO = 258, 262, 0


class ColourRefused(Exception):
    """Pixels of a kind that has no defined way to RGB."""


def to_rgb(image: Image.Image, background: str = WHITE) -> tuple[Image.Image, tuple[str, ...]]:
    """A loaded picture as RGB of the same size, and the steps that were taken. Raises ColourRefused."""
    if image.mode.startswith("I;16"):
        return _from_16_bit(image, background), ("16 bits to 8",)
    if image.has_transparency_data:
        return _over(image.convert("RGBA"), background), (f"alpha over {named(background)}",)
    if image.mode == "RGB":
        return image, ()
    if image.mode not in _DIRECT:
        what = _REFUSED.get(image.mode, f"pixels of type {image.mode!r}")
        raise ColourRefused(f"its {what} cannot be shown as RGB: their range is not defined")
    return image.convert("RGB"), (f"{image.mode} to RGB",)


def named(background: str) -> str:
    """A background for a person."""
    return "white" if background == WHITE else f"#{background}"


def _over(rgba: Image.Image, background: str) -> Image.Image:
    flat = Image.new("RGB", rgba.size, _values(background))
    flat.paste(rgba, mask=rgba.getchannel("A"))
    return flat


def _values(background: str) -> tuple[int, int, int]:
    red, green, blue = ImageColor.getrgb(f"#{background}")[:3]
    return red, green, blue


def _from_16_bit(image: Image.Image, background: str) -> Image.Image:
    grey = np.asarray(image)
    tags = getattr(image, "tag_v2", {})  # TIFF only
    bits = tags.get(_TIFF_BITS, (16,))[0]
    high = (grey >> (bits - 8)).astype(np.uint8)
    if tags.get(_TIFF_PHOTOMETRIC) == _WHITE_IS_ZERO:
        high = 255 - high
    rgb = Image.fromarray(high).convert("RGB")
    key = image.info.get("transparency")  # PNG: the one grey that stands for nothing
    if isinstance(key, int):
        rgb.paste(_values(background), mask=Image.fromarray((grey == key).astype(np.uint8) * 255))
    return rgb
