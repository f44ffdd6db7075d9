# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803 (constants of a kernel are written in capitals)
"""Paged row attention in Triton: prompt rows, picture rows and decode rows of any number of sequences in one launch.

A program takes items of the work list (`split_plan`) until the count on the device is reached: up to BLOCK_M rows x
query heads of one K/V head against blocks of BLOCK_N positions at absolute multiples. Softmax is the online form
(Milakov and Gimelshein, arXiv:1805.02867), per split of absolute positions, with the splits folded in ascending order
either in the program or by `_combine`, through the same helper, so both give the same bits. A block that a row does
not see changes nothing: -inf minus -inf is guarded, and every factor is then exactly 1 or 0.
So far run in Triton's interpreter only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from photocall_engine.kernels.split_plan import SplitPlan
from photocall_engine.kernels.tiles import VisibleRows
from photocall_engine.kv_pools import LayerKv
from photocall_engine.rows import PAGE_SIZE

_LOG2E = 1.4426950408889634
_COMBINE_HEADS = 4


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """The form for one head_dim. One tile shape for every number of rows: the matrix instruction never changes."""

    block_m: int  # rows x query heads of one K/V head
    block_n: int  # positions of one K/V block
    split: int  # positions of one split, a multiple of block_n
    fold: bool  # a program may walk several splits (it then holds two accumulators)
    warps: int
    stages: int


def tile_for(head_dim: int) -> AttentionTile:
    """Unmeasured first guesses for Hopper: what its registers and 227 KB of shared memory hold with least spilling."""
    if head_dim > 256:
        return AttentionTile(32, 32, 256, fold=False, warps=8, stages=2)
    if head_dim > 128:
        return AttentionTile(64, 32, 256, fold=True, warps=8, stages=2)
    if head_dim > 64:
        return AttentionTile(64, 64, 256, fold=True, warps=8, stages=3)
    return AttentionTile(64, 64, 256, fold=True, warps=4, stages=3)


@dataclass(slots=True)
class AttentionBuffers:
    """A plan and the parts of split rows on the device. Allocated once at its largest, so that graphs can hold it;
    `fill` changes what the next launch reads. Padding rows of q beyond the plan keep what `out` held."""

    tile: AttentionTile
    tile_rows: int
    pages: torch.Tensor  # int32[B] block tables: page ids of the pool that the layer reads
    bounds: torch.Tensor  # int32[2, R] first visible position of each row, and the end
    items: torch.Tensor  # int32[I, 3]
    place_row: torch.Tensor  # int32[I, tile_rows]
    place_part: torch.Tensor  # int32[I, tile_rows]
    combine: torch.Tensor  # int32[C, 3]
    counts: torch.Tensor  # int32[2] items, rows to combine
    part_sum: torch.Tensor  # float32[P, H, D] sum of exp(score - maximum) * v
    part_norm: torch.Tensor  # float32[P, H, 2] maximum (in units of log 2) and sum of exp(score - maximum)

    @classmethod
    def allocate(
        cls,
        device: torch.device,
        *,
        heads: int,
        kv_heads: int,
        head_dim: int,
        rows: int,
        pages: int,
        items: int,
        parts: int,
        tile: AttentionTile | None = None,
    ) -> AttentionBuffers:
        """Room for `rows` rows, `pages` block-table entries, `items` items and `parts` parts."""
        tile = tile or tile_for(head_dim)
        group = heads // kv_heads
        if group > tile.block_m:
            raise ValueError(f"{group} query heads to one K/V head do not fit a tile of {tile.block_m}")
        tile_rows = tile.block_m // group

        def ints(*shape: int) -> torch.Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        return cls(
            tile=tile,
            tile_rows=tile_rows,
            pages=ints(pages),
            bounds=ints(2, rows),
            items=ints(items, 3),
            place_row=ints(items, tile_rows),
            place_part=ints(items, tile_rows),
            combine=ints(rows, 3),
            counts=ints(2),
            part_sum=torch.zeros(parts, heads, head_dim, dtype=torch.float32, device=device),
            part_norm=torch.zeros(parts, heads, 2, dtype=torch.float32, device=device),
        )

    def fill(self, rows: VisibleRows, plan: SplitPlan) -> None:
        """Take over a plan. Raises ValueError with the numbers where it does not fit."""
        needs = {
            "rows": (len(rows.lo), self.bounds.shape[1]),
            "pages": (len(rows.pages), len(self.pages)),
            "items": (len(plan.items), len(self.items)),
            "parts": (plan.num_parts, len(self.part_sum)),
        }
        for name, (needed, room) in needs.items():
            if needed > room:
                raise ValueError(f"an attention plan of {needed} {name} in buffers for {room}")
        _put(self.pages, rows.pages)
        _put(self.bounds[0], rows.lo)
        _put(self.bounds[1], rows.hi)
        _put(self.items, plan.items)
        _put(self.place_row, plan.place_row)
        _put(self.place_part, plan.place_part)
        _put(self.combine, plan.combine)
        _put(self.counts, np.array([len(plan.items), len(plan.combine)]))


def attend(q: torch.Tensor, kv: LayerKv, buffers: AttentionBuffers, out: torch.Tensor, programs: int) -> None:
    """Softmax attention (scale 1) of q [R, H, D] over the planned positions, into out [R, H, D].

    `programs` per K/V head walk the work list; it changes who computes a row, never its bits.
    """
    _, heads, dim = q.shape
    kv_heads = kv.k.shape[0]
    tile = buffers.tile
    if max(kv.k.stride(0), q.numel(), buffers.part_sum.numel()) >= 2**31:
        raise ValueError("attention counts the elements of one K/V head, of q and of the parts in 32 bits")
    _attend[(programs, kv_heads)](
        q, kv.k, kv.v, out, buffers.part_sum, buffers.part_norm, buffers.pages, buffers.items, buffers.place_row,
        buffers.place_part, buffers.bounds, buffers.counts, q.stride(0), kv.k.stride(0), buffers.bounds.shape[1],
        GROUP=heads // kv_heads, TILE_ROWS=buffers.tile_rows, HEADS=heads, DIM=dim,
        BLOCK_D=max(16, triton.next_power_of_2(dim)), BLOCK_M=tile.block_m, BLOCK_N=tile.block_n, SPLIT=tile.split,
        PAGE=PAGE_SIZE, FOLD=tile.fold, LOG2E=_LOG2E, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    _combine[(programs, triton.cdiv(heads, _COMBINE_HEADS))](
        out, buffers.part_sum, buffers.part_norm, buffers.combine, buffers.counts,
        HEADS=heads, DIM=dim, BLOCK_D=max(16, triton.next_power_of_2(dim)), BLOCK_H=_COMBINE_HEADS, num_warps=4,
    )  # fmt: skip


@triton.jit
def _fold(top_m, top_l, top, m, l, acc):  # noqa: E741
    """One more split on top of those before it. fma is spelled out: the compiler must not choose where to round."""
    new = tl.maximum(top_m, m)
    safe = tl.where(new == float("-inf"), 0.0, new)
    before = tl.exp2(top_m - safe)
    after = tl.exp2(m - safe)
    return (
        new,
        tl.fma(top_l, before, l * after),
        tl.fma(top, before[:, None] + tl.zeros_like(top), acc * after[:, None]),
    )


@triton.jit
def _normalised(acc, l):  # noqa: E741
    return acc / tl.where(l > 0.0, l, 1.0)[:, None]


@triton.jit
def _one_split(
    qt, k, v, pages, bt_off, first, end, low, high,
    DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PAGE: tl.constexpr,
    LOG2E: tl.constexpr,
):  # fmt: skip
    """Positions [first, end) of one split: maximum [BLOCK_M], sum [BLOCK_M], weighted V [BLOCK_M, BLOCK_D]."""
    m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    l = tl.zeros((BLOCK_M,), tl.float32)  # noqa: E741
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    n = tl.arange(0, BLOCK_N)
    d = tl.arange(0, BLOCK_D)
    for block in range(first // BLOCK_N, (end + BLOCK_N - 1) // BLOCK_N):
        position = block * BLOCK_N + n
        inside = (position >= first) & (position < end)
        page = tl.load(pages + bt_off + position // PAGE, mask=inside, other=0)
        slot = page * PAGE + position % PAGE
        kt = tl.load(k + slot[None, :] * DIM + d[:, None], mask=inside[None, :] & (d < DIM)[:, None], other=0.0)
        scores = tl.dot(qt, kt, input_precision="ieee") * LOG2E
        seen = (position[None, :] >= low[:, None]) & (position[None, :] < high[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        new = tl.maximum(m, tl.max(scores, 1))
        safe = tl.where(new == float("-inf"), 0.0, new)
        kept = tl.exp2(m - safe)
        p = tl.exp2(scores - safe[:, None])
        l = tl.fma(l, kept, tl.sum(p, 1))  # noqa: E741
        # masked: 0 x NaN of a stale page would be NaN
        vt = tl.load(v + slot[:, None] * DIM + d[None, :], mask=inside[:, None] & (d < DIM)[None, :], other=0.0)
        acc = tl.dot(p.to(vt.dtype), vt, acc * kept[:, None], input_precision="ieee")
        m = new
    return m, l, acc


@triton.jit(do_not_specialize=["num_rows"])
def _attend(
    q, k, v, out, part_sum, part_norm, pages, items, place_row, place_part, bounds, counts, q_stride, kv_stride,
    num_rows, GROUP: tl.constexpr, TILE_ROWS: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr, PAGE: tl.constexpr,
    FOLD: tl.constexpr, LOG2E: tl.constexpr,
):  # fmt: skip
    kv_head = tl.program_id(1)
    k += kv_head.to(tl.int64) * kv_stride
    v += kv_head.to(tl.int64) * kv_stride
    lane = tl.arange(0, BLOCK_M)
    place = lane // GROUP
    head = kv_head * GROUP + lane % GROUP
    d = tl.arange(0, BLOCK_D)
    for item in range(tl.program_id(0), tl.load(counts), tl.num_programs(0)):
        bt_off = tl.load(items + item * 3)
        first = tl.load(items + item * 3 + 1)
        end = tl.load(items + item * 3 + 2)
        row = tl.load(place_row + item * TILE_ROWS + place, mask=place < TILE_ROWS, other=-1)
        part = tl.load(place_part + item * TILE_ROWS + place, mask=place < TILE_ROWS, other=-1)
        live = row >= 0
        low = tl.load(bounds + row, mask=live, other=0)
        high = tl.load(bounds + num_rows + row, mask=live, other=0)
        cells = live[:, None] & (d < DIM)[None, :]
        qt = tl.load(q + (row * q_stride + head * DIM)[:, None] + d[None, :], mask=cells, other=0.0)
        if FOLD:
            m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
            l = tl.zeros((BLOCK_M,), tl.float32)  # noqa: E741
            acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
            for split in range(first // SPLIT, (end + SPLIT - 1) // SPLIT):
                sm, sl, sacc = _one_split(
                    qt, k, v, pages, bt_off, tl.maximum(first, split * SPLIT), tl.minimum(end, (split + 1) * SPLIT),
                    low, high, DIM, BLOCK_D, BLOCK_M, BLOCK_N, PAGE, LOG2E,
                )  # fmt: skip
                m, l, acc = _fold(m, l, acc, sm, sl, sacc)  # noqa: E741
        else:
            m, l, acc = _one_split(  # noqa: E741
                qt, k, v, pages, bt_off, first, end, low, high, DIM, BLOCK_D, BLOCK_M, BLOCK_N, PAGE, LOG2E
            )
        done = cells & (part < 0)[:, None]
        place_out = ((row * HEADS + head) * DIM)[:, None] + d[None, :]
        tl.store(out + place_out, _normalised(acc, l).to(out.dtype.element_ty), mask=done)
        split_row = live & (part >= 0)
        cell = part * HEADS + head
        tl.store(part_sum + (cell * DIM)[:, None] + d[None, :], acc, mask=cells & (part >= 0)[:, None])
        tl.store(part_norm + cell * 2, m, mask=split_row)
        tl.store(part_norm + cell * 2 + 1, l, mask=split_row)


@triton.jit
def _combine(
    out, part_sum, part_norm, combine, counts,
    HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    d = tl.arange(0, BLOCK_D)
    cells = (head < HEADS)[:, None] & (d < DIM)[None, :]
    for entry in range(tl.program_id(0), tl.load(counts + 1), tl.num_programs(0)):
        row = tl.load(combine + entry * 3)
        part = tl.load(combine + entry * 3 + 1)
        m = tl.full((BLOCK_H,), float("-inf"), tl.float32)
        l = tl.zeros((BLOCK_H,), tl.float32)  # noqa: E741
        acc = tl.zeros((BLOCK_H, BLOCK_D), tl.float32)
        for index in range(part, part + tl.load(combine + entry * 3 + 2)):
            cell = index * HEADS + head
            sm = tl.load(part_norm + cell * 2, mask=head < HEADS, other=0.0)
            sl = tl.load(part_norm + cell * 2 + 1, mask=head < HEADS, other=0.0)
            sacc = tl.load(part_sum + cell[:, None] * DIM + d[None, :], mask=cells, other=0.0)
            m, l, acc = _fold(m, l, acc, sm, sl, sacc)  # noqa: E741
        target = out + ((row * HEADS + head) * DIM)[:, None] + d[None, :]
        tl.store(target, _normalised(acc, l).to(out.dtype.element_ty), mask=cells)


def _put(target: torch.Tensor, values: NDArray[Any]) -> None:
    target[: len(values)].copy_(torch.from_numpy(np.ascontiguousarray(values, dtype=np.int32)))
