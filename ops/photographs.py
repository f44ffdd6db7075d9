"""Photographs that scikit-image and scikit-learn ship, and what people do to photographs: crops, sizes, files.

Their licences allow it (public domain, CC0, or CC BY, in the packages' own README files). They are small, so larger
files are made of them: enlarged, with a camera's grain on top so that there is detail at the full size too.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from PIL import Image

_SKIMAGE = ("astronaut.png", "coffee.png", "chelsea.png", "rocket.jpg", "retina.jpg", "motorcycle_left.png")
_SKIMAGE_MORE = ("hubble_deep_field.jpg", "page.png", "coins.png")
_SKLEARN = ("china.jpg", "flower.jpg")
NAMES = (*_SKIMAGE, *_SKIMAGE_MORE, *_SKLEARN)


@cache
def photograph(name: str) -> Image.Image:
    """One of NAMES, in RGB, as it is shipped."""
    package = "sklearn.datasets.images" if name in _SKLEARN else "skimage.data"
    return Image.open(io.BytesIO(files(package).joinpath(name).read_bytes())).convert("RGB")


@dataclass(frozen=True)
class Shot:
    """A file made of a photograph: cut to an aspect ratio, scaled to a size, grained, saved."""

    name: str
    size: tuple[int, int]
    format: str = "JPEG"
    quality: int = 88
    subsampling: int = 2  # 4:2:0
    progressive: bool = False
    orientation: int = 1

    def __str__(self) -> str:
        width, height = self.size
        return f"{self.name}-{width}x{height}-{self.format}{self.quality}-{self.subsampling}-{self.orientation}"

    def data(self) -> bytes:
        """The file's bytes."""
        return _data(self)


@cache
def _data(shot: Shot) -> bytes:
    image = _grained(_cut(photograph(shot.name), shot.size), seed=shot.size[0])
    if shot.format == "PNG":
        return _encoded(image, "PNG", compress_level=1)
    options: dict[str, object] = {"quality": shot.quality}
    if shot.format == "JPEG":
        options |= {"subsampling": shot.subsampling, "progressive": shot.progressive}
    if shot.orientation != 1:
        exif = Image.Exif()
        exif[0x0112] = shot.orientation
        options["exif"] = exif
    return _encoded(image, shot.format, **options)


def _encoded(image: Image.Image, name: str, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, name, **options)
    return out.getvalue()


def _cut(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    width, height = size
    scale = min(image.width / width, image.height / height)
    cut_width, cut_height = width * scale, height * scale
    left, top = max(0.0, image.width - cut_width) / 3, max(0.0, image.height - cut_height) / 3
    box = (left, top, min(image.width, left + cut_width), min(image.height, top + cut_height))
    return image.resize(size, Image.Resampling.LANCZOS, box=box)


def _grained(image: Image.Image, seed: int) -> Image.Image:
    """With a sensor's noise of two levels, as every photograph has at its own resolution."""
    grain = np.random.default_rng(seed).normal(0, 2, (image.height, image.width, 1)).astype(np.float32)
    return Image.fromarray(np.clip(np.asarray(image) + grain, 0, 255).round().astype(np.uint8))
