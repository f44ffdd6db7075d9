"""The vision tower's operations in plain torch: the truth for the Triton ones, and what the CPU runs.

Each picture's attention is a call of its own over its own rows, so its bits are those of the picture alone.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from photocall_engine.kernels.reference import ReferenceKernels
from photocall_engine.kernels.vision import Clip, GateClips, HeadNorms, Spans, clipped

_OPS = ReferenceKernels()


class ReferenceVision:
    """See `VisionKernels`. Arithmetic in float32, rounded to the type of what comes in."""

    def __init__(self, tile: int) -> None:
        self.tile = tile

    def normalise(self, patches: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return patches.float().div_(255.0).sub_(0.5).mul_(2.0).to(dtype)

    def add_positions(
        self, x: torch.Tensor, table: torch.Tensor, column: torch.Tensor, line: torch.Tensor
    ) -> torch.Tensor:
        return x + (table[0].index_select(0, column) + table[1].index_select(0, line))

    def clipped_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float, clip: Clip) -> torch.Tensor:
        return clipped(norm(x, weight, eps), clip)

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
        out = norm(clipped(x, x_clip), weight, eps).add_(residual)
        return out, out if next_weight is None else self.clipped_norm(out, next_weight, eps, next_clip)

    def head_norms(self, q_norm: torch.Tensor, k_norm: torch.Tensor) -> HeadNorms:
        return HeadNorms(q_norm, k_norm)

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
        every = stacked.view(len(stacked), heads + 2 * kv_heads, -1)
        parts = torch.split(every, [heads, kv_heads, kv_heads], dim=1)
        q, k, v = (clipped(part, clip) for part, clip in zip(parts, clips, strict=True))
        cos, sin = (torch.stack([table.index_select(0, axis) for axis in (rows.x, rows.y)], dim=1) for table in turns)
        return (
            axial_rope(norm(q, norms.q, eps), cos, sin),
            axial_rope(norm(k, norms.k, eps), cos, sin),
            norm(v, None, eps),
        )

    def attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: Spans, clip: Clip, *, powers: bool
    ) -> torch.Tensor:
        scale = math.log(2.0) if powers else 1.0
        out = torch.zeros_like(q)
        for start, end in rows.spans:
            # [1, heads, patches, head_dim], copied: what a library does must not depend on where a picture lies
            mine_q, mine_k, mine_v = (x[start:end].transpose(0, 1)[None].contiguous() for x in (q, k, v))
            gqa = k.shape[1] != q.shape[1]
            found = F.scaled_dot_product_attention(mine_q, mine_k, mine_v, scale=scale, enable_gqa=gqa)
            out[start:end] = found[0].transpose(0, 1)
        return clipped(out.flatten(1), clip)

    def gate(self, wide: torch.Tensor, clips: GateClips) -> torch.Tensor:
        gate, up = (clipped(half, clip) for half, clip in zip(wide.chunk(2, dim=1), clips, strict=False))
        return clipped(_OPS.geglu(gate, up), clips[2])

    def pool(
        self, x: torch.Tensor, rows: Spans, bias: torch.Tensor | None, scale: torch.Tensor | None, eps: float
    ) -> torch.Tensor:
        total = torch.zeros(len(rows.soft_row), x.shape[1], device=x.device)
        for line in range(3):
            for column in range(3):
                total += x.index_select(0, rows.soft_row + line * rows.soft_width + column).float()
        pooled = (total / 9.0).to(x.dtype).float() * math.sqrt(x.shape[1])
        if bias is not None and scale is not None:
            pooled = (pooled - bias.float()) * scale.float()
        return norm(pooled.to(x.dtype), None, eps)


def norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """RMSNorm in float32 over the last dimension."""
    out = x.float() * x.float().square().mean(-1, keepdim=True).add_(eps).rsqrt_()
    return (out if weight is None else out.mul_(weight.float())).to(x.dtype)


def axial_rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [n, heads, head_dim]: first half turned by the column, second by the line; cos, sin [n, 2, head_dim / 4]."""
    parts = x.reshape(*x.shape[:-1], 2, 2, x.shape[-1] // 4).float()  # [n, heads, axis, half, head_dim / 4]
    low, high = parts[..., 0, :], parts[..., 1, :]
    cos, sin = cos[:, None], sin[:, None]
    return torch.stack((low * cos - high * sin, high * cos + low * sin), dim=-2).flatten(-3).to(x.dtype)
