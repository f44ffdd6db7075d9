"""What a family needs to compose a scene, and what every part of a picture can do."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Protocol

from ops.train.assets import Assets
from ops.train.backgrounds import Rgb
from ops.train.fonts import FontBook
from ops.train.marks import Box

if TYPE_CHECKING:
    from ops.train.scene import Canvas, Scene


class World(Protocol):
    """The composer as families see it: one split's fonts, words and pictures."""

    split: str
    book: FontBook
    assets: Assets

    def word(self, rng: random.Random) -> str:
        """A word to print, in some case."""

    def font(self, rng: random.Random) -> str:
        """A font file of the split."""


class Part(Protocol):
    """Something on a picture: where it is, and how it is painted. Its truth is in fields of its own."""

    box: Box

    def paint(self, canvas: Canvas) -> None:
        """Paint it and mark what its patches show."""


class Family(Protocol):
    """Scenes of one kind."""

    def __call__(self, rng: random.Random, made: Scene, tones: tuple[Rgb, ...], world: World) -> None:
        """Put parts, and the names that mean one of them, on an empty scene."""


def placed(rng: random.Random, made: Scene, width: float, height: float) -> Box:
    """A box of a size at most the scene's, anywhere inside."""
    w, h = min(width, made.width - 8.0), min(height, made.height - 8.0)
    x, y = rng.uniform(4, made.width - w - 4), rng.uniform(4, made.height - h - 4)
    return (x, y, x + w, y + h)
