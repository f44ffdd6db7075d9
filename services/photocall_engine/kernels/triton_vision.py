# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803, N806 (constants of a kernel are written in capitals)
"""What stands between the matrix products of the vision tower, in Triton, over the packed rows of many pictures.

Formulas are those of `vision_reference.py`. Clipping a linear's input is done by whoever makes it, clipping its output
by whoever reads it, so bounds cost no pass of their own. Attention gives a tile of one picture's rows to each program,
which walks that picture's patches in blocks counted from its first: who else is in the pass plays no part. Grids depend
on the size of the buffers only, so a pass can be captured in a graph. So far run in Triton's interpreter only.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from photocall_engine.kernels.triton_math import gelu, inverse_rms
from photocall_engine.kernels.vision import Clip, Spans

TILE = 64  # rows of one attention program; pictures begin at multiples of it
_BLOCK_N = 64  # patches of one K/V block
_WIDE = 1024
_HEADS = 4  # heads of one program of `turn`
_LOG2E = 1.4426950408889634


class TritonVision:
    """See `VisionKernels`. A tile of 64 rows takes one family of matrix instructions; tests make do with fewer."""

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

    def turn(
        self,
        stacked: torch.Tensor,
        clips: tuple[Clip, Clip, Clip],
        q_norm: torch.Tensor,
        k_norm: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
        eps: float,
        heads: int,
        kv_heads: int,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rows, width = stacked.shape
        dim = width // (heads + 2 * kv_heads)
        q, k, v = (
            torch.empty(rows, count, dim, dtype=stacked.dtype, device=stacked.device)
            for count in (heads, kv_heads, kv_heads)
        )
        _turn[(rows, triton.cdiv(heads + 2 * kv_heads, _HEADS))](
            stacked, q_norm, k_norm, cos, sin, q, k, v, eps, *clips[0], *clips[1], *clips[2],
            HEADS=heads, KV_HEADS=kv_heads, DIM=dim, BLOCK_H=_HEADS, BLOCK=triton.next_power_of_2(dim // 4),
            num_warps=4,
        )  # fmt: skip
        return q, k, v

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, rows: Spans, clip: Clip) -> torch.Tensor:
        count, heads, dim = q.shape
        out = torch.empty(count, heads * dim, dtype=q.dtype, device=q.device)
        _attend[(len(rows.tile_start), heads)](
            q, k, v, rows.tile_start, rows.tile_end, out, *clip, HEADS=heads, KV_HEADS=k.shape[1], DIM=dim,
            BLOCK_D=max(16, triton.next_power_of_2(dim)), BLOCK_M=self.tile, BLOCK_N=_BLOCK_N, LOG2E=_LOG2E,
            num_warps=4, num_stages=3,
        )  # fmt: skip
        return out

    def gate(self, wide: torch.Tensor, gate_clip: Clip, up_clip: Clip, clip: Clip) -> torch.Tensor:
        rows, width = wide.shape[0], wide.shape[1] // 2
        out = torch.empty(rows, width, dtype=wide.dtype, device=wide.device)
        block = min(_WIDE, triton.next_power_of_2(width))
        _gate[(rows, triton.cdiv(width, block))](
            wide, out, width, *gate_clip, *up_clip, *clip, BLOCK=block, num_warps=4
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


@triton.jit
def _turn(
    stacked, q_norm, k_norm, cos, sin, q, k, v, eps, q_low, q_high, k_low, k_high, v_low, v_high,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    QUARTER: tl.constexpr = DIM // 4
    TOTAL: tl.constexpr = HEADS + 2 * KV_HEADS
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    c = tl.arange(0, 2 * BLOCK)
    axis, j = c // BLOCK, c % BLOCK
    is_q = (head < HEADS)[:, None]
    is_k = ((head >= HEADS) & (head < HEADS + KV_HEADS))[:, None]
    is_v = ((head >= HEADS + KV_HEADS) & (head < TOTAL))[:, None]
    inside = j < QUARTER
    cells = (head < TOTAL)[:, None] & inside[None, :]
    place = axis * 2 * QUARTER + j  # the low quarter of each half; the high one follows it
    source = stacked + row * TOTAL * DIM + head[:, None] * DIM + place[None, :]
    least = tl.where(is_q, q_low, tl.where(is_k, k_low, v_low))
    most = tl.where(is_q, q_high, tl.where(is_k, k_high, v_high))
    low = tl.where(cells, _clip(tl.load(source, mask=cells, other=0.0).to(tl.float32), least, most), 0.0)
    high = tl.where(cells, _clip(tl.load(source + QUARTER, mask=cells, other=0.0).to(tl.float32), least, most), 0.0)
    scale = tl.rsqrt((tl.sum(low * low, 1) + tl.sum(high * high, 1)) / DIM + eps)[:, None]
    q_w = tl.load(q_norm + place, mask=inside, other=0.0).to(tl.float32)[None, :]
    k_w = tl.load(k_norm + place, mask=inside, other=0.0).to(tl.float32)[None, :]
    low = low * scale * tl.where(is_q, q_w, tl.where(is_k, k_w, 1.0))
    q_w = tl.load(q_norm + QUARTER + place, mask=inside, other=0.0).to(tl.float32)[None, :]
    k_w = tl.load(k_norm + QUARTER + place, mask=inside, other=0.0).to(tl.float32)[None, :]
    high = high * scale * tl.where(is_q, q_w, tl.where(is_k, k_w, 1.0))
    angle = row * 2 * QUARTER + axis * QUARTER + j
    turn_cos = tl.load(cos + angle, mask=inside, other=0.0)[None, :] + tl.zeros_like(low)
    turn_sin = tl.load(sin + angle, mask=inside, other=0.0)[None, :]
    new_low = tl.where(is_v, low, tl.fma(low, turn_cos, -(high * turn_sin)))
    new_high = tl.where(is_v, high, tl.fma(high, turn_cos, low * turn_sin))
    target = q + row * HEADS * DIM + head[:, None] * DIM + place[None, :]
    tl.store(target, new_low.to(q.dtype.element_ty), mask=is_q & cells)
    tl.store(target + QUARTER, new_high.to(q.dtype.element_ty), mask=is_q & cells)
    target = k + row * KV_HEADS * DIM + (head - HEADS)[:, None] * DIM + place[None, :]
    tl.store(target, new_low.to(k.dtype.element_ty), mask=is_k & cells)
    tl.store(target + QUARTER, new_high.to(k.dtype.element_ty), mask=is_k & cells)
    target = v + row * KV_HEADS * DIM + (head - HEADS - KV_HEADS)[:, None] * DIM + place[None, :]
    tl.store(target, new_low.to(v.dtype.element_ty), mask=is_v & cells)
    tl.store(target + QUARTER, new_high.to(v.dtype.element_ty), mask=is_v & cells)


@triton.jit
def _attend(
    q, k, v, tile_start, tile_end, out, clip_low, clip_high,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, LOG2E: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    kv_head = head // (HEADS // KV_HEADS)
    start = tl.load(tile_start + tl.program_id(0))
    end = tl.load(tile_end + tl.program_id(0))
    row = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    n = tl.arange(0, BLOCK_N)
    cells = (d < DIM)[None, :] & (row >= 0)[:, None]
    qt = tl.load(q + (row * HEADS + head)[:, None] * DIM + d[None, :], mask=cells, other=0.0)
    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)  # noqa: E741
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for block in range((end - start + BLOCK_N - 1) // BLOCK_N):
        position = start + block * BLOCK_N + n
        seen = position < end
        place = (position.to(tl.int64) * KV_HEADS + kv_head) * DIM
        kt = tl.load(k + place[None, :] + d[:, None], mask=seen[None, :] & (d < DIM)[:, None], other=0.0)
        scores = tl.dot(qt, kt, input_precision="ieee") * LOG2E
        scores = tl.where(seen[None, :], scores, float("-inf"))
        new = tl.maximum(m, tl.max(scores, 1))  # a block has at least one patch, so this is finite
        kept = tl.exp2(m - new)
        p = tl.exp2(scores - new[:, None])
        l = tl.fma(l, kept, tl.sum(p, 1))  # noqa: E741
        vt = tl.load(v + place[:, None] + d[None, :], mask=seen[:, None] & (d < DIM)[None, :], other=0.0)
        acc = tl.dot(p.to(vt.dtype), vt, acc * kept[:, None], input_precision="ieee")
        m = new
    acc = _clip(acc / tl.where(l > 0.0, l, 1.0)[:, None], clip_low, clip_high)
    tl.store(out + (row * HEADS + head)[:, None] * DIM + d[None, :], acc.to(out.dtype.element_ty), mask=cells)


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
