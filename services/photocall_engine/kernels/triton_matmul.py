# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803 (constants of a kernel are written in capitals)
"""Matrix products whose rows keep their bits whatever the number of rows, in Triton.

K is cut by the plan of the weight's shape (`matmul_table`), each part is summed in K blocks of one size in ascending
order, and the parts are added in ascending order, starting at zero: by one program for many rows, by `_add_parts` for
few. No atomics, nothing is tuned at run time, and the number of rows never selects other machine code (Triton would
specialise an argument that is 1 or a multiple of 16). Two forms: `_plain` loads through pointers, one tile a program;
`_persistent` walks tiles with tensor descriptors, which Hopper's copy engine loads. So far run in Triton's interpreter
only, where a matrix product is one rounded sum: that both tile shapes of a plan agree is for the GPU to show.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from photocall_engine.kernels.fp8 import Fp8Weight
from photocall_engine.kernels.matmul_table import MatmulPlan

_GROUP_M = 8  # row tiles that share a sweep over the weight, for the sake of the L2 cache
_ADD_BLOCK = 1024


def matmul(
    x: torch.Tensor,
    weight: torch.Tensor | Fp8Weight,
    plan: MatmulPlan,
    *,
    programs: int = 132,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """x [M, K] @ weight [N, K]^T: [M, N] in x's type or `out_dtype`. `programs` walk the tiles of the tma form.

    An 8-bit weight is widened to x's type, which is exact, and its scales multiply the finished sums.
    """
    scale = weight.scale if isinstance(weight, Fp8Weight) else None
    weight = weight.values if isinstance(weight, Fp8Weight) else weight
    m, k = x.shape
    n = weight.shape[0]
    if x.stride(1) != 1 or weight.stride(1) != 1:
        raise ValueError("matmul takes rows that are contiguous along K")
    out = torch.empty(m, n, dtype=out_dtype or x.dtype, device=x.device)
    few = m <= plan.few_rows
    tile = plan.few if few else plan.many
    apart = few and plan.splits > 1
    target = torch.empty(plan.splits, m, n, dtype=torch.float32, device=x.device) if apart else out
    tiles = triton.cdiv(m, tile.block_m) * triton.cdiv(n, tile.block_n) * (plan.splits if apart else 1)
    sizes = {
        "SPLITS": plan.splits, "SPLIT_BLOCKS": plan.blocks_per_split(k), "APART": apart, "BLOCK_M": tile.block_m,
        "BLOCK_N": tile.block_n, "BLOCK_K": plan.block_k, "GROUP_M": _GROUP_M,
        "num_warps": tile.warps, "num_stages": tile.stages,
    }  # fmt: skip
    if plan.form == "tma" and _descriptors_hold(x) and _descriptors_hold(weight):
        _persistent[(min(programs, tiles),)](
            TensorDescriptor.from_tensor(x, [tile.block_m, plan.block_k]),
            TensorDescriptor.from_tensor(weight, [tile.block_n, plan.block_k]),
            target, None if apart else scale, m, n, k, tiles, **sizes,
        )  # fmt: skip
    else:
        _plain[(tiles,)](
            x, weight, target, None if apart else scale, m, n, k, x.stride(0), weight.stride(0),
            EVEN_K=k % plan.block_k == 0, **sizes,
        )  # fmt: skip
    if apart:
        _add_parts[(triton.cdiv(m * n, _ADD_BLOCK),)](
            target, out, scale, m * n, n, SPLITS=plan.splits, BLOCK=_ADD_BLOCK
        )
    return out


def _descriptors_hold(matrix: torch.Tensor) -> bool:
    """A tensor descriptor needs 16-byte aligned rows."""
    return matrix.data_ptr() % 16 == 0 and matrix.stride(0) * matrix.element_size() % 16 == 0


@triton.jit
def _place(tile, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Split, row tile and column tile number `tile`: groups of row tiles sweep the columns together."""
    tiles_m = tl.cdiv(m, BLOCK_M)
    tiles_n = tl.cdiv(n, BLOCK_N)
    split = tile // (tiles_m * tiles_n)
    tile = tile % (tiles_m * tiles_n)
    group = tile // (GROUP_M * tiles_n)
    height = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    within = tile % (GROUP_M * tiles_n)
    return split, group * GROUP_M + within % height, within // height


@triton.jit
def _widened(b, dtype: tl.constexpr):
    """8-bit values in the other operand's type; anything else as it is."""
    return b if b.dtype == dtype else b.to(tl.float32).to(dtype)


@triton.jit
def _store(target, scale, total, split, rows, columns, m, n, APART: tl.constexpr):
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    if scale is not None:
        total = total * tl.load(scale + columns, mask=columns < n, other=0.0)[None, :]
    base = target + split.to(tl.int64) * m * n if APART else target
    place = base + rows.to(tl.int64)[:, None] * n + columns[None, :]
    tl.store(place, total.to(target.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["m"])
def _plain(
    x, weight, target, scale, m, n, k, x_stride, w_stride,
    SPLITS: tl.constexpr, SPLIT_BLOCKS: tl.constexpr, APART: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    split, tile_m, tile_n = _place(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP_M)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    # rows and columns past the end repeat the last one: they are computed and not stored
    x_place = x + tl.minimum(rows, m - 1).to(tl.int64)[:, None] * x_stride + inner[None, :]
    w_place = weight + tl.minimum(columns, n - 1).to(tl.int64)[None, :] * w_stride + inner[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    last = tl.cdiv(k, BLOCK_K)
    for part in range(split, split + 1 if APART else SPLITS):
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for block in range(part * SPLIT_BLOCKS, tl.minimum((part + 1) * SPLIT_BLOCKS, last)):
            if EVEN_K:
                a = tl.load(x_place + block * BLOCK_K)
                b = tl.load(w_place + block * BLOCK_K)
            else:
                a = tl.load(x_place + block * BLOCK_K, mask=(inner < k - block * BLOCK_K)[None, :], other=0.0)
                b = tl.load(w_place + block * BLOCK_K, mask=(inner < k - block * BLOCK_K)[:, None], other=0.0)
            acc = tl.dot(a, _widened(b, a.dtype), acc, input_precision="ieee")
        total = total + acc
    _store(target, scale, total, split, rows, columns, m, n, APART)


@triton.jit(do_not_specialize=["m", "tiles"])
def _persistent(
    x, weight, target, scale, m, n, k, tiles,
    SPLITS: tl.constexpr, SPLIT_BLOCKS: tl.constexpr, APART: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    last = tl.cdiv(k, BLOCK_K)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        split, tile_m, tile_n = _place(tile + tl.zeros((), tl.int32), m, n, BLOCK_M, BLOCK_N, GROUP_M)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for part in range(split, split + 1 if APART else SPLITS):
            acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for block in range(part * SPLIT_BLOCKS, tl.minimum((part + 1) * SPLIT_BLOCKS, last)):
                a = x.load([tile_m * BLOCK_M, block * BLOCK_K])  # zero past the end
                b = weight.load([tile_n * BLOCK_N, block * BLOCK_K])
                acc = tl.dot(a, _widened(b, a.dtype).T, acc, input_precision="ieee")
            total = total + acc
        rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        _store(target, scale, total, split, rows, columns, m, n, APART)


@triton.jit(do_not_specialize=["size"])
def _add_parts(parts, out, scale, size, n, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for split in range(SPLITS):
        total = total + tl.load(parts + split * size + i, mask=i < size, other=0.0)
    if scale is not None:
        total = total * tl.load(scale + i % n, mask=i < size, other=0.0)
    tl.store(out + i, total.to(out.dtype.element_ty), mask=i < size)
