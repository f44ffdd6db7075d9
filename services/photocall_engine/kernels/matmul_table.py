"""How each weight shape is multiplied, by device: what a row's bits depend on, so it is data in the repository.

Nothing is tuned while serving. A plan fixes into how many sums K is cut; that alone decides in which order a row's
products are added. Which tile of the output a program makes, and in steps of how many values of K, follows the number
of rows and never changes a bit (`ops/gpu/tune.py` and the tests on the device compare them).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from photocall_engine.kernels.matmul_h200 import H200, TILES
from photocall_engine.kernels.matmul_plan import Form, MatmulPlan, Tile

TABLE: Mapping[tuple[str, int, int], MatmulPlan] = TILES  # (device, N, K): entries come from measurements


def plan_for(device: str, n: int, k: int, *, whole: bool = False) -> MatmulPlan:
    """The plan for a weight [n, k] on a device, by its name as CUDA reports it; other names take the plain form.

    `whole`: its sums are finished in the product itself (gates), so K is not cut.
    """
    return TABLE.get((device, n, k)) or default_plan(n, k, form="tma" if device == H200 else "plain", whole=whole)


def default_plan(n: int, k: int, *, form: Form, whole: bool = False) -> MatmulPlan:
    """Splits until the tiles of one row block fill 132 processors, none shorter than 1,024 values of K."""
    splits = 1 if whole else max(1, min(264 // -(-n // 64), k // 1024, 4))
    fewest = Tile(16, 128, 64, 4, 6, apart=splits > 1, across=True)
    few = Tile(64, 64, 64, 4, 5, apart=splits > 1)
    return MatmulPlan(form, splits, ((16, fewest), (256, few), (1 << 31, Tile(128, 128, 64, 8, 4, walk="flat"))))


def fingerprint() -> str:
    """Names the table in an answer's provenance."""
    rule = [default_plan(n, k, form="tma") for n, k in ((2560, 10240), (10240, 2560), (21504, 5376))]
    return hashlib.sha256(repr((sorted(TABLE.items()), rule)).encode()).hexdigest()
