"""ImagePrep: the bytes of a picture file in, its patch blob out. Read first.

Open, fit to the grid, decode, resize and turn, cut. The model is known only by its soft-token budget. The same bytes,
view and fidelity make the same blob on every machine with the same libraries.

Two fidelities. `exact`: every pixel is decoded, turned, and resized as the reference processor does. `fast`: a decoder
may hand over fewer pixels, on each side at least REDUCED times those of the grid, and what is cheaper after the resize
is done after it. docs/images.md says how far the two are apart; tests hold them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from photocall.grid import BUDGETS, Grid, grid_for
from photocall.views import AUTO, PLAIN, Budget, View
from photocall_prep.budgets import Chosen, candidates, choose
from photocall_prep.colour import WHITE
from photocall_prep.decode import open_picture
from photocall_prep.patches import patchify
from photocall_prep.refusal import Limits
from photocall_prep.resize import to_grid
from photocall_prep.sources import Facts
from photocall_prep.turning import turned

Fidelity: TypeAlias = Literal["fast", "exact"]

_GIVEN = "as asked for or set up"
REDUCED = 2  # with less, mean differences to the full decode pass half a level of 255 on ordinary photographs


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """A picture as the engine takes it, and how it became that."""

    grid: Grid
    patches: bytes  # uint8 [grid.num_patches, 768]
    facts: Facts
    colour: tuple[str, ...]
    decoded_size: tuple[int, int]  # width and height that were decoded
    budget: int
    why: str  # this budget
    fidelity: Fidelity


class Prep(Protocol):
    """Whoever prepares pictures: in this process, or in one that may be lost to them (`guarded_prep.py`)."""

    def prepare(self, data: bytes, budget: Budget, view: View = PLAIN) -> PreparedImage:
        """`budget` in soft tokens; the view's own is the caller's to look at. Raises ImageRefused."""


class ImagePrep:
    """Prepares pictures within fixed limits, in one fidelity.

    `background`: rrggbb behind what is transparent. `allowed`: the budgets that `auto` chooses from, ascending.
    """

    def __init__(
        self,
        limits: Limits,
        fidelity: Fidelity = "fast",
        background: str = WHITE,
        allowed: Sequence[int] = BUDGETS,
    ) -> None:
        self._limits = limits
        self._allowed = tuple(allowed)
        self._fidelity = fidelity
        self._exact = fidelity == "exact"
        self._background = background

    def prepare(self, data: bytes, budget: Budget, view: View = PLAIN) -> PreparedImage:
        """`budget` in soft tokens; the view's own is the caller's to look at. Raises ImageRefused."""
        with open_picture(data, self._limits, view, self._background) as picture:
            facts = picture.facts
            possible = candidates(facts.size, self._allowed) if budget == AUTO else (budget,)
            largest = grid_for(*facts.upright_size, possible[-1])
            loaded = picture.load(None if self._exact else _enough(largest, facts.turn))
            chosen = (
                choose(loaded.rgb, facts.size, possible) if budget == AUTO else Chosen(budget, "as asked for or set up")
            )
            grid = grid_for(*facts.upright_size, chosen.budget)
            pixels = to_grid(loaded.rgb, facts.turn, grid, loaded.covers, self._exact)
            patches = patchify(pixels).tobytes()
            return PreparedImage(
                grid,
                patches,
                facts,
                loaded.colour,
                loaded.rgb.size,
                chosen.budget,
                chosen.why,
                self._fidelity,
            )


def _enough(grid: Grid, turn: int) -> tuple[int, int]:
    """Width and height, before turning, that a resize to this grid needs to find."""
    height, width = grid.pixels
    return turned((REDUCED * width, REDUCED * height), turn)
