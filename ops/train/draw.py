"""A picture by its seed, at the size of a photograph, with questions and right answers: for tests, tables and the demo.

    image, questions, answers = draw(7)

Without an asset directory the words are printed in Pillow's built-in font.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from ops.train import scene as scenes
from ops.train.asker import Answer
from ops.train.assets import Assets
from ops.train.checkpoint import BUDGET
from ops.train.compose import Composer
from ops.train.fonts import FontBook
from ops.train.requests import Request, Requester
from photocall.grid import grid_for
from photocall.questions import Question

SIZES = (
    *((800, 600), (640, 480), (1024, 768), (600, 800), (1280, 720), (720, 1280), (640, 640), (900, 600), (600, 900)),
    *((800, 640), (1000, 500), (512, 512), (960, 540)),
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """One picture with the request that asks about it."""

    image: Image.Image
    scene: scenes.Scene
    request: Request


class Drawer:
    """Draws pictures of one split; `plain` is the composer's."""

    def __init__(self, split: str = "train", assets: Path | None = None, plain: bool = False) -> None:
        self.split, self.plain = split, plain
        found = Assets(assets)
        self._composer = Composer(split, FontBook(found.fonts, split), found, plain)
        self._requester = Requester(split)

    @property
    def families(self) -> list[str]:
        """The fonts in use."""
        return list(self._composer.book.families)

    def scene(
        self, rng: random.Random, size: tuple[int, int] | None = None, kind: str | None = None, wear: float = 1.0
    ) -> tuple[Image.Image, scenes.Scene]:
        """A picture and its truth. `size` is (width, height) in pixels, `kind` one of `compose.KINDS`."""
        width, height = size or rng.choice(SIZES)
        grid = grid_for(width, height, BUDGET)
        zoom = (width * height / (grid.num_patches * 256)) ** 0.5
        made, backdrop = self._composer.compose(rng, round(width / zoom), round(height / zoom), zoom, kind)
        image = scenes.draw(made, backdrop, self._composer.book, rng, wear)
        return image.resize((width, height)) if image.size != (width, height) else image, made

    def drawn(self, seed: int, most: int = 10, size: tuple[int, int] | None = None, kind: str | None = None) -> Drawn:
        """Picture and request of a seed."""
        rng = random.Random(seed)
        image, made = self.scene(rng, size, kind)
        return Drawn(image, made, self._requester.about(rng, [made], most))


def draw(seed: int, assets: Path | None = None) -> tuple[Image.Image, list[Question], list[Answer]]:
    """A picture with about ten questions (fewer where it tells little) and their right answers, all by the seed."""
    drawn = Drawer("train", assets).drawn(seed)
    return drawn.image, [a.question for a in drawn.request.asked], [a.answer for a in drawn.request.asked]
