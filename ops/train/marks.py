"""What every patch shows, for the auxiliary loss: classes and colours by number, and boxes laid on the grid."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ops.train import shapes
from ops.train.backgrounds import COLORS
from ops.train.things import CLOTHES, EMOJI, ROAD_SIGNS

Box = tuple[float, float, float, float]
GLYPHS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz.,:-/%$£€#&"
MARK_COLORS = ("none", *COLORS)
MARK_CLASSES = (
    *("none", *GLYPHS, "other glyph", *shapes.SHAPES),
    *EMOJI,
    *(f"worn {name}" for name in CLOTHES),
    *(f"sign {name}" for name in ROAD_SIGNS),
    *("tick", "no tick", "needle", "damage"),
    *("bar highest", "bar lowest", "bar between"),
)
COLOR_OF = {name: number for number, name in enumerate(MARK_COLORS)}
CLASS_OF = {name: number for number, name in enumerate(MARK_CLASSES)}
assert len(MARK_CLASSES) < 256, "marks travel as bytes"


def glyph_class(glyph: str) -> int:
    """The class of a printed character."""
    return CLASS_OF[glyph] if glyph in GLYPHS else CLASS_OF["other glyph"]


def on_grid(marks: Sequence[tuple[int, int, Box]], size: tuple[int, int], height: int, width: int) -> NDArray[np.uint8]:
    """[height, width, 2]: class and colour of every patch whose middle lies in something; later marks cover earlier.

    `size` is (width, height) of the picture that the boxes are measured in.
    """
    grid = np.zeros((height, width, 2), np.uint8)
    across, down = width / size[0], height / size[1]
    for kind, color, (x0, y0, x1, y1) in marks:
        top, left = max(0, math.ceil(y0 * down - 0.5)), max(0, math.ceil(x0 * across - 0.5))
        grid[top : math.floor(y1 * down - 0.5) + 1, left : math.floor(x1 * across - 0.5) + 1] = kind, color
    return grid
