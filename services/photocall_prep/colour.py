"""How stored colours become sRGB: one definition for every mode a decoder may hand over.

- more than 8 bits a channel keep their high byte, grey and colour alike;
- palettes, bilevel pixels and YCbCr convert by their definition;
- what a file says about its colours (ICC profile, a PNG's gamma, code points) leads to sRGB, if it is for such pixels;
- CMYK without a profile is (255 - C)(255 - K) / 255 and so on; JPEGs store it inverted, as Adobe does, with or without
  Adobe's mark, and the decoder has undone that;
- alpha (a channel, a palette's entries or a colour key) is laid over the background, white unless told otherwise: c * a
  + b * (255 - a), over 255, in sRGB's own values, as browsers do;
- floats, 32-bit integers and Lab have no defined brightness or no defined white, and are refused.
"""

from __future__ import annotations

import numpy as np
from PIL import Image, ImageColor

from photocall_prep.profiles import ProfileIgnored, profile
from photocall_prep.stated_colours import UNSTATED, Stated

WHITE = "ffffff"
_REFUSED = {"F": "floating-point samples", "I": "32-bit integer samples", "LAB": "Lab colours"}
_PLAIN = ("RGB", "L", "CMYK")  # what a profile can be for
_TO_RGB = ("1", "P", "RGBX", "YCbCr")
_TIFF_BITS, _TIFF_PHOTOMETRIC, _WHITE_IS_ZERO = 258, 262, 0


class ColourRefused(Exception):
    """Pixels of a kind that has no defined way to RGB."""


def to_rgb(image: Image.Image, background: str = WHITE, says: Stated = UNSTATED) -> tuple[Image.Image, tuple[str, ...]]:
    """A loaded picture as sRGB of the same size, and the steps that were taken. Raises ColourRefused."""
    steps: list[str] = []
    plain, alpha = _plain(image, steps)
    if says.profile is not None:
        plain = _by_profile(plain, says.profile, says.name, steps)
    if plain.mode != "RGB":
        steps.append(f"{plain.mode} to RGB")
        plain = plain.convert("RGB")
    if alpha is not None:
        steps.append(f"alpha over {named(background)}")
        plain = Image.composite(plain, Image.new("RGB", plain.size, rgb_of(background)), alpha)
    return plain, tuple(steps)


def named(background: str) -> str:
    """A background for a person."""
    return "white" if background == WHITE else f"#{background}"


def _plain(image: Image.Image, steps: list[str]) -> tuple[Image.Image, Image.Image | None]:
    """RGB, L or CMYK of 8 bits, and what of it is to be seen; None: all."""
    if image.mode.startswith("I;16"):
        steps.append("16 bits to 8")
        return _from_16_bit(image)
    if image.has_transparency_data:
        if image.mode == "LA":
            return image.getchannel("L"), image.getchannel("A")
        rgba = image if image.mode == "RGBA" else image.convert("RGBA")
        return rgba.convert("RGB"), rgba.getchannel("A")
    if image.mode in _PLAIN:
        return image, None
    if image.mode not in _TO_RGB:
        what = _REFUSED.get(image.mode, f"pixels of type {image.mode!r}")
        raise ColourRefused(f"its {what} cannot be shown as RGB: their range is not defined")
    steps.append(f"{image.mode} to RGB")
    return image.convert("RGB"), None


def _by_profile(plain: Image.Image, data: bytes, name: str | None, steps: list[str]) -> Image.Image:
    try:
        found = profile(data)
        name = name or found.name
        if found.is_srgb and found.mode != plain.mode:
            return plain
        if found.mode == "RGB" and plain.mode == "L":  # a grey picture with a colour profile: its greys are meant so
            plain = plain.convert("RGB")
        if found.mode != plain.mode:
            raise ProfileIgnored(f"it is for {found.mode}")
    except ProfileIgnored as ignored:
        steps.append(f"{name or 'its profile'} ignored: {ignored}")
        return plain
    if found.is_srgb:
        return plain
    steps.append(f"{name} to sRGB")
    return found.apply(plain)


def rgb_of(background: str) -> tuple[int, int, int]:
    """The values of an rrggbb."""
    red, green, blue = ImageColor.getrgb(f"#{background}")[:3]
    return red, green, blue


def _from_16_bit(image: Image.Image) -> tuple[Image.Image, Image.Image | None]:
    grey = np.asarray(image)
    tags = getattr(image, "tag_v2", {})  # TIFF only
    bits = tags.get(_TIFF_BITS, (16,))[0]
    high = (grey >> (bits - 8)).astype(np.uint8)
    if tags.get(_TIFF_PHOTOMETRIC) == _WHITE_IS_ZERO:
        high = 255 - high
    key = image.info.get("transparency")  # PNG: the one grey that stands for nothing
    alpha = Image.fromarray((grey != key).astype(np.uint8) * 255) if isinstance(key, int) else None
    return Image.fromarray(high), alpha
