"""The operations of the vision tower between its matrix products, and the choice of who computes them.

All of them keep a picture's bits whatever other pictures are in the pass. `Clip` bounds are what a clipping checkpoint
puts on the inputs and outputs of its linears; infinite where it has none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import torch


class Clip(NamedTuple):
    """Bounds that values are kept within."""

    low: float = -math.inf
    high: float = math.inf


@dataclass(frozen=True, slots=True)
class HeadNorms:
    """Weights of a layer's norms of q and k. `powers`: q's holds log2(e) as well, so that a score is an exponent of 2,
    and no score can be so large that a softmax would have to subtract its largest."""

    q: torch.Tensor
    k: torch.Tensor
    powers: bool = False


GateClips: TypeAlias = tuple[Clip, Clip, Clip]  # of a gate, of what it lets through, of their product


class Spans(Protocol):
    """Where pictures lie among the rows of a pass; see `Pictures`."""

    x: torch.Tensor
    y: torch.Tensor
    tile_start: torch.Tensor
    tile_end: torch.Tensor
    soft_row: torch.Tensor
    soft_width: torch.Tensor
    spans: tuple[tuple[int, int], ...]


class VisionKernels(Protocol):
    """One device's operations. P rows in tiles of `tile`, a tile never of two pictures; S soft tokens."""

    tile: int

    def normalise(self, patches: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """uint8 [P, 768] to 2 * (p / 255 - 0.5), computed in float32."""

    def add_positions(
        self, x: torch.Tensor, table: torch.Tensor, column: torch.Tensor, line: torch.Tensor
    ) -> torch.Tensor:
        """x [P, N] + (table[0][column] + table[1][line])."""

    def clipped_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float, clip: Clip) -> torch.Tensor:
        """rms_norm(x) * weight [P, N], clipped for the linear that reads it."""

    def norm_add(
        self,
        residual: torch.Tensor,
        x: torch.Tensor,
        x_clip: Clip,
        weight: torch.Tensor,
        next_weight: torch.Tensor | None,
        next_clip: Clip,
        eps: float,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """residual + rms_norm(clip(x)) * weight [P, N], and `clipped_norm` of that (itself without `next_weight`)."""

    def head_norms(self, q_norm: torch.Tensor, k_norm: torch.Tensor) -> HeadNorms:
        """A layer's norms, prepared once; looks at their values."""

    def turn(
        self,
        stacked: torch.Tensor,
        clips: tuple[Clip, Clip, Clip],
        norms: HeadNorms,
        turns: tuple[torch.Tensor, torch.Tensor],
        rows: Spans,
        eps: float,
        heads: int,
        kv_heads: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """stacked [P, (heads + 2 * kv_heads) * D] to q, k, v [P, H, D]: clipped, normed, q and k turned.

        turns: cos and sin of every position, float32[positions, D / 4]: the first half of a head turns by the row's
        column, the second by its line, each by halves; v is normed without a weight and not turned.
        """

    def attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: Spans, clip: Clip, *, powers: bool
    ) -> torch.Tensor:
        """Softmax attention (scale 1) of every row over its own picture: [P, heads * D], clipped. Null rows: finite.

        `powers` as the `HeadNorms` said with which q and k were made.
        """

    def gate(self, wide: torch.Tensor, clips: GateClips) -> torch.Tensor:
        """wide [P, 2 * W], gate first: clip(gelu(clip(gate)) * clip(up)) [P, W]."""

    def pool(
        self, x: torch.Tensor, rows: Spans, bias: torch.Tensor | None, scale: torch.Tensor | None, eps: float
    ) -> torch.Tensor:
        """[S, N]: mean of each 3 x 3 block of x [P, N] times sqrt(N), (. - bias) * scale where given, rms_norm."""


def clipped(x: torch.Tensor, clip: Clip) -> torch.Tensor:
    """x kept within bounds."""
    return x if clip == Clip() else x.clamp(clip.low, clip.high)


def largest_score(q_norm: torch.Tensor, k_norm: torch.Tensor) -> float:
    """No product of a turned q and a turned k exceeds it: both have norm sqrt(D) before their weights, and turning
    mixes the two values of a pair only."""
    q, k = (norm.float().abs().view(2, 2, -1).amax(1) for norm in (q_norm, k_norm))
    return float((q * k).max()) * len(q_norm)


def choose_vision(device: torch.device, row_tile: int) -> VisionKernels:
    """The operations for `device`; rows come in tiles of its matrix products' `row_tile`."""
    if device.type == "cpu":
        from photocall_engine.kernels.vision_reference import ReferenceVision

        return ReferenceVision(row_tile)
    from photocall_engine.kernels.triton_vision import TritonVision

    return TritonVision()
