"""Pictures the prep tests make for themselves; nothing is read from disk."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from photocall.views import PLAIN, View
from photocall_prep.decode import open_picture
from photocall_prep.sources import Facts
from photocall_prep.turning import upright


@dataclass(frozen=True)
class TestLimits:
    """Limits small enough to be met by small files."""

    __test__ = False

    max_image_bytes: int = 32_000_000
    max_pixels: int = 4_000_000
    max_frames: int = 20


def encoded(image: Image.Image, name: str, **options: Any) -> bytes:
    """The file's bytes."""
    out = io.BytesIO()
    image.save(out, format=name, **options)
    return out.getvalue()


def scene(width: int = 64, height: int = 48) -> Image.Image:
    """Four flat quarters, so that lossy formats keep them, with an unmistakable top left."""
    image = Image.new("RGB", (width, height), (250, 250, 250))
    image.paste((200, 30, 30), (0, 0, width // 2, height // 2))
    image.paste((30, 180, 40), (width // 2, 0, width, height // 2))
    image.paste((30, 40, 200), (0, height // 2, width // 2, height))
    return image


def noise(width: int, height: int, seed: int = 7) -> Image.Image:
    """Every pixel different: the hardest picture for a resize."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


@dataclass(frozen=True)
class Decoded:
    """A file's upright pixels, all of them, and what it said of itself."""

    rgb: Image.Image
    facts: Facts
    colour: tuple[str, ...]


def decoded(data: bytes, limits: TestLimits = TestLimits(), view: View = PLAIN, background: str = "ffffff") -> Decoded:
    """Open and decode within the test limits."""
    with open_picture(data, limits, view, background) as picture:
        loaded = picture.load()
        return Decoded(upright(loaded.rgb, picture.facts.turn), picture.facts, loaded.colour)


def pixels(data: bytes) -> NDArray[np.int16]:
    """Decoded RGB pixels, signed so that differences do not wrap."""
    return np.asarray(decoded(data).rgb).astype(np.int16)
