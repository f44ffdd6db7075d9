# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803, N806 (constants of a kernel are written in capitals)
"""What stands between the matrix products of the vision tower, in Triton, over the packed rows of many pictures.

Formulas are those of `vision_reference.py`. Clipping a linear's input is done by whoever makes it, clipping its output
by whoever reads it, so bounds cost no pass of their own. Attention is in `triton_vision_attention.py`. Grids depend on
the size of the buffers only, so a pass can be captured in a graph, and nothing that a program does for a row depends on
the row's place in the pass.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from photocall_engine.kernels.triton_math import gelu, inverse_rms
from photocall_engine.kernels.triton_vision_attention import LARGEST_SCORE, LOG2E, attend
from photocall_engine.kernels.vision import Clip, GateClips, HeadNorms, Spans, largest_score

TILE = 128  # rows between which pictures begin; attention's tiles divide it
_WIDE = 1024
_CELLS = 2048  # pairs of values that one program of `turn` makes, of as many heads and rows as that takes


class TritonVision:
    """See `VisionKernels`. Tests make do with smaller tiles."""

    def __init__(self, tile: int = TILE) -> None:
        self.tile = tile

    def normalise(self, patches: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        out = torch.empty(patches.shape, dtype=dtype, device=patches.device)
        size = patches.numel()
        _normalise[(triton.cdiv(size, _WIDE),)](patches, out, size, BLOCK=_WIDE, num_warps=4)
        return out

    def add_positions(
        self, x: torch.Tensor, table: torch.Tensor, column: torch.Tensor, line: torch.Tensor
    ) -> torch.Tensor:
        rows, width = x.shape
        out = torch.empty_like(x)
        block = min(_WIDE, triton.next_power_of_2(width))
        _add_positions[(rows, triton.cdiv(width, block))](
            x, table, column, line, out, width, table.shape[1] * width, BLOCK=block, num_warps=4
        )
        return out

    def clipped_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float, clip: Clip) -> torch.Tensor:
        rows, width = x.shape
        out = torch.empty_like(x)
        block = triton.next_power_of_2(width)
        _clipped_norm[(rows,)](x, weight, out, width, eps, clip.low, clip.high, BLOCK=block, num_warps=_warps(block))
        return out

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
        rows, width = x.shape
        out = torch.empty_like(residual)
        normed = out if next_weight is None else torch.empty_like(residual)
        block = triton.next_power_of_2(width)
        _norm_add[(rows,)](
            residual, x, weight, next_weight, out, normed, width, eps, *x_clip, *next_clip,
            BLOCK=block, num_warps=_warps(block),
        )  # fmt: skip
        return out, normed

    def head_norms(self, q_norm: torch.Tensor, k_norm: torch.Tensor) -> HeadNorms:
        if largest_score(q_norm, k_norm) > LARGEST_SCORE:
            return HeadNorms(q_norm, k_norm)
        return HeadNorms(q_norm.float() * LOG2E, k_norm, powers=True)

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
        count, width = stacked.shape
        total = heads + 2 * kv_heads
        dim = width // total
        out = torch.empty(count, total, dim, dtype=stacked.dtype, device=stacked.device)
        block = triton.next_power_of_2(dim // 4)
        pairs = _CELLS // (2 * block)
        _turn[(triton.cdiv(count * max(heads, kv_heads), pairs), 3)](
            stacked, norms.q, norms.k, *turns, rows.x, rows.y, out, count, eps, *clips[0], *clips[1], *clips[2],
            HEADS=heads, KV_HEADS=kv_heads, DIM=dim, PAIRS=pairs, BLOCK=block, num_warps=4,
        )  # fmt: skip
        q, k, v = torch.split(out, [heads, kv_heads, kv_heads], dim=1)
        return q, k, v

    def attend(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: Spans, clip: Clip, *, powers: bool
    ) -> torch.Tensor:
        return attend(q, k, v, rows, clip, self.tile, powers=powers)

    def gate(self, wide: torch.Tensor, clips: GateClips) -> torch.Tensor:
        rows, width = wide.shape[0], wide.shape[1] // 2
        out = torch.empty(rows, width, dtype=wide.dtype, device=wide.device)
        block = min(_WIDE, triton.next_power_of_2(width))
        _gate[(rows, triton.cdiv(width, block))](
            wide, out, width, *clips[0], *clips[1], *clips[2], BLOCK=block, num_warps=4
        )
        return out

    def pool(
        self, x: torch.Tensor, rows: Spans, bias: torch.Tensor | None, scale: torch.Tensor | None, eps: float
    ) -> torch.Tensor:
        width = x.shape[1]
        out = torch.empty(len(rows.soft_row), width, dtype=x.dtype, device=x.device)
        block = triton.next_power_of_2(width)
        _pool[(len(out),)](
            x, rows.soft_row, rows.soft_width, bias, scale, out, width, math.sqrt(width), eps,
            BLOCK=block, num_warps=_warps(block),
        )  # fmt: skip
        return out


def _warps(block: int) -> int:
    return min(8, max(1, block // 256))


@triton.jit
def _clip(x, low, high):
    return tl.minimum(tl.maximum(x, low), high)


@triton.jit(do_not_specialize=["size"])
def _normalise(patches, out, size, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(patches + i, mask=i < size, other=0).to(tl.float32)
    value = (tl.math.div_rn(value, 255.0 + tl.zeros_like(value)) - 0.5) * 2.0
    tl.store(out + i, value.to(out.dtype.element_ty), mask=i < size)


@triton.jit
def _add_positions(x, table, column, line, out, width, line_table, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = n < width
    by_column = tl.load(table + tl.load(column + row).to(tl.int64) * width + n, mask=inside, other=0.0)
    by_line = tl.load(table + line_table + tl.load(line + row).to(tl.int64) * width + n, mask=inside, other=0.0)
    value = tl.load(x + row * width + n, mask=inside, other=0.0).to(tl.float32)
    value = value + (by_column.to(tl.float32) + by_line.to(tl.float32))
    tl.store(out + row * width + n, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _clipped_norm(x, weight, out, width, eps, low, high, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK)
    inside = n < width
    value = tl.load(x + row * width + n, mask=inside, other=0.0).to(tl.float32)
    value = value * inverse_rms(value, width, eps) * tl.load(weight + n, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + n, _clip(value, low, high).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _norm_add(
    residual, x, weight, next_weight, out, normed, width, eps, low, high, next_low, next_high, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK)
    inside = n < width
    value = tl.load(x + row * width + n, mask=inside, other=0.0).to(tl.float32)
    value = tl.where(inside, _clip(value, low, high), 0.0)
    w = tl.load(weight + n, mask=inside, other=0.0).to(tl.float32)
    kept = tl.load(residual + row * width + n, mask=inside, other=0.0).to(tl.float32)
    rounded = tl.fma(value * inverse_rms(value, width, eps), w, kept).to(out.dtype.element_ty)
    tl.store(out + row * width + n, rounded, mask=inside)
    if next_weight is not None:
        value = rounded.to(tl.float32)
        value = value * inverse_rms(value, width, eps) * tl.load(next_weight + n, mask=inside, other=0.0).to(tl.float32)
        tl.store(normed + row * width + n, _clip(value, next_low, next_high).to(normed.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["rows"])
def _turn(
    stacked, q_norm, k_norm, cos, sin, column, line, out, rows, eps, q_low, q_high, k_low, k_high, v_low, v_high,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, PAIRS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    TOTAL: tl.constexpr = HEADS + 2 * KV_HEADS
    if tl.program_id(1) == 0:
        _turn_some(
            stacked, q_norm, cos, sin, column, line, out, rows, eps, q_low, q_high, HEADS, 0, TOTAL, DIM, PAIRS, BLOCK
        )
    elif tl.program_id(1) == 1:
        _turn_some(
            stacked, k_norm, cos, sin, column, line, out, rows, eps, k_low, k_high, KV_HEADS, HEADS, TOTAL, DIM, PAIRS,
            BLOCK,
        )  # fmt: skip
    else:
        _turn_some(
            stacked, None, cos, sin, column, line, out, rows, eps, v_low, v_high, KV_HEADS, HEADS + KV_HEADS, TOTAL,
            DIM, PAIRS, BLOCK,
        )  # fmt: skip


@triton.jit
def _turn_some(
    stacked, weight, cos, sin, column, line, out, rows, eps, least, most, COUNT: tl.constexpr, FIRST: tl.constexpr,
    TOTAL: tl.constexpr, DIM: tl.constexpr, PAIRS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """PAIRS pairs of row and head out of COUNT heads from FIRST on; without a weight nothing turns."""
    QUARTER: tl.constexpr = DIM // 4
    pair = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    row = pair // COUNT
    c = tl.arange(0, 2 * BLOCK)
    axis, j = c // BLOCK, c % BLOCK
    inside = j < QUARTER
    cells = (row < rows)[:, None] & inside[None, :]
    # the low quarter of each half; the high one follows it
    place = (row.to(tl.int64) * TOTAL + FIRST + pair % COUNT)[:, None] * DIM + (axis * 2 * QUARTER + j)[None, :]
    low = tl.load(stacked + place, mask=cells, other=0.0).to(tl.float32)
    high = tl.load(stacked + place + QUARTER, mask=cells, other=0.0).to(tl.float32)
    low = tl.where(cells, _clip(low, least, most), 0.0)
    high = tl.where(cells, _clip(high, least, most), 0.0)
    scale = tl.rsqrt((tl.sum(low * low, 1) + tl.sum(high * high, 1)) / DIM + eps)[:, None]
    low, high = low * scale, high * scale
    if weight is not None:
        low = low * tl.load(weight + axis * 2 * QUARTER + j, mask=inside, other=0.0).to(tl.float32)[None, :]
        high = high * tl.load(weight + axis * 2 * QUARTER + QUARTER + j, mask=inside, other=0.0).to(tl.float32)[None, :]
        by_column = tl.load(column + row, mask=row < rows, other=0)
        by_line = tl.load(line + row, mask=row < rows, other=0)
        angle = tl.where((axis == 0)[None, :], by_column[:, None], by_line[:, None]) * QUARTER + j[None, :]
        turn_cos = tl.load(cos + angle, mask=cells, other=0.0)
        turn_sin = tl.load(sin + angle, mask=cells, other=0.0)
        low, high = tl.fma(low, turn_cos, -(high * turn_sin)), tl.fma(high, turn_cos, low * turn_sin)
    tl.store(out + place, low.to(out.dtype.element_ty), mask=cells)
    tl.store(out + place + QUARTER, high.to(out.dtype.element_ty), mask=cells)


@triton.jit
def _gate(
    wide, out, width, gate_low, gate_high, up_low, up_high, low, high, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = n < width
    gate = _clip(tl.load(wide + row * 2 * width + n, mask=inside, other=0.0).to(tl.float32), gate_low, gate_high)
    up = _clip(tl.load(wide + row * 2 * width + width + n, mask=inside, other=0.0).to(tl.float32), up_low, up_high)
    tl.store(out + row * width + n, _clip(gelu(gate) * up, low, high).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _pool(x, soft_row, soft_width, bias, scale, out, width, root, eps, BLOCK: tl.constexpr):
    soft = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK)
    inside = n < width
    first = tl.load(soft_row + soft).to(tl.int64)
    line = tl.load(soft_width + soft).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for block_line in tl.static_range(3):
        for column in tl.static_range(3):
            place = x + (first + block_line * line + column) * width + n
            total = total + tl.load(place, mask=inside, other=0.0).to(tl.float32)
    value = (total / 9.0).to(x.dtype.element_ty).to(tl.float32) * root
    if bias is not None:
        shift = tl.load(bias + n, mask=inside, other=0.0).to(tl.float32)
        value = (value - shift) * tl.load(scale + n, mask=inside, other=0.0).to(tl.float32)
    value = value.to(x.dtype.element_ty).to(tl.float32)
    tl.store(out + soft * width + n, (value * inverse_rms(value, width, eps)).to(out.dtype.element_ty), mask=inside)
