"""The tower's kernels at the shapes of the two public towers, for `kernel_cases.py`: pictures of 280 soft tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from photocall_engine.kernels.triton_vision import TritonVision
from photocall_engine.kernels.vision import Clip, HeadNorms
from photocall_engine.kernels.vision_reference import ReferenceVision
from photocall_engine.model.pictures import PassShape, PictureBuffers, Pictures
from photocall_engine.runner import PatchImage
from photocall_engine.words import Words

OURS = TritonVision()
TRUTH = ReferenceVision(OURS.tile)
CLIP = Clip(-4.0, 4.0)
EPS = 1e-6
GRID = (42, 60)  # 280 soft tokens


@dataclass(frozen=True, slots=True)
class Tower:
    """Sizes of one tower."""

    hidden: int
    wide: int
    heads: int
    dim: int


TOWERS = {"E4B": Tower(768, 3072, 12, 64), "31B": Tower(1152, 4304, 16, 72)}
Run = Callable[[Any, dict[str, torch.Tensor], Pictures], torch.Tensor]


@dataclass(frozen=True, slots=True)
class VisionCase:
    """One kernel: what goes in by name and shape, what runs on either side, bytes and operations."""

    name: str
    shapes: dict[str, tuple[int, ...]]
    run: Run
    moved_values: float
    operations: float = 0.0


def vision_cases(tower: Tower, rows: int, soft: int, patches: int, count: int) -> Iterator[VisionCase]:
    """Every kernel of a layer, and the pool."""
    hidden, wide, heads, dim = tower.hidden, tower.wide, tower.heads, tower.dim
    width = heads * dim
    yield VisionCase(
        "norm_add",
        {"residual": (rows, hidden), "x": (rows, hidden), "w": (hidden,), "after": (hidden,)},
        lambda ops, i, p: ops.norm_add(i["residual"], i["x"], CLIP, i["w"], i["after"], CLIP, EPS)[0],
        4 * rows * hidden,
    )
    yield VisionCase(
        "gate",
        {"wide": (rows, 2 * wide)},
        lambda ops, i, p: ops.gate(i["wide"], (CLIP, CLIP, CLIP)),
        3 * rows * wide,
    )

    def turn(ops: Any, i: dict[str, torch.Tensor], p: Pictures) -> torch.Tensor:
        turns = _turns(i["stacked"].device, dim // 4)
        q: torch.Tensor
        q, _, _ = ops.turn(i["stacked"], (CLIP, CLIP, CLIP), HeadNorms(i["q_w"], i["k_w"]), turns, p, EPS, heads, heads)
        return q

    yield VisionCase(
        "turn",
        {"stacked": (rows, 3 * width), "q_w": (dim,), "k_w": (dim,)},
        turn,
        6 * rows * width,
    )
    yield VisionCase(
        "attend",
        dict.fromkeys("qkv", (rows, heads, dim)),
        lambda ops, i, p: ops.attend(i["q"], i["k"], i["v"], p, CLIP, powers=True),
        4 * rows * width,
        4.0 * count * patches**2 * width,
    )
    yield VisionCase(
        "pool",
        {"x": (rows, hidden), "bias": (hidden,), "scale": (hidden,)},
        lambda ops, i, p: ops.pool(i["x"], p, i["bias"], i["scale"], EPS),
        (rows + soft) * hidden,
    )


@cache
def _turns(device: torch.device, quarter: int) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.arange(max(GRID))[:, None] * 0.1 ** (torch.arange(quarter) / quarter)
    return angles.cos().to(device), angles.sin().to(device)


def some_pictures(device: torch.device, count: int) -> Pictures:
    """`count` grey pictures, packed."""
    height, width = GRID
    images = [PatchImage(np.full((height * width, 768), 128, dtype=np.uint8), height, width)] * count
    buffers = PictureBuffers(Words(device, 1), OURS.tile, 0)
    return buffers.fill(images, [0] * count, PassShape.exact(images, OURS.tile))
