# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803 (constants of a kernel are written in capitals)
"""Attention of the vision tower in Triton: every row of a picture over all of that picture, many pictures at once.

A program has a few rows of one picture and one head, and walks the picture's patches in blocks counted from its first
one, so who else is in the pass plays no part. Online softmax (Milakov and Gimelshein, arXiv:1805.02867) over blocks as
in FlashAttention (Dao, arXiv:2307.08691); where a layer's norms keep all scores small (`HeadNorms.powers`), nothing is
subtracted from them, which is half the instructions. Only a picture's last block is masked. A head that is no power of
two is taken as two parts, each of which is. K and V come through tensor descriptors, which Hopper's copy engine loads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from photocall_engine.kernels.vision import Clip, Spans

LOG2E = 1.4426950408889634
# e^76 times 10,080 patches times values of up to sqrt(128) is below the largest float32, and e^-76 is a normal one
LARGEST_SCORE = 76.0


@dataclass(frozen=True, slots=True)
class Walk:
    """How a program walks: rows of its own, patches of one block of K and V. Part of the bits."""

    rows: int
    block: int
    warps: int
    stages: int


WALK = Walk(128, 64, warps=4, stages=3)


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    rows: Spans,
    clip: Clip,
    tile: int,
    *,
    powers: bool,
    walk: Walk | None = None,
) -> torch.Tensor:
    """See `VisionKernels.attend`. q, k, v may be slices of wider rows, with their heads side by side. `walk` replaces
    the usual one."""
    count, heads, dim = q.shape
    walk = walk or WALK
    block_rows = min(walk.rows, tile)
    main = 1 << (dim.bit_length() - 1)
    rest = 0 if dim == main else max(16, triton.next_power_of_2(dim - main))
    out = torch.empty(count, heads * dim, dtype=q.dtype, device=q.device)
    described = [_described(x, walk.block, width) for width in (main, rest) for x in (k, v)]
    _attend[(count // block_rows, heads)](
        q, *described, rows.tile_start, rows.tile_end, out, q.stride(0), *clip, HEADS=heads, KV_HEADS=k.shape[1],
        DIM=dim, MAIN=main, REST=rest, TILE=tile, BLOCK_M=block_rows, BLOCK_N=walk.block,
        LOG2E=None if powers else LOG2E, num_warps=walk.warps, num_stages=walk.stages,
    )  # fmt: skip
    return out


def _described(x: torch.Tensor, block: int, width: int) -> TensorDescriptor | None:
    """All rows, `width` columns at a time; None for no columns."""
    if not width:
        return None
    count, heads, dim = x.shape
    return TensorDescriptor(x, [count, heads * dim], [x.stride(0), 1], [block, width])


@triton.jit
def _attend(
    q, k, v, k_rest, v_rest, tile_start, tile_end, out, q_stride, clip_low, clip_high,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, DIM: tl.constexpr, MAIN: tl.constexpr, REST: tl.constexpr,
    TILE: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, LOG2E: tl.constexpr,
):  # fmt: skip
    head = tl.program_id(1)
    kv_column = head // (HEADS // KV_HEADS) * DIM
    tile = tl.program_id(0) * BLOCK_M // TILE
    start = tl.load(tile_start + tile)
    end = tl.load(tile_end + tile)
    row = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tl.arange(0, MAIN)
    source = q + row[:, None] * q_stride + head * DIM
    qt = tl.load(source + c[None, :])
    acc = tl.zeros((BLOCK_M, MAIN), tl.float32)
    if REST > 0:
        # columns past the head belong to the next one: zero here, so what K has there adds nothing
        c_rest = MAIN + tl.arange(0, REST)
        q_rest = tl.load(source + c_rest[None, :], mask=(c_rest < DIM)[None, :] & (row >= 0)[:, None], other=0.0)
        acc_rest = tl.zeros((BLOCK_M, REST), tl.float32)
    else:
        q_rest, acc_rest = qt, acc
    peak = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    whole = start + (end - start) // BLOCK_N * BLOCK_N
    for at in range(start, whole, BLOCK_N):
        peak, total, acc, acc_rest = _walk(
            qt, q_rest, k, v, k_rest, v_rest, at, end, kv_column, peak, total, acc, acc_rest,
            MAIN, REST, BLOCK_N, LOG2E, False,
        )  # fmt: skip
    if whole < end:
        peak, total, acc, acc_rest = _walk(
            qt, q_rest, k, v, k_rest, v_rest, whole, end, kv_column, peak, total, acc, acc_rest,
            MAIN, REST, BLOCK_N, LOG2E, True,
        )  # fmt: skip
    share = 1.0 / tl.where(total > 0.0, total, 1.0)  # rows of tiles that nobody uses have seen nothing
    target = out + row[:, None] * HEADS * DIM + head * DIM
    found = tl.minimum(tl.maximum(acc * share[:, None], clip_low), clip_high)
    tl.store(target + c[None, :], found.to(out.dtype.element_ty))
    if REST > 0:
        found = tl.minimum(tl.maximum(acc_rest * share[:, None], clip_low), clip_high)
        inside = (c_rest < DIM)[None, :] & (row >= 0)[:, None]
        tl.store(target + c_rest[None, :], found.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _walk(
    qt, q_rest, k, v, k_rest, v_rest, at, end, kv_column, peak, total, acc, acc_rest,
    MAIN: tl.constexpr, REST: tl.constexpr, BLOCK_N: tl.constexpr, LOG2E: tl.constexpr, LAST: tl.constexpr,
):  # fmt: skip
    """One block of K and V from row `at` on; `LAST`: it may reach past the picture's end.

    Both parts of a head are loaded before either is multiplied, so that they lie in places of their own: where they
    shared one, ptxas 12.8 mixed their addresses (`ops/bench/compiled.py` looks for that).
    """
    seen = at + tl.arange(0, BLOCK_N) < end
    kt = k.load([at, kv_column])
    if REST > 0:
        kt_rest = k_rest.load([at, kv_column + MAIN])
    scores = tl.dot(qt, kt.T, input_precision="ieee")
    if REST > 0:
        scores = tl.dot(q_rest, kt_rest.T, scores, input_precision="ieee")
    if LAST:
        scores = tl.where(seen[None, :], scores, float("-inf"))
    if LOG2E is None:  # scores are exponents of 2 that need no shift
        p = tl.exp2(scores)
        total = total + tl.sum(p, 1)
    else:
        new = tl.maximum(peak, tl.max(scores, 1))  # a block has at least one patch, so this is finite
        kept = tl.exp2((peak - new) * LOG2E)
        p = tl.exp2(tl.fma(scores, LOG2E + tl.zeros_like(scores), -(new * LOG2E)[:, None]))
        total = tl.fma(total, kept, tl.sum(p, 1))
        acc, acc_rest, peak = acc * kept[:, None], acc_rest * kept[:, None], new
    vt = v.load([at, kv_column])
    if REST > 0:
        vt_rest = v_rest.load([at, kv_column + MAIN])
    if LAST:  # nobody's rows may hold anything, and 0 x NaN is NaN
        vt = tl.where(seen[:, None], vt, 0.0)
        if REST > 0:
            vt_rest = tl.where(seen[:, None], vt_rest, 0.0)
    acc = tl.dot(p.to(vt.dtype), vt, acc, input_precision="ieee")
    if REST > 0:
        acc_rest = tl.dot(p.to(vt.dtype), vt_rest, acc_rest, input_precision="ieee")
    return peak, total, acc, acc_rest
