# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803 (constants of a kernel are written in capitals)
"""Experts of a mixture layer in Triton: rows sorted by expert, tiles of one expert each, results added in one order.

A tile holds 64 places of one expert's rows, so a row meets the same matrix instruction however its batch chose. Which
tile belongs to whom is worked out on the device in shapes that depend on the number of rows only, so a graph can hold
it. A row's results are added in ascending expert id, as in the reference.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from photocall_engine.kernels.triton_fused import geglu

_BLOCK_M, _BLOCK_N, _BLOCK_K = 64, 64, 64
_MIX = 1024


@dataclass(frozen=True, slots=True)
class ExpertTiles:
    """Places (row * top_k + choice) sorted by expert and row, cut into tiles of one expert each."""

    order: torch.Tensor  # int32[A] places
    tile_expert: torch.Tensor  # int32[T] expert of a tile; the number of experts: nobody's
    tile_start: torch.Tensor  # int32[T] where in `order` it starts
    tile_end: torch.Tensor  # int32[T] where its expert's rows end


def plan_experts(expert: torch.Tensor, count: int) -> ExpertTiles:
    """From the chosen experts int[R, top_k] of `count`. Integer arithmetic on the device, nothing is read back."""
    flat = expert.flatten().long()
    order = torch.sort(flat, stable=True).indices
    sizes = torch.zeros(count + 1, dtype=torch.long, device=flat.device).scatter_add_(0, flat, torch.ones_like(flat))
    ends = sizes.cumsum(0)
    tile_ends = ((sizes + _BLOCK_M - 1) // _BLOCK_M).cumsum(0)
    tile = torch.arange(-(-len(flat) // _BLOCK_M) + min(count, len(flat)), device=flat.device)
    owner = torch.searchsorted(tile_ends[:count].contiguous(), tile, right=True)
    before = torch.where(owner > 0, tile_ends[(owner - 1).clamp(min=0)], 0)
    first = torch.where(owner > 0, ends[(owner - 1).clamp(min=0)], 0)
    return ExpertTiles(order.int(), owner.int(), (first + (tile - before) * _BLOCK_M).int(), ends[owner].int())


def experts(
    x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, expert: torch.Tensor, share: torch.Tensor
) -> torch.Tensor:
    """Sum over a row's experts of share * down(geglu(gate_up(x))), in ascending expert id: [R, K].

    x [R, K], gate_up [E, 2 * W, K] with the gate first, down [E, K, W], expert int[R, top_k] all different in a row,
    share [R, top_k].
    """
    rows, top_k = expert.shape
    width = down.shape[2]
    tiles = plan_experts(expert, len(gate_up))
    wide = _grouped(x, gate_up, tiles, rows_per_place=top_k)
    given = _grouped(geglu(wide[:, :width], wide[:, width:]), down, tiles, rows_per_place=1)
    out = torch.empty_like(x)
    block = min(_MIX, triton.next_power_of_2(x.shape[1]))
    _mix[(rows, triton.cdiv(x.shape[1], block))](
        given, expert.int().contiguous(), share.contiguous(), out, x.shape[1],
        TOP_K=top_k, BLOCK_E=triton.next_power_of_2(top_k), BLOCK=block, num_warps=4,
    )  # fmt: skip
    return out


def route(logits: torch.Tensor, expert_scale: torch.Tensor, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Router logits float32[R, E] to expert int32[R, top_k] and share float32[R, top_k]: softmax over all experts, the
    largest (of equals the lower id), renormalised, times the expert's scale [E]. Rows of NaN go to the first ones."""
    rows, count = logits.shape
    expert = torch.empty(rows, top_k, dtype=torch.int32, device=logits.device)
    share = torch.empty(rows, top_k, dtype=torch.float32, device=logits.device)
    _route[(rows,)](
        logits, expert_scale, expert, share, count,
        TOP_K=top_k, BLOCK_E=triton.next_power_of_2(count), BLOCK_K=triton.next_power_of_2(top_k), num_warps=1,
    )  # fmt: skip
    return expert, share


def _grouped(x: torch.Tensor, weight: torch.Tensor, tiles: ExpertTiles, *, rows_per_place: int) -> torch.Tensor:
    """Place p of the result [A, N] is row p // rows_per_place of x [., K] times its expert's weight of [E, N, K]."""
    count, n, k = weight.shape
    out = torch.empty(len(tiles.order), n, dtype=x.dtype, device=x.device)
    _product[(len(tiles.tile_expert), triton.cdiv(n, _BLOCK_N))](
        x, weight, out, tiles.order, tiles.tile_expert, tiles.tile_start, tiles.tile_end, count, n, k, x.stride(0),
        rows_per_place, BLOCK_M=_BLOCK_M, BLOCK_N=_BLOCK_N, BLOCK_K=_BLOCK_K, num_warps=4, num_stages=4,
    )  # fmt: skip
    return out


@triton.jit
def _product(
    x, weight, out, order, tile_expert, tile_start, tile_end, count, n, k, x_stride, rows_per_place,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    expert = tl.load(tile_expert + tile)
    if expert < count:
        at = tl.load(tile_start + tile) + tl.arange(0, BLOCK_M)
        live = at < tl.load(tile_end + tile)
        place = tl.load(order + at, mask=live, other=0)
        column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
        inner = tl.arange(0, BLOCK_K)
        x_place = x + (place // rows_per_place).to(tl.int64)[:, None] * x_stride + inner[None, :]
        w_place = weight + (expert.to(tl.int64) * n + column)[None, :] * k + inner[:, None]
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, k, BLOCK_K):
            inside = start + inner < k
            a = tl.load(x_place + start, mask=live[:, None] & inside[None, :], other=0.0)
            b = tl.load(w_place + start, mask=(column < n)[None, :] & inside[:, None], other=0.0)
            acc = tl.dot(a, b, acc, input_precision="ieee")
        target = out + place.to(tl.int64)[:, None] * n + column[None, :]
        tl.store(target, acc.to(out.dtype.element_ty), mask=live[:, None] & (column < n)[None, :])


@triton.jit
def _mix(given, experts_, share, out, width, TOP_K: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    choice = tl.arange(0, BLOCK_E)
    chosen = tl.load(experts_ + row * TOP_K + choice, mask=choice < TOP_K, other=2147483647)
    total = tl.zeros((BLOCK,), tl.float32)
    last = -1
    for _ in range(TOP_K):
        expert = tl.min(tl.where(chosen > last, chosen, 2147483647), 0)
        at = tl.min(tl.where(chosen == expert, choice, BLOCK_E), 0)
        weight = tl.load(share + row * TOP_K + at).to(tl.float32)
        value = tl.load(given + (row * TOP_K + at).to(tl.int64) * width + i, mask=i < width, other=0.0).to(tl.float32)
        total = tl.fma(value, weight + tl.zeros_like(value), total)
        last = expert
    tl.store(out + row.to(tl.int64) * width + i, total.to(out.dtype.element_ty), mask=i < width)


@triton.jit
def _route(
    logits, expert_scale, expert, share, count, TOP_K: tl.constexpr, BLOCK_E: tl.constexpr, BLOCK_K: tl.constexpr
):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK_E)
    choice = tl.arange(0, BLOCK_K)
    logit = tl.load(logits + row * count + i, mask=i < count, other=-1e30)
    # the sum over all experts cancels when the chosen shares are renormalised
    size = tl.exp(logit - tl.max(logit, 0))
    left = tl.where((i < count) & (size == size), size, -1.0)
    ids = tl.zeros((BLOCK_K,), tl.int32)
    sizes = tl.zeros((BLOCK_K,), tl.float32)
    total = tl.zeros((), tl.float32)
    for place in range(TOP_K):
        largest = tl.max(left, 0)
        best = tl.min(tl.where(left == largest, i, BLOCK_E), 0)
        best = tl.minimum(best, count - 1)
        left = tl.where(i == best, -2.0, left)
        ids = tl.where(choice == place, best, ids)
        sizes = tl.where(choice == place, largest, sizes)
        total = total + largest
    scale = tl.load(expert_scale + ids, mask=choice < TOP_K, other=0.0).to(tl.float32)
    tl.store(expert + row * TOP_K + choice, ids, mask=choice < TOP_K)
    tl.store(share + row * TOP_K + choice, sizes / total * scale, mask=choice < TOP_K)
