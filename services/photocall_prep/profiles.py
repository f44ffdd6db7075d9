"""Profile: what an ICC profile does to colours on their way to sRGB. Relative colorimetric, black point compensated.

A profile that moves no colour by more than a level is sRGB in other words, and costs nothing per pixel. One that cannot
be used is ignored, and that is said.
"""

from __future__ import annotations

import io
from functools import lru_cache

import numpy as np
from PIL import Image, ImageCms

MAX_BYTES = 4 << 20
_SPACES = {"RGB": "RGB", "GRAY": "L", "CMYK": "CMYK"}  # of a profile, and Pillow's mode of such pixels
_LATTICE = 9  # steps a channel on which a profile is compared with sRGB
_NAME_CHARS = 60


class ProfileIgnored(Exception):
    """A profile that is not used, and why."""


class Profile:
    """One embedded profile. `mode`: of the pixels it is for, "RGB", "L" or "CMYK"."""

    def __init__(self, data: bytes) -> None:
        """Raises ProfileIgnored."""
        if len(data) > MAX_BYTES:
            raise ProfileIgnored(f"it has {len(data)} bytes")
        try:
            opened = ImageCms.ImageCmsProfile(io.BytesIO(data))
            space = opened.profile.xcolor_space.strip()
            if space not in _SPACES:
                raise ProfileIgnored(f"it is for {space}")
            self.mode = _SPACES[space]
            self.name = _name(opened)
            self._transform = ImageCms.buildTransform(
                opened,
                _srgb(),
                self.mode,
                "RGB",
                ImageCms.Intent.RELATIVE_COLORIMETRIC,
                ImageCms.Flags.BLACKPOINTCOMPENSATION,
            )
            self.is_srgb = self.mode != "CMYK" and self._moves() <= 1
        except (ImageCms.PyCMSError, OSError, ValueError, TypeError, SyntaxError) as error:
            raise ProfileIgnored("it cannot be read") from error

    def apply(self, image: Image.Image) -> Image.Image:
        """Pixels of its own mode as sRGB."""
        converted = ImageCms.applyTransform(image, self._transform)
        assert converted is not None
        return converted

    def _moves(self) -> int:
        """By how many levels it changes a colour at most."""
        steps = np.linspace(0, 255, _LATTICE).round().astype(np.uint8)
        plain = np.stack(np.meshgrid(steps, steps, steps), axis=-1).reshape(_LATTICE, -1, 3)
        if self.mode == "L":
            plain = np.arange(256, dtype=np.uint8).reshape(16, 16, 1).repeat(3, axis=2)
        made = np.asarray(self.apply(Image.fromarray(plain[:, :, 0] if self.mode == "L" else plain)))
        return int(np.abs(made.astype(int) - plain).max())


@lru_cache(maxsize=8)  # making one costs as much as a small picture; a service sees few different ones
def profile(data: bytes) -> Profile:
    """The profile of these bytes. Raises ProfileIgnored."""
    return Profile(data)


def moves_colours(data: bytes) -> bool:
    """Whether a profile is anything but sRGB in other words, and can be used."""
    try:
        return not profile(data).is_srgb
    except ProfileIgnored:
        return False


@lru_cache(maxsize=1)
def _srgb() -> ImageCms.ImageCmsProfile:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB"))


def _name(opened: ImageCms.ImageCmsProfile) -> str:
    try:
        text = ImageCms.getProfileDescription(opened)
    except ImageCms.PyCMSError:
        text = ""
    return " ".join(char for char in text.split() if char.isprintable())[:_NAME_CHARS] or "an unnamed profile"
