"""How many soft tokens a picture is worth: what `auto` chooses, and why.

By size: a budget whose grid has as many pixels as the picture is enough, more would only enlarge it. By detail: among
those, the smallest at which nothing much is lost. What is lost is measured on brightness: the picture at the largest
grid, once more through a smaller one and back, compared patch by patch. A photograph's fiftieth finest patch and every
patch of print count; docs/images.md has what that gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from photocall.grid import PATCH_SIZE, POOL, Grid, grid_for

FINE_PERCENTILE, FINE_LOSS = 98, 6.0  # levels of 255 that the finest fiftieth of the patches may lose in the mean
WORST_LOSS = 24.0  # and any single patch: a line of print on a large smooth picture is one patch in a thousand
_SOFT_PIXELS = (PATCH_SIZE * POOL) ** 2


@dataclass(frozen=True, slots=True)
class Chosen:
    """A budget, and the reason for a person."""

    budget: int
    why: str


def candidates(size: tuple[int, int], allowed: Sequence[int]) -> tuple[int, ...]:
    """The budgets that a picture of this size could use, ascending; always one."""
    pixels = size[0] * size[1]
    return tuple(b for i, b in enumerate(allowed) if i == 0 or allowed[i - 1] * _SOFT_PIXELS < pixels)


def choose(rgb: Image.Image, size: tuple[int, int], budgets: Sequence[int]) -> Chosen:
    """The smallest of `budgets` that shows all there is. `size` is the picture's own; `rgb` may be reduced."""
    top = budgets[-1]
    if len(budgets) == 1:
        return Chosen(top, f"{size[0]}x{size[1]} pixels fill no more")
    reason = f"{top} is what {size[0]}x{size[1]} pixels can fill"
    grey = rgb.convert("L").resize(_size(grid_for(*size, top)), Image.Resampling.BICUBIC)
    whole = np.asarray(grey).astype(np.float32)
    for budget in budgets[:-1]:
        small = grey.resize(_size(grid_for(*size, budget)), Image.Resampling.BICUBIC)
        back = np.asarray(small.resize(grey.size, Image.Resampling.BICUBIC)).astype(np.float32)
        lost = _by_patch(np.abs(whole - back))
        fine, worst = float(np.percentile(lost, FINE_PERCENTILE)), float(lost.max())
        reason += f"; {budget} loses {fine:.1f} of 255 in the finest parts and {worst:.1f} at most"
        if fine <= FINE_LOSS and worst <= WORST_LOSS:
            return Chosen(budget, reason)
    return Chosen(top, reason)


def _size(grid: Grid) -> tuple[int, int]:
    height, width = grid.pixels
    return width, height


def _by_patch(lost: NDArray[np.float32]) -> NDArray[np.float32]:
    rows, columns = lost.shape[0] // PATCH_SIZE, lost.shape[1] // PATCH_SIZE
    return np.asarray(lost.reshape(rows, PATCH_SIZE, columns, PATCH_SIZE).mean(axis=(1, 3)))
