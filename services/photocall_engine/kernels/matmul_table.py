"""How each weight shape is multiplied, by device: what a row's bits depend on, so it is data in the repository.

Nothing is tuned while serving. A plan fixes into how many sums K is cut; that alone decides in which order a row's
products are added. Which tile of the output a program makes, and in steps of how many values of K, follows the number
of rows and never changes a bit (`ops/gpu/tune.py` and the tests on the device compare them).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Form: TypeAlias = Literal["plain", "tma"]
Walk: TypeAlias = Literal["no", "flat"]

SPLIT_STEP = 128  # a split begins at a multiple of it, and every block_k divides it


@dataclass(frozen=True, slots=True)
class Tile:
    """The part of the output that one program makes, `block_k` values of K at a time.

    64 rows at least, so that one row takes the same matrix instruction (wgmma m64) as a thousand.

    walk   each tile has a program of its own (no), or as many programs as the device has processors walk the tiles,
           with the next one's loads under way (flat)
    apart  each split has programs of its own, and their sums are added by whoever reads the product
    """

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    walk: Walk = "no"
    apart: bool = False

    def __post_init__(self) -> None:
        if self.block_m < 64:
            raise ValueError(f"block_m={self.block_m}: a tile has at least 64 rows")
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


H200 = "NVIDIA H200"
TABLE: Mapping[tuple[str, int, int], MatmulPlan] = {}  # (device, N, K): entries come from measurements


def plan_for(device: str, n: int, k: int, *, whole: bool = False) -> MatmulPlan:
    """The plan for a weight [n, k] on a device, by its name as CUDA reports it; other names take the plain form.

    `whole`: its sums are finished in the product itself (gates), so K is not cut.
    """
    return TABLE.get((device, n, k)) or default_plan(n, k, form="tma" if device == H200 else "plain", whole=whole)


def default_plan(n: int, k: int, *, form: Form, whole: bool = False) -> MatmulPlan:
    """Splits until the tiles of one row block fill 132 processors, none shorter than 1,024 values of K."""
    splits = 1 if whole else max(1, min(264 // -(-n // 64), k // 1024, 4))
    few = Tile(64, 64, 64, 4, 5, apart=splits > 1)
    return MatmulPlan(form, splits, ((256, few), (1 << 31, Tile(128, 128, 64, 8, 4, walk="flat"))))


def fingerprint() -> str:
    """Names the table in an answer's provenance."""
    rule = [default_plan(n, k, form="tma") for n, k in ((2560, 10240), (10240, 2560), (21504, 5376))]
    return hashlib.sha256(repr((sorted(TABLE.items()), rule)).encode()).hexdigest()[:16]
