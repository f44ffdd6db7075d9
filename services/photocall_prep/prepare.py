"""ImagePrep: the bytes of a picture file in, its patch blob out. Read first.

Open, fit to the grid, decode, resize and turn, cut. The model is known only by its soft-token budget. The same bytes,
view and fidelity make the same blob on every machine with the same libraries.

Two fidelities. `exact`: every pixel is decoded, turned, and resized as the reference processor does. `fast`: by other
libraries, and what is cheaper after the resize is done after it; of a picture that is large, or whose colours are
costly, a decoder may hand over fewer pixels, on each side at least REDUCED times those of the grid. docs/images.md says
how far the two are apart; tests hold them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeAlias

from photocall.grid import BUDGETS, Grid, grid_for
from photocall.views import AUTO, PLAIN, Budget, View
from photocall_prep.budgets import Chosen, candidates, choose
from photocall_prep.colour import WHITE
from photocall_prep.crowd import Crowd
from photocall_prep.decode import OpenPicture, open_picture
from photocall_prep.patches import patchify
from photocall_prep.refusal import Limits
from photocall_prep.resize import to_grid
from photocall_prep.sources import Facts, Fitted, Loaded
from photocall_prep.streaming import REDUCED, spread
from photocall_prep.turning import turned, upright_pixels

Fidelity: TypeAlias = Literal["fast", "exact"]

_GIVEN = "as asked for or set up"


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
    `crowd`: who else prepares on this host, which decides how many threads a picture has; the bytes are the same.
    """

    def __init__(
        self,
        limits: Limits,
        fidelity: Fidelity = "fast",
        background: str = WHITE,
        allowed: Sequence[int] = BUDGETS,
        crowd: Crowd | None = None,
    ) -> None:
        self._limits = limits
        self._allowed = tuple(allowed)
        self._fidelity = fidelity
        self._exact = fidelity == "exact"
        self._background = background
        self._crowd = crowd or Crowd()

    def prepare(self, data: bytes, budget: Budget, view: View = PLAIN) -> PreparedImage:
        """`budget` in soft tokens; the view's own is the caller's to look at. Raises ImageRefused."""
        with (
            self._crowd.joined() as threads,
            spread(threads),
            open_picture(data, self._limits, view, self._background) as picture,
        ):
            facts, loaded = picture.facts, None
            if budget != AUTO:
                chosen = Chosen(budget, _GIVEN)
            else:
                possible = candidates(facts.size, self._allowed)
                loaded = self._load(picture, grid_for(*facts.upright_size, possible[-1]))
                chosen = choose(loaded.rgb, facts.size, possible)
            grid = grid_for(*facts.upright_size, chosen.budget)
            fitted = self._fitted(picture, grid) if loaded is None else None
            if fitted is None:
                loaded = loaded or self._load(picture, grid)
                pixels = to_grid(loaded.rgb, facts.turn, grid, loaded.covers, self._exact)
                fitted = Fitted(pixels, loaded.colour, loaded.rgb.size)
            return PreparedImage(
                grid,
                patchify(fitted.pixels).tobytes(),
                facts,
                fitted.colour,
                fitted.decoded_size,
                chosen.budget,
                chosen.why,
                self._fidelity,
            )

    def _load(self, picture: OpenPicture, grid: Grid) -> Loaded:
        """At least as many pixels as a resize to this grid needs."""
        return picture.load(None if self._exact else _enough(grid, picture.facts.turn))

    def _fitted(self, picture: OpenPicture, grid: Grid) -> Fitted | None:
        """Upright pixels of the grid, where there is a faster way to them than `_load`."""
        turn = picture.facts.turn
        found = None if self._exact else picture.fitted(turned(grid.pixels[::-1], turn))
        return found and replace(found, pixels=upright_pixels(found.pixels, turn))


def _enough(grid: Grid, turn: int) -> tuple[int, int]:
    """Width and height, before turning, that a resize to this grid needs to find."""
    height, width = grid.pixels
    return turned((REDUCED * width, REDUCED * height), turn)
