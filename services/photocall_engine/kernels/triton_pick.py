# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803 (constants of a kernel are written in capitals)
"""The likeliest token of each row and its log probability, in Triton: the head's product without its logits.

The vocabulary is cut into tiles of one width. A tile's products are softcapped and masked where they were summed, and
leave three numbers a row: the largest, the lowest id that has it, and the sum of the exponentials below it (Milakov and
Gimelshein, arXiv:1805.02867). A second kernel adds up a row's tiles in an order that the vocabulary alone decides.
Tiles of few and of many rows differ in how many rows one holds, never in how a row's columns lie among lanes and
registers, so a row's bits depend on nothing but the row (the tests on the device compare them).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

from photocall_engine.kernels.fp8 import Fp8Weight
from photocall_engine.kernels.matmul_plan import Form
from photocall_engine.kernels.triton_math import softcapped
from photocall_engine.kernels.triton_matmul import descriptor_holds, load_block, widened
from photocall_engine.kernels.triton_overlap import overlap

BLOCK_N = 128  # columns of a tile: part of what a row's bits depend on
_BLOCK_K = 64


@dataclass(frozen=True, slots=True)
class PickTile:
    """Rows of one program's tile, 16 or two times 16 to a warp, so that no row's columns are shared among warps; the
    rest is speed alone."""

    block_m: int
    warps: int
    stages: int
    programs: int = 1  # that one multiprocessor holds: while one ends a tile, another multiplies
    flat: bool = True  # the next tile's loads are under way while one ends


FEW = PickTile(64, warps=4, stages=4, programs=2, flat=False)
SOME = PickTile(128, warps=8, stages=6)
MANY = PickTile(256, warps=8, stages=4)


def pick(
    hidden: torch.Tensor,
    head: torch.Tensor | Fp8Weight,
    allowed: torch.Tensor,
    cap: float | None,
    *,
    form: Form,
    processors: int = 132,
    tile: PickTile | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """From hidden [n, K] and head [V, K] to (token int32[n], log probability float32[n]) among ids with allowed
    uint8[V] != 0, in the form that `matmul_table` names; `tile` replaces the one that suits n.

    Logits are softcapped first where there is a cap. Ties go to the lowest id. A row with a NaN among its allowed
    logits gets a log probability of NaN.
    """
    scale = head.scale if isinstance(head, Fp8Weight) else None
    weight = head.values if isinstance(head, Fp8Weight) else head
    m, k = hidden.shape
    n = len(weight)
    token = torch.empty(m, dtype=torch.int32, device=hidden.device)
    logprob = torch.empty(m, dtype=torch.float32, device=hidden.device)
    if not m:
        return token, logprob
    if hidden.stride(1) != 1 or weight.stride(1) != 1:
        raise ValueError("pick takes rows that are contiguous along K")
    across = triton.cdiv(n, BLOCK_N)
    top, total = torch.empty(2, m, across, dtype=torch.float32, device=hidden.device)
    first = torch.empty(m, across, dtype=torch.int32, device=hidden.device)
    tile = tile or tile_for(m)
    # values of four bytes fill the shared memory with half of the stages, one of which is the result's
    stages = tile.stages if hidden.element_size() == 2 else min(tile.stages, 2)
    tiles = triton.cdiv(m, tile.block_m) * across
    described = form == "tma" and descriptor_holds(hidden) and descriptor_holds(weight)
    _tiles[(min(tile.programs * processors, tiles),)](
        TensorDescriptor.from_tensor(hidden, [tile.block_m, _BLOCK_K]) if described else hidden,
        TensorDescriptor.from_tensor(weight, [BLOCK_N, _BLOCK_K]) if described else weight,
        scale, allowed, top, first, total, m, n, k, hidden.stride(0), weight.stride(0), cap, tiles,
        DESCRIBED=described, FLAT=tile.flat, BLOCK_M=tile.block_m, BLOCK_N=BLOCK_N, BLOCK_K=_BLOCK_K,
        num_warps=tile.warps, num_stages=stages, **overlap(),
    )  # fmt: skip
    _best_of_tiles[(m,)](
        top, first, total, token, logprob, n, across, BLOCK=triton.next_power_of_2(across), num_warps=4, **overlap()
    )
    return token, logprob


def tile_for(rows: int) -> PickTile:
    """The smallest that reads the head once."""
    return FEW if rows <= FEW.block_m else SOME if rows <= SOME.block_m else MANY


@triton.jit(do_not_specialize=["m", "tiles"])
def _tiles(
    x, weight, scale, allowed, top_out, first_out, total_out, m, n, k, x_stride, w_stride, cap, tiles,
    DESCRIBED: tl.constexpr, FLAT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    down = tl.cdiv(m, BLOCK_M)
    across = tl.cdiv(n, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLAT):
        # the row tiles of a column tile stand together: the weight comes from memory once
        column, row_tile = tile // down, tile % down
        rows = row_tile * BLOCK_M + tl.arange(0, BLOCK_M)
        ids = column * BLOCK_N + tl.arange(0, BLOCK_N)
        values = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for block in range(tl.cdiv(k, BLOCK_K)):
            a = load_block(x, x_stride, row_tile * BLOCK_M, m, block, k, BLOCK_M, BLOCK_K, DESCRIBED, False)
            b = load_block(weight, w_stride, column * BLOCK_N, n, block, k, BLOCK_N, BLOCK_K, DESCRIBED, False)
            values = tl.dot(a, widened(b, a.dtype).T, values, input_precision="ieee")
        if scale is not None:
            values = values * tl.load(scale + ids, mask=ids < n, other=0.0)[None, :]
        if cap is not None:
            values = softcapped(values, cap)
        may = tl.load(allowed + ids, mask=ids < n, other=0) != 0
        values = tl.where(may[None, :], values, float("-inf"))
        top = tl.max(values, 1)
        first = tl.min(tl.where(values == top[:, None], ids[None, :], n), 1)
        base = tl.where(top == float("-inf"), 0.0, top)  # nothing is allowed here: every term is exactly 0
        total = tl.sum(tl.exp(values - base[:, None]), 1)
        place = rows.to(tl.int64) * across + column
        tl.store(top_out + place, top, mask=rows < m)
        tl.store(first_out + place, first, mask=rows < m)
        tl.store(total_out + place, total, mask=rows < m)


@triton.jit
def _best_of_tiles(
    top, first, total, token, logprob, n, across, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr
):  # fmt: skip
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    inside = i < across
    tops = tl.load(top + row * across + i, mask=inside, other=float("-inf"))
    firsts = tl.load(first + row * across + i, mask=inside, other=n)
    totals = tl.load(total + row * across + i, mask=inside, other=0.0)
    best = tl.max(tops, 0)
    base = tl.where(best == float("-inf"), 0.0, best)
    found = tl.min(tl.where(tops == best, firsts, n), 0)
    tl.store(token + row, tl.where(found < n, found, 0))  # all NaN, or nothing allowed: an id all the same
    tl.store(logprob + row, -tl.log(tl.sum(totals * tl.exp(tops - base), 0)))
