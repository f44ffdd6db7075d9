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

import numpy as np
import torch
import triton
import triton.language as tl

from photocall_engine.kernels.split_plan import SplitPlan
from photocall_engine.kernels.tiles import VisibleRows
from photocall_engine.kv_pools import LayerKv
from photocall_engine.rows import PAGE_SIZE
from photocall_engine.words import Words

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
        return AttentionTile(32, 32, 256, fold=True, warps=8, stages=2)
    if head_dim > 128:
        return AttentionTile(64, 32, 256, fold=True, warps=8, stages=2)
    if head_dim > 64:
        return AttentionTile(64, 64, 256, fold=True, warps=8, stages=3)
    return AttentionTile(64, 64, 256, fold=True, warps=4, stages=3)


@dataclass(frozen=True, slots=True)
class AttentionParts:
    """What the items of split rows leave for `_combine`, in room for P parts; used by one layer after another."""

    sum: torch.Tensor  # float32[P, H, D] sum of exp(score - maximum) * v
    norm: torch.Tensor  # float32[P, H, 2] maximum (in units of log 2) and sum of exp(score - maximum)

    @classmethod
    def allocate(cls, device: torch.device, room: int, heads: int, head_dim: int) -> AttentionParts:
        """Room for `room` parts."""
        return cls(
            torch.zeros(room, heads, head_dim, dtype=torch.float32, device=device),
            torch.zeros(room, heads, 2, dtype=torch.float32, device=device),
        )


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """A plan in words that are on their way to the device. Kernels read at `header` how many items there are and where
    everything lies, so a captured launch serves every later plan with the same header."""

    tile: AttentionTile
    tile_rows: int
    words: Words
    header: int
    parts: AttentionParts


def rows_of_tile(tile: AttentionTile, heads: int, kv_heads: int) -> int:
    """Rows of one item."""
    group = heads // kv_heads
    if group > tile.block_m:
        raise ValueError(f"{group} query heads to one K/V head do not fit a tile of {tile.block_m}")
    return tile.block_m // group


def lay(
    rows: VisibleRows, plan: SplitPlan, words: Words, header: int, parts: AttentionParts, tile: AttentionTile
) -> AttentionPlan:
    """Put a plan into `words`. Raises WordsFull, or ValueError where its parts do not fit."""
    if plan.num_parts > len(parts.sum):
        raise ValueError(f"an attention plan of {plan.num_parts} parts in room for {len(parts.sum)}")
    places = [
        words.put(values)
        for values in (rows.pages, rows.lo, rows.hi, plan.items, plan.place_row, plan.place_part, plan.combine)
    ]
    words.write(header, np.array([len(plan.items), len(plan.combine), *places]))
    return AttentionPlan(tile, plan.tile_rows, words, header, parts)


def attend(q: torch.Tensor, kv: LayerKv, plan: AttentionPlan, out: torch.Tensor, programs: int) -> None:
    """Softmax attention (scale 1) of q [R, H, D] over the planned positions, into out [R, H, D]; rows beyond the plan
    keep what `out` held.

    `programs` per K/V head walk the work list; it changes who computes a row, never its bits.
    """
    _, heads, dim = q.shape
    kv_heads = kv.k.shape[0]
    tile, parts, words = plan.tile, plan.parts, plan.words.tensor
    if max(kv.k.stride(0), q.numel(), parts.sum.numel()) >= 2**31:
        raise ValueError("attention counts the elements of one K/V head, of q and of the parts in 32 bits")
    _attend[(programs, kv_heads)](
        q, kv.k, kv.v, out, parts.sum, parts.norm, words, plan.header, q.stride(0), kv.k.stride(0),
        GROUP=heads // kv_heads, TILE_ROWS=plan.tile_rows, HEADS=heads, DIM=dim,
        BLOCK_D=max(16, triton.next_power_of_2(dim)), BLOCK_M=tile.block_m, BLOCK_N=tile.block_n, SPLIT=tile.split,
        PAGE=PAGE_SIZE, FOLD=tile.fold, LOG2E=_LOG2E, num_warps=tile.warps, num_stages=tile.stages,
    )  # fmt: skip
    _combine[(programs, triton.cdiv(heads, _COMBINE_HEADS))](
        out, parts.sum, parts.norm, words, plan.header,
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


@triton.jit(do_not_specialize=["header"])
def _attend(
    q, k, v, out, part_sum, part_norm, words, header, q_stride, kv_stride,
    GROUP: tl.constexpr, TILE_ROWS: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr, PAGE: tl.constexpr, FOLD: tl.constexpr,
    LOG2E: tl.constexpr,
):  # fmt: skip
    kv_head = tl.program_id(1)
    head_words = words + header
    pages = words + tl.load(head_words + 2)
    lows = words + tl.load(head_words + 3)
    highs = words + tl.load(head_words + 4)
    items = words + tl.load(head_words + 5)
    place_row = words + tl.load(head_words + 6)
    place_part = words + tl.load(head_words + 7)
    k += kv_head.to(tl.int64) * kv_stride
    v += kv_head.to(tl.int64) * kv_stride
    lane = tl.arange(0, BLOCK_M)
    place = lane // GROUP
    head = kv_head * GROUP + lane % GROUP
    d = tl.arange(0, BLOCK_D)
    for item in range(tl.program_id(0), tl.load(head_words), tl.num_programs(0)):
        bt_off = tl.load(items + item * 3)
        first = tl.load(items + item * 3 + 1)
        end = tl.load(items + item * 3 + 2)
        row = tl.load(place_row + item * TILE_ROWS + place, mask=place < TILE_ROWS, other=-1)
        part = tl.load(place_part + item * TILE_ROWS + place, mask=place < TILE_ROWS, other=-1)
        live = row >= 0
        low = tl.load(lows + row, mask=live, other=0)
        high = tl.load(highs + row, mask=live, other=0)
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


@triton.jit(do_not_specialize=["header"])
def _combine(
    out, part_sum, part_norm, words, header,
    HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    combine = words + tl.load(words + header + 8)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    d = tl.arange(0, BLOCK_D)
    cells = (head < HEADS)[:, None] & (d < DIM)[None, :]
    for entry in range(tl.program_id(0), tl.load(words + header + 1), tl.num_programs(0)):
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
