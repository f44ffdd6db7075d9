"""The plan of one weight shape: into how many sums K is cut, and which tiles serve which numbers of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Form: TypeAlias = Literal["plain", "tma"]
Walk: TypeAlias = Literal["no", "flat"]

SPLIT_STEP = 128  # a split begins at a multiple of it, and every block_k divides it


@dataclass(frozen=True, slots=True)
class Tile:
    """The part of the output that one program makes, `block_k` values of K at a time.

    The matrix instruction (wgmma m64) has 64 rows at least; x's take them, or where there are few, the weight's.

    walk   each tile has a program of its own (no), or as many programs as the device has processors walk the tiles,
           with the next one's loads under way (flat)
    apart  each split has programs of its own, and their sums are added by whoever reads the product
    across the weight's rows are those of the matrix instruction and x's its columns, so that sixteen rows need not be
           padded to 64. A product's bits are the same either way (`ops/gpu/tune.py` compares them).
    """

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    walk: Walk = "no"
    apart: bool = False
    across: bool = False

    def __post_init__(self) -> None:
        if (self.block_n if self.across else self.block_m) < 64:
            raise ValueError(f"{self}: the matrix instruction has 64 rows at least")
        if min(self.block_m, self.block_n) < 16:
            raise ValueError(f"{self}: a block has 16 rows at least")
        if SPLIT_STEP % self.block_k:
            raise ValueError(f"block_k={self.block_k} does not divide {SPLIT_STEP}")


@dataclass(frozen=True, slots=True)
class MatmulPlan:
    """One weight shape. `tma` loads through tensor descriptors (Hopper), `plain` is the fallback."""

    form: Form
    splits: int  # K is cut into this many sums, added in ascending order
    tiles: tuple[tuple[int, Tile], ...]  # (up to how many rows, tile), ascending; the last one serves any number

    def tile(self, rows: int) -> Tile:
        """For a number of rows."""
        return next((tile for most, tile in self.tiles if rows <= most), self.tiles[-1][1])

    def split_k(self, k: int) -> int:
        """Values of K in one split, a multiple of SPLIT_STEP; the last split may have fewer."""
        steps = -(-k // SPLIT_STEP)
        return -(-steps // self.splits) * SPLIT_STEP
