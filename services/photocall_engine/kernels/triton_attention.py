# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803 (constants of a kernel are written in capitals)
"""Paged row attention in Triton: prompt rows, picture rows and decode rows of any number of sequences in one launch.

A program takes items of the work list (`split_plan`) until the count on the device is reached: up to BLOCK_M rows x
query heads of one K/V head against blocks of BLOCK_N positions at absolute multiples. A block is summed by itself and
folded into those before it in ascending order (the online softmax of Milakov and Gimelshein, arXiv:1805.02867), either
by the program that walks them or, where each block is an item of its own, by `_combine`, through the same helper, so
both give the same bits. A block that a row does not see changes nothing: -inf minus -inf is guarded, and every factor
is then exactly 1 or 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from photocall_engine.kernels import HeadShape
from photocall_engine.kernels.split_plan import SplitPlan, count_parts, plan_splits
from photocall_engine.kernels.tiles import VisibleRows
from photocall_engine.kernels.triton_overlap import overlap
from photocall_engine.kv_pools import LayerKv
from photocall_engine.rows import PAGE_SIZE
from photocall_engine.words import Words

_LOG2E = 1.4426950408889634
_COMBINE_HEADS = 4  # of one program, a warp each
FEW_ROWS = 64  # more are never split, so that no launch is spent on combining nothing
ENOUGH = 128  # rows of several blocks x K/V heads: as many programs as the device has processors, without splitting


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """The form for one head_dim. One tile shape for every number of rows: the matrix instruction never changes."""

    block_m: int  # rows x query heads of one K/V head
    block_n: int  # positions of one K/V block, which is one split
    columns: int  # of V, for one program; a wider head is shared by several
    warps: int
    stages: int


def tile_for(head_dim: int) -> AttentionTile:
    """Unmeasured first guesses for Hopper: what its registers and 227 KB of shared memory hold with least spilling."""
    if head_dim > 256:
        return AttentionTile(32, 32, 512, warps=8, stages=3)
    if head_dim > 128:
        return AttentionTile(64, 32, 128, warps=4, stages=3)
    return AttentionTile(64, 64, 128, warps=4, stages=3)


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
    combines: bool  # False: no plan for this many rows has parts


def rows_of_tile(tile: AttentionTile, heads: int, kv_heads: int) -> int:
    """Rows of one item."""
    group = heads // kv_heads
    if group > tile.block_m:
        raise ValueError(f"{group} query heads to one K/V head do not fit a tile of {tile.block_m}")
    return tile.block_m // group


def plan_rows(
    rows: VisibleRows, shape: HeadShape, tile: AttentionTile, words: Words, header: int, parts: AttentionParts
) -> AttentionPlan:
    """Many long rows walk what they see, few share it out, as long as there is room for their parts; both give a row
    the same bits. What is captured in a graph hangs on the number of rows alone. Raises WordsFull."""
    tile_rows = rows_of_tile(tile, shape.heads, shape.kv_heads)
    combines = len(rows.lo) <= FEW_ROWS
    long, parts_left = count_parts(rows, tile.block_n)
    whole = not combines or long * shape.kv_heads >= ENOUGH or parts_left > len(parts.sum)
    return lay(
        rows, plan_splits(rows, tile_rows, tile.block_n, whole=whole), words, header, parts, tile, combines=combines
    )


def lay(
    rows: VisibleRows, plan: SplitPlan, words: Words, header: int, parts: AttentionParts, tile: AttentionTile, *,
    combines: bool = True,
) -> AttentionPlan:  # fmt: skip
    """Put a plan into `words`. Raises WordsFull, or ValueError where its parts do not fit."""
    if plan.num_parts > len(parts.sum):
        raise ValueError(f"an attention plan of {plan.num_parts} parts in room for {len(parts.sum)}")
    places = [
        words.put(values)
        for values in (rows.pages, rows.lo, rows.hi, plan.items, plan.place_row, plan.place_part, plan.combine)
    ]
    words.write(header, np.array([len(plan.items), len(plan.combine), *places]))
    return AttentionPlan(tile, plan.tile_rows, words, header, parts, combines)


def attend(q: torch.Tensor, kv: LayerKv, plan: AttentionPlan, out: torch.Tensor, programs: int) -> None:
    """Softmax attention (scale 1) of q [R, H, D] over the planned positions, into out [R, H, D]; rows beyond the plan
    keep what `out` held.

    `programs` walk the work list, an equal number for each K/V head; it changes who computes a row, never its bits.
    """
    _, heads, dim = q.shape
    kv_heads = kv.k.shape[0]
    tile, parts, words = plan.tile, plan.parts, plan.words.tensor
    if max(kv.k.stride(0), q.numel(), parts.sum.numel()) >= 2**31:
        raise ValueError("attention counts the elements of one K/V head, of q and of the parts in 32 bits")
    programs = max(1, programs // kv_heads)
    block_d = max(16, triton.next_power_of_2(dim))
    columns = min(tile.columns, block_d)
    _attend[(programs, kv_heads, block_d // columns)](
        q, kv.k, kv.v, out, parts.sum, parts.norm, words, plan.header, q.stride(0), kv.k.stride(0),
        GROUP=heads // kv_heads, TILE_ROWS=plan.tile_rows, HEADS=heads, DIM=dim, BLOCK_D=block_d, COLUMNS=columns,
        BLOCK_M=tile.block_m, BLOCK_N=tile.block_n, PAGE=PAGE_SIZE, LOG2E=_LOG2E,
        num_warps=tile.warps, num_stages=tile.stages, **overlap(),
    )  # fmt: skip
    if not plan.combines:
        return
    _combine[(min(programs, len(q)), triton.cdiv(heads, _COMBINE_HEADS))](
        out, parts.sum, parts.norm, words, plan.header,
        HEADS=heads, DIM=dim, BLOCK_D=block_d, BLOCK_H=_COMBINE_HEADS, num_warps=_COMBINE_HEADS, **overlap(),
    )  # fmt: skip


@triton.jit
def _cells(rows, columns, DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Which of rows x columns exist. Columns are not asked about where all do, so that accesses stay wide."""
    return rows[:, None] if DIM == BLOCK_D else rows[:, None] & (columns < DIM)[None, :]


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


@triton.jit(do_not_specialize=["header"])
def _attend(
    q, k, v, out, part_sum, part_norm, words, header, q_stride, kv_stride,
    GROUP: tl.constexpr, TILE_ROWS: tl.constexpr, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    COLUMNS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PAGE: tl.constexpr, LOG2E: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
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
    n = tl.arange(0, BLOCK_N)
    d = tl.arange(0, BLOCK_D)
    c = tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    for item in range(tl.program_id(0), tl.load(head_words), tl.num_programs(0)):
        bt_off = tl.load(items + item * 3)
        first = tl.load(items + item * 3 + 1)
        end = tl.load(items + item * 3 + 2)
        row = tl.load(place_row + item * TILE_ROWS + place, mask=place < TILE_ROWS, other=-1)
        part = tl.load(place_part + item * TILE_ROWS + place, mask=place < TILE_ROWS, other=-1)
        live = row >= 0
        low = tl.load(lows + row, mask=live, other=0)
        high = tl.load(highs + row, mask=live, other=0)
        qt = tl.load(
            q + (row * q_stride + head * DIM)[:, None] + d[None, :], mask=_cells(live, d, DIM, BLOCK_D), other=0.0,
        )  # fmt: skip
        m = tl.full((BLOCK_M,), float("-inf"), tl.float32)
        l = tl.zeros((BLOCK_M,), tl.float32)  # noqa: E741
        acc = tl.zeros((BLOCK_M, COLUMNS), tl.float32)
        start = first // BLOCK_N * BLOCK_N
        page = tl.load(pages + bt_off + (start + n) // PAGE, mask=(start + n >= first) & (start + n < end), other=0)
        for at in range(start, end, BLOCK_N):
            position = at + n
            inside = (position >= first) & (position < end)
            slot = (page * PAGE + n % PAGE) * DIM
            # one block ahead, so that the copies of a block wait for no index
            page = tl.load(pages + bt_off + (position + BLOCK_N) // PAGE, mask=position + BLOCK_N < end, other=0)
            # masked: 0 x NaN of a stale page would be NaN
            kt = tl.load(k + slot[:, None] + d[None, :], mask=_cells(inside, d, DIM, BLOCK_D), other=0.0)
            vt = tl.load(v + slot[:, None] + c[None, :], mask=_cells(inside, c, DIM, BLOCK_D), other=0.0)
            scores = tl.dot(qt, kt.T, input_precision="ieee") * LOG2E
            seen = (position[None, :] >= low[:, None]) & (position[None, :] < high[:, None])
            scores = tl.where(seen, scores, float("-inf"))
            top = tl.max(scores, 1)
            p = tl.exp2(scores - tl.where(top == float("-inf"), 0.0, top)[:, None])
            weighted = tl.dot(p.to(vt.dtype), vt, input_precision="ieee")
            m, l, acc = _fold(m, l, acc, top, tl.sum(p, 1), weighted)  # noqa: E741
        place_out = ((row * HEADS + head) * DIM)[:, None] + c[None, :]
        tl.store(
            out + place_out,
            _normalised(acc, l).to(out.dtype.element_ty),
            mask=_cells(live & (part < 0), c, DIM, BLOCK_D),
        )
        split_row = live & (part >= 0)
        cell = part * HEADS + head
        tl.store(part_sum + (cell * DIM)[:, None] + c[None, :], acc, mask=_cells(live & (part >= 0), c, DIM, BLOCK_D))
        if tl.program_id(2) == 0:
            tl.store(part_norm + cell * 2, m, mask=split_row)
            tl.store(part_norm + cell * 2 + 1, l, mask=split_row)


@triton.jit(do_not_specialize=["header"])
def _combine(
    out, part_sum, part_norm, words, header,
    HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_H: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    combine = words + tl.load(words + header + 8)
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    d = tl.arange(0, BLOCK_D)
    cells = _cells(head < HEADS, d, DIM, BLOCK_D)
    for entry in range(tl.program_id(0), tl.load(words + header + 1), tl.num_programs(0)):
        row = tl.load(combine + entry * 3)
        part = tl.load(combine + entry * 3 + 1)
        m = tl.full((BLOCK_H,), float("-inf"), tl.float32)
        l = tl.zeros((BLOCK_H,), tl.float32)  # noqa: E741
        acc = tl.zeros((BLOCK_H, BLOCK_D), tl.float32)
        for index in tl.range(part, part + tl.load(combine + entry * 3 + 2), num_stages=4):
            cell = index * HEADS + head
            sm = tl.load(part_norm + cell * 2, mask=head < HEADS, other=0.0)
            sl = tl.load(part_norm + cell * 2 + 1, mask=head < HEADS, other=0.0)
            sacc = tl.load(part_sum + cell[:, None] * DIM + d[None, :], mask=cells, other=0.0)
            m, l, acc = _fold(m, l, acc, sm, sl, sacc)  # noqa: E741
        target = out + ((row * HEADS + head) * DIM)[:, None] + d[None, :]
        tl.store(target, _normalised(acc, l).to(out.dtype.element_ty), mask=cells)
