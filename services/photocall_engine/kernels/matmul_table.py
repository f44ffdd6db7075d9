"""How each weight shape is multiplied, by device: what a row's bits depend on, so it is data in the repository.

Nothing is tuned while serving. A plan fixes the K splits and the K block of a weight shape, for every number of rows;
`few` and `many` differ in tile shape only, never in the order in which a row's products are added. No entry has been
measured yet: shapes without one follow `default_plan`, a function of the shape alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Form: TypeAlias = Literal["plain", "tma"]


@dataclass(frozen=True, slots=True)
class Tile:
    """The part of the output that one program makes. 64 rows at least, so that one row takes the same matrix
    instruction (wgmma m64) as a thousand."""

    block_m: int
    block_n: int
    warps: int
    stages: int

    def __post_init__(self) -> None:
        if self.block_m < 64:
            raise ValueError(f"block_m={self.block_m}: a tile has at least 64 rows")


@dataclass(frozen=True, slots=True)
class MatmulPlan:
    """One weight shape. `tma` is the persistent form with tensor descriptors (Hopper), `plain` the fallback."""

    form: Form
    block_k: int
    splits: int  # K is cut into this many sums, added in ascending order
    few: Tile  # each split is a program of its own; up to `few_rows` rows
    many: Tile  # a program walks all splits of its tile
    few_rows: int = 256

    def blocks_per_split(self, k: int) -> int:
        """K blocks of one split; the last split may have fewer."""
        blocks = -(-k // self.block_k)
        return -(-blocks // self.splits)


H200 = "NVIDIA H200"
TABLE: Mapping[tuple[str, int, int], MatmulPlan] = {}  # (device, N, K): entries come from measurements


def plan_for(device: str, n: int, k: int) -> MatmulPlan:
    """The plan for a weight [n, k] on a device, by its name as CUDA reports it; other names take the plain form."""
    return TABLE.get((device, n, k)) or default_plan(n, k, form="tma" if device == H200 else "plain")


def default_plan(n: int, k: int, *, form: Form) -> MatmulPlan:
    """Splits until the tiles of one row block fill 132 multiprocessors, none shorter than 512 values of K."""
    splits = max(1, min(132 // -(-n // 64), k // 512, 8))
    return MatmulPlan(form, 64, splits, few=Tile(64, 64, warps=4, stages=5), many=Tile(128, 128, warps=8, stages=4))


def fingerprint() -> str:
    """Names the table in an answer's provenance."""
    rule = [default_plan(n, k, form="tma") for n, k in ((2560, 10240), (10240, 2560), (21504, 5376))]
    return hashlib.sha256(repr((sorted(TABLE.items()), rule)).encode()).hexdigest()[:16]
