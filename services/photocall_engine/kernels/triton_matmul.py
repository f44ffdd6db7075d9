# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803, N806 (constants of a kernel are written in capitals)
"""Matrix products whose rows keep their bits whatever the number of rows, in Triton.

K is cut by the plan of the weight's shape (`matmul_table`), each part is summed in ascending order, and the parts are
added in ascending order. Many rows: a program sums all parts of its tile. Few rows: each part has programs of its own,
and whoever reads the product adds the parts (`_add_parts`, or a fused kernel behind it). No atomics, nothing is tuned
at run time, and the number of rows never selects other arithmetic, only the tile (Triton would specialise an argument
that is 1 or a multiple of 16). Gates are finished in the product: `gated` never writes the two halves.
"""

from __future__ import annotations

from enum import IntEnum

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
from triton.tools.tensor_descriptor import TensorDescriptor

from photocall_engine.kernels.fp8 import Fp8Weight
from photocall_engine.kernels.matmul_plan import MatmulPlan
from photocall_engine.kernels.triton_math import gelu
from photocall_engine.kernels.triton_overlap import overlap
from photocall_engine.kernels.vision import GateClips

_GROUP_M = 16  # row tiles that share a sweep over the weight, for the sake of the L2 cache
_ADD_BLOCK = 1024
_LINE = 128  # bytes that the L2 cache fetches at once
_AHEAD_BYTES = 32768  # of the weight, which a program fetches into the L2 cache while the kernel before still runs


class _End(IntEnum):
    """What becomes of a tile's sums."""

    STORE = 0
    PAIR = 1  # the weight's rows are a gate and what it lets through, one half each
    GATE = 2  # the weight is a gate alone, what it lets through is given


def matmul(
    x: torch.Tensor,
    weight: torch.Tensor | Fp8Weight,
    plan: MatmulPlan,
    *,
    programs: int = 132,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """x [M, K] @ weight [N, K]^T: [M, N] in x's type or `out_dtype`. `programs` walk the tiles where tiles are walked.

    An 8-bit weight is widened to x's type, which is exact, and its scales multiply the finished sums.
    """
    sums = unfinished(x, weight, plan, programs=programs, out_dtype=out_dtype)
    if sums.ndim == 2:
        return sums
    scale = weight.scale if isinstance(weight, Fp8Weight) else None
    splits, m, n = sums.shape
    out = torch.empty(m, n, dtype=out_dtype or x.dtype, device=x.device)
    _add_parts[(triton.cdiv(m * n, _ADD_BLOCK),)](
        sums, out, scale, m * n, n, SPLITS=splits, BLOCK=_ADD_BLOCK, **overlap()
    )
    return out


def unfinished(
    x: torch.Tensor,
    weight: torch.Tensor | Fp8Weight,
    plan: MatmulPlan,
    *,
    programs: int = 132,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """`matmul`, or its parts float32[S, M, N] where each has programs of its own; an 8-bit weight's without scales."""
    n = weight.shape[0]
    m = x.shape[0]
    if plan.splits > 1 and plan.tile(m).apart:
        out = torch.empty(plan.splits, m, n, dtype=torch.float32, device=x.device)
    else:
        out = torch.empty(m, n, dtype=out_dtype or x.dtype, device=x.device)
    _multiply(x, weight, plan, out, None, _End.STORE, programs)
    return out


def gated(
    x: torch.Tensor,
    weight: torch.Tensor | Fp8Weight,
    plan: MatmulPlan,
    let_through: torch.Tensor | None = None,
    *,
    clips: GateClips | None = None,
    programs: int = 132,
) -> torch.Tensor:
    """gelu(gate) * up [M, W] in x's type: gate and up are the halves of x @ weight [2 * W, K]^T, or the gate is
    x @ weight [W, K]^T and `let_through` [M, W] is up. The bits of a `matmul` followed by a `geglu`. `clips` bound
    gate, up and the result."""
    if plan.splits != 1:
        raise ValueError(f"a gate is finished in one sum, not in {plan.splits}")
    end = _End.PAIR if let_through is None else _End.GATE
    width = weight.shape[0] // 2 if end == _End.PAIR else weight.shape[0]
    out = torch.empty(x.shape[0], width, dtype=x.dtype, device=x.device)
    _multiply(x, weight, plan, out, let_through, end, programs, clips)
    return out


def _multiply(
    x: torch.Tensor,
    weight: torch.Tensor | Fp8Weight,
    plan: MatmulPlan,
    out: torch.Tensor,
    let_through: torch.Tensor | None,
    end: _End,
    programs: int,
    clips: GateClips | None = None,
) -> None:
    """Into out [M, N], or each split's sums into out [S, M, N]."""
    apart = out.ndim == 3
    scale = weight.scale if isinstance(weight, Fp8Weight) and not apart else None
    values = weight.values if isinstance(weight, Fp8Weight) else weight
    m, k = x.shape
    n = out.shape[-1]
    if x.stride(1) != 1 or values.stride(1) != 1:
        raise ValueError("matmul takes rows that are contiguous along K")
    tile = plan.tile(m)
    block_n = tile.block_n // 2 if end == _End.PAIR else tile.block_n
    if tile.across and block_n < 64:
        raise ValueError(f"{tile}: half of its columns are a gate's, and the matrix instruction has 64 rows at least")
    tiles = triton.cdiv(m, tile.block_m) * triton.cdiv(n, block_n) * (plan.splits if apart else 1)
    tma = plan.form == "tma" and descriptor_holds(x) and descriptor_holds(values)
    line = _LINE // values.element_size()
    lines = min(_AHEAD_BYTES // (_LINE * tile.block_n), k // line)
    _product[(min(programs, tiles) if tile.walk != "no" else tiles,)](
        TensorDescriptor.from_tensor(x, [tile.block_m, tile.block_k]) if tma else x,
        TensorDescriptor.from_tensor(values, [block_n, tile.block_k]) if tma else values,
        out, let_through, scale, m, n, k, tiles, x.stride(0), values.stride(0),
        0 if let_through is None else let_through.stride(0), plan.split_k(k) // tile.block_k,
        *((None,) * 6 if clips is None else (bound for clip in clips for bound in clip)), values,
        SPLITS=plan.splits, APART=apart, END=int(end), BLOCK_M=tile.block_m, BLOCK_N=block_n, BLOCK_K=tile.block_k,
        GROUP_M=_GROUP_M, TMA=tma, EVEN_K=k % tile.block_k == 0, WALKS=tile.walk != "no",
        ACROSS=tile.across, LINE=line, AHEAD=1 << lines.bit_length() - 1 if lines else 0,
        num_warps=tile.warps, num_stages=tile.stages, **overlap(),
    )  # fmt: skip


def descriptor_holds(matrix: torch.Tensor) -> bool:
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
def load_block(
    matrix, stride, first, count, block, k, ROWS: tl.constexpr, BLOCK_K: tl.constexpr, TMA: tl.constexpr,
    EVEN_K: tl.constexpr,
):  # fmt: skip
    """[ROWS, BLOCK_K] of a matrix from row `first` on. What lies past k is zero; rows past the end are anything."""
    if TMA:
        block_of = matrix.load([first, block * BLOCK_K])
    else:
        row = tl.minimum(first + tl.arange(0, ROWS), count - 1).to(tl.int64)
        inner = block * BLOCK_K + tl.arange(0, BLOCK_K)
        place = matrix + row[:, None] * stride + inner[None, :]
        block_of = tl.load(place) if EVEN_K else tl.load(place, mask=(inner < k)[None, :], other=0.0)
    return block_of


@triton.jit
def widened(b, dtype: tl.constexpr):
    """8-bit values in the other operand's type; anything else as it is."""
    return b if b.dtype == dtype else b.to(tl.float32).to(dtype)


@triton.jit
def _add_product(a, b, total, ACROSS: tl.constexpr):
    """total + a @ b^T; `ACROSS`: transposed, total and result are."""
    if ACROSS:
        total = tl.dot(widened(b, a.dtype), a.T, total, input_precision="ieee")
    else:
        total = tl.dot(a, widened(b, a.dtype).T, total, input_precision="ieee")
    return total


@triton.jit
def _clipped(value, low, high):
    """Within bounds, where there are any."""
    if low is not None:
        value = tl.minimum(tl.maximum(value, low), high)
    return value


@triton.jit
def _scaled(total, scale, columns, inside):
    if scale is not None:
        total = total * tl.load(scale + columns, mask=inside, other=0.0)[None, :]
    return total


@triton.jit
def _tile(
    tile, x, weight, target, other, scale, m, n, k, x_stride, w_stride, other_stride, split_blocks,
    gate_low, gate_high, up_low, up_high, low, high,
    SPLITS: tl.constexpr, APART: tl.constexpr, END: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, TMA: tl.constexpr, EVEN_K: tl.constexpr, ACROSS: tl.constexpr,
):  # fmt: skip
    split, tile_m, tile_n = _place(tile, m, n, BLOCK_M, BLOCK_N, GROUP_M)
    row, column = tile_m * BLOCK_M, tile_n * BLOCK_N
    last = tl.cdiv(k, BLOCK_K)
    HIGH: tl.constexpr = BLOCK_N if ACROSS else BLOCK_M
    WIDE: tl.constexpr = BLOCK_M if ACROSS else BLOCK_N
    total = tl.zeros((HIGH, WIDE), tl.float32)
    up = tl.zeros((HIGH, WIDE), tl.float32)
    if END == 1:
        for block in range(last):
            a = load_block(x, x_stride, row, m, block, k, BLOCK_M, BLOCK_K, TMA, EVEN_K)
            b = load_block(weight, w_stride, column, 2 * n, block, k, BLOCK_N, BLOCK_K, TMA, EVEN_K)
            c = load_block(weight, w_stride, column + n, 2 * n, block, k, BLOCK_N, BLOCK_K, TMA, EVEN_K)
            total = _add_product(a, b, total, ACROSS)
            up = _add_product(a, c, up, ACROSS)
    elif APART:
        for block in range(split * split_blocks, tl.minimum((split + 1) * split_blocks, last)):
            a = load_block(x, x_stride, row, m, block, k, BLOCK_M, BLOCK_K, TMA, EVEN_K)
            b = load_block(weight, w_stride, column, n, block, k, BLOCK_N, BLOCK_K, TMA, EVEN_K)
            total = _add_product(a, b, total, ACROSS)
    elif SPLITS == 1:
        for block in range(last):
            a = load_block(x, x_stride, row, m, block, k, BLOCK_M, BLOCK_K, TMA, EVEN_K)
            b = load_block(weight, w_stride, column, n, block, k, BLOCK_N, BLOCK_K, TMA, EVEN_K)
            total = _add_product(a, b, total, ACROSS)
    else:
        for part in range(SPLITS):
            acc = tl.zeros((HIGH, WIDE), tl.float32)
            for block in range(part * split_blocks, tl.minimum((part + 1) * split_blocks, last)):
                a = load_block(x, x_stride, row, m, block, k, BLOCK_M, BLOCK_K, TMA, EVEN_K)
                b = load_block(weight, w_stride, column, n, block, k, BLOCK_N, BLOCK_K, TMA, EVEN_K)
                acc = _add_product(a, b, acc, ACROSS)
            total = total + acc
    if ACROSS:
        total, up = total.T, up.T
    rows = row + tl.arange(0, BLOCK_M)
    columns = column + tl.arange(0, BLOCK_N)
    inside = columns < n
    cells = (rows < m)[:, None] & inside[None, :]
    total = _scaled(total, scale, columns, inside)
    if END == 1:
        up = _scaled(up, scale if scale is None else scale + n, columns, inside)
        up = up.to(target.dtype.element_ty).to(tl.float32)
    if END == 2:
        up = tl.load(other + rows.to(tl.int64)[:, None] * other_stride + columns[None, :], mask=cells, other=0.0)
        up = up.to(tl.float32)
    if END != 0:  # rounded as a product that was written would be
        total = total.to(target.dtype.element_ty).to(tl.float32)
        total = _clipped(gelu(_clipped(total, gate_low, gate_high)) * _clipped(up, up_low, up_high), low, high)
    base = target + split.to(tl.int64) * m * n if APART else target
    tl.store(base + rows.to(tl.int64)[:, None] * n + columns[None, :], total.to(target.dtype.element_ty), mask=cells)


@triton.jit
def _fetch(values, stride, first, count, column, ROWS: tl.constexpr, LINE: tl.constexpr, AHEAD: tl.constexpr):
    """AHEAD lines of ROWS rows into the L2 cache, without waiting for them."""
    row = tl.minimum(first + tl.arange(0, ROWS), count - 1).to(tl.int64)
    place = values + row[:, None] * stride + (column + tl.arange(0, AHEAD) * LINE)[None, :]
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [place], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit(do_not_specialize=["m", "tiles", "split_blocks"])
def _product(
    x, weight, target, other, scale, m, n, k, tiles, x_stride, w_stride, other_stride, split_blocks,
    gate_low, gate_high, up_low, up_high, low, high, values,
    SPLITS: tl.constexpr, APART: tl.constexpr, END: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, TMA: tl.constexpr, EVEN_K: tl.constexpr, WALKS: tl.constexpr,
    ACROSS: tl.constexpr, LINE: tl.constexpr, AHEAD: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    if DEPENDENT:
        gdc_launch_dependents()
        if AHEAD > 0:  # nobody writes weights, so they need not wait
            split, _, tile_n = _place(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP_M)
            column = split * split_blocks * BLOCK_K if APART else 0
            _fetch(values, w_stride, tile_n * BLOCK_N, n, column, BLOCK_N, LINE, AHEAD)
            if END == 1:
                _fetch(values + n.to(tl.int64) * w_stride, w_stride, tile_n * BLOCK_N, n, column, BLOCK_N, LINE, AHEAD)
        gdc_wait()
    if WALKS:
        for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=True):
            _tile(
                tile + tl.zeros((), tl.int32), x, weight, target, other, scale, m, n, k, x_stride, w_stride,
                other_stride, split_blocks, gate_low, gate_high, up_low, up_high, low, high,
                SPLITS, APART, END, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, TMA, EVEN_K, ACROSS,
            )  # fmt: skip
    else:
        _tile(
            tl.program_id(0), x, weight, target, other, scale, m, n, k, x_stride, w_stride, other_stride,
            split_blocks, gate_low, gate_high, up_low, up_high, low, high,
            SPLITS, APART, END, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, TMA, EVEN_K, ACROSS,
        )  # fmt: skip


@triton.jit(do_not_specialize=["size"])
def _add_parts(parts, out, scale, size, n, SPLITS: tl.constexpr, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr):
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for split in range(SPLITS):
        total = total + tl.load(parts + split * size + i, mask=i < size, other=0.0)
    if scale is not None:
        total = total * tl.load(scale + i % n, mask=i < size, other=0.0)
    tl.store(out + i, total.to(out.dtype.element_ty), mask=i < size)
