# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803, N806 (constants of a kernel are written in capitals)
"""What stands between the matrix products of a decoder layer, in Triton: norms, turning q and k, writing pages, gates.

Formulas are those of `reference.py` (RMSNorm: Zhang and Sennrich, arXiv:1910.07467; rotary positions: Su et al.,
arXiv:2104.09864, halves paired; gelu by its tanh form). Inputs of any float type, arithmetic in float32, one rounding
at the end. A program handles one row, or a few heads of one, in a shape that depends on the model only, so a row's bits
do not depend on the batch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from photocall_engine.kernels.triton_math import gelu, inverse_rms
from photocall_engine.kernels.triton_overlap import overlap
from photocall_engine.kv_pools import LayerKv
from photocall_engine.rows import PAGE_SIZE

_WIDE = 1024  # columns of one program of the gates
_HEADS = 4  # heads of one program of `turn_and_write`


def rms_norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """x [..., N] / rms(x) over the last dimension, times `weight` [N] where there is one.

    The rows may lie in slices of wider ones: x is [R, N], or [R, H, N] with its heads side by side.
    """
    width = x.shape[-1]
    per_row = x.shape[1] if x.ndim == 3 else 1
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(width)
    _norm[(x.shape[0], per_row)](
        x, weight, out, x.stride(0), per_row, width, eps, BLOCK=block, num_warps=_warps(block), **overlap()
    )  # fmt: skip
    return out


def norm_add(
    residual: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    *,
    scalar: torch.Tensor | None = None,
    next_weight: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(residual + rms_norm(x) * weight) * scalar [R, N], and the rms_norm of that with `next_weight` where given.

    x [R, N], or float32[S, R, N]: parts of a product, which are added in ascending order and rounded as the product
    would have been. The second result is computed from the rounded first: it has the bits of a `rms_norm` of it.
    """
    rows, width = residual.shape
    parts = x.shape[0] if x.ndim == 3 else 0
    out = torch.empty_like(residual)
    normed = None if next_weight is None else torch.empty_like(residual)
    block = triton.next_power_of_2(width)
    _norm_add[(rows,)](
        residual, x, weight, scalar, next_weight, out, normed, x.stride(-2), x.stride(0), width, eps,
        PARTS=parts, BLOCK=block, num_warps=_warps(block), **overlap(),
    )  # fmt: skip
    return out, normed


def turn_and_write(
    stacked: torch.Tensor,
    q_norm: torch.Tensor | None,
    k_norm: torch.Tensor | None,
    cos: torch.Tensor,
    sin: torch.Tensor,
    eps: float,
    kv: LayerKv | None,
    row: torch.Tensor,
    slot: torch.Tensor,
    smap: torch.Tensor | None,
    *,
    heads: int,
    kv_heads: int,
    head_dim: int,
    num_rows: int,
) -> torch.Tensor:
    """From the output of the stacked q, k, v linear to turned queries, and K and V in their pages.

    stacked   [R, (heads + kv_heads + kv_heads) * head_dim]: q, k, v; one kv_heads less: v is made of the raw k
    cos, sin  float32[R, head_dim / 2]; where a head does not turn (proportional RoPE) cos is 1 and sin 0
    row, slot int32[W]: rows whose K/V go to slots of the full pool; the first `num_rows` are 0, 1, ..., then the extra
              ones (private tails of branches). Padding: any row with a slot of page 0.
    smap      int32[pages] page of the sliding pool for each full page (0: its scratch page); None: kv is the full pool
    kv        None: the layer reads another's K/V, `kv_heads` is 0, and only queries are made
    Returns q [num_rows, heads, head_dim].
    """
    width = stacked.shape[1] // head_dim
    q = torch.empty(num_rows, heads, head_dim, dtype=stacked.dtype, device=stacked.device)
    block = triton.next_power_of_2(head_dim // 2)
    grid = (len(row), triton.cdiv(heads + 2 * kv_heads, _HEADS))
    _turn_and_write[grid](
        stacked, q_norm, k_norm, cos, sin, q,
        q if kv is None else kv.k, q if kv is None else kv.v, row, slot, smap,
        stacked.stride(0), 0 if kv is None else kv.k.stride(0), num_rows, eps,
        HEADS=heads, KV_HEADS=kv_heads, SHARED_V=width == heads + kv_heads, DIM=head_dim, BLOCK_H=_HEADS, BLOCK=block,
        PAGE=PAGE_SIZE, num_warps=4, **overlap()
    )  # fmt: skip
    return q


def geglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """gelu(gate) * up [R, N]. Both may be slices of wider rows: the halves of one linear's output, or one layer's
    part of the per-layer embeddings (the per-layer gate)."""
    rows, width = gate.shape
    out = torch.empty(rows, width, dtype=gate.dtype, device=gate.device)
    block = min(_WIDE, triton.next_power_of_2(width))
    _geglu[(rows, triton.cdiv(width, block))](
        gate, up, out, gate.stride(0), up.stride(0), width, BLOCK=block, num_warps=4, **overlap()
    )
    return out


def per_layer_inputs(
    projected: torch.Tensor, tokens: torch.Tensor, table: torch.Tensor, weight: torch.Tensor, eps: float, *,
    projection_scale: float, table_scale: float,
) -> torch.Tensor:  # fmt: skip
    """(rms_norm(projected * projection_scale) * weight + table[token] * table_scale) * 2^-0.5, layer by layer.

    projected [R, layers * P], tokens int32[R] (the pad id at picture rows), table [vocabulary, layers * P], weight [P]:
    [R, layers, P].
    """
    rows, size = len(tokens), len(weight)
    layers = projected.shape[1] // size
    out = torch.empty(rows, layers, size, dtype=projected.dtype, device=projected.device)
    _per_layer[(rows, layers)](
        projected, tokens, table, weight, out, layers, size, eps, projection_scale, table_scale, 2.0**-0.5,
        BLOCK=triton.next_power_of_2(size), num_warps=1, **overlap()
    )  # fmt: skip
    return out


def embed(
    tokens: torch.Tensor, table: torch.Tensor, scale: float, soft_idx: torch.Tensor, arena: torch.Tensor
) -> torch.Tensor:
    """table[token] * scale [R, N], or row soft_idx of the arena as it is where that is not -1."""
    rows, width = len(tokens), table.shape[1]
    out = torch.empty(rows, width, dtype=table.dtype, device=table.device)
    block = min(_WIDE, triton.next_power_of_2(width))
    _embed[(rows, triton.cdiv(width, block))](
        tokens, table, soft_idx, arena, out, width, scale, BLOCK=block, num_warps=4, **overlap()
    )
    return out


def copy_pages(pool: torch.Tensor, src: torch.Tensor, dst: torch.Tensor) -> None:
    """In each of pool [N, slots, D], page src[i] to page dst[i] (int32); no page is both."""
    count, _, dim = pool.shape
    if len(src):
        block = min(_WIDE, triton.next_power_of_2(PAGE_SIZE * dim))
        _copy_pages[(len(src), count)](
            pool, src, dst, pool.stride(0), SIZE=PAGE_SIZE * dim, BLOCK=block, num_warps=4, **overlap()
        )  # fmt: skip


def _warps(block: int) -> int:
    return min(8, max(1, block // 256))


@triton.jit
def _norm(x, weight, out, x_stride, per_row, width, eps, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr):
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    row, part = tl.program_id(0), tl.program_id(1)
    n = tl.arange(0, BLOCK)
    inside = n < width
    value = tl.load(x + row.to(tl.int64) * x_stride + part * width + n, mask=inside, other=0.0).to(tl.float32)
    value = value * inverse_rms(value, width, eps)
    if weight is not None:
        value = value * tl.load(weight + n, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + (row.to(tl.int64) * per_row + part) * width + n, value.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["part_stride"])
def _norm_add(
    residual, x, weight, scalar, next_weight, out, normed, x_stride, part_stride, width, eps,
    PARTS: tl.constexpr, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, BLOCK)
    inside = n < width
    if PARTS == 0:
        value = tl.load(x + row * x_stride + n, mask=inside, other=0.0).to(tl.float32)
    else:
        value = tl.zeros((BLOCK,), tl.float32)
        for part in tl.static_range(PARTS):
            value = value + tl.load(x + part * part_stride.to(tl.int64) + row * x_stride + n, mask=inside, other=0.0)
        value = value.to(out.dtype.element_ty).to(tl.float32)
    w = tl.load(weight + n, mask=inside, other=0.0).to(tl.float32)
    kept = tl.load(residual + row * width + n, mask=inside, other=0.0).to(tl.float32)
    value = tl.fma(value * inverse_rms(value, width, eps), w, kept)
    if scalar is not None:
        value = value * tl.load(scalar).to(tl.float32)
    rounded = value.to(out.dtype.element_ty)
    tl.store(out + row * width + n, rounded, mask=inside)
    if next_weight is not None:
        value = rounded.to(tl.float32)
        value = value * inverse_rms(value, width, eps) * tl.load(next_weight + n, mask=inside, other=0.0).to(tl.float32)
        tl.store(normed + row * width + n, value.to(normed.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["num_rows"])
def _turn_and_write(
    stacked, q_norm, k_norm, cos, sin, q, k_pool, v_pool, rows, slots, smap, row_stride, pool_stride, num_rows, eps,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, SHARED_V: tl.constexpr, DIM: tl.constexpr, BLOCK_H: tl.constexpr,
    BLOCK: tl.constexpr, PAGE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    HALF: tl.constexpr = DIM // 2
    entry = tl.program_id(0)
    row = tl.load(rows + entry).to(tl.int64)
    slot = tl.load(slots + entry).to(tl.int64)
    if smap is not None:
        slot = tl.load(smap + slot // PAGE).to(tl.int64) * PAGE + slot % PAGE
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    n = tl.arange(0, BLOCK)
    is_q = head < HEADS
    is_k = (head >= HEADS) & (head < HEADS + KV_HEADS)
    is_v = (head >= HEADS + KV_HEADS) & (head < HEADS + 2 * KV_HEADS)
    cells = (head < HEADS + 2 * KV_HEADS)[:, None] & (n < HALF)[None, :]
    source = tl.where(is_v, head - KV_HEADS, head) if SHARED_V else head
    place = stacked + row * row_stride + source[:, None] * DIM + n[None, :]
    low = tl.load(place, mask=cells, other=0.0).to(tl.float32)
    high = tl.load(place + HALF, mask=cells, other=0.0).to(tl.float32)
    scale = tl.rsqrt((tl.sum(low * low, 1) + tl.sum(high * high, 1)) / DIM + eps)
    low, high = low * scale[:, None], high * scale[:, None]
    low_w = tl.full((BLOCK_H, BLOCK), 1.0, tl.float32)
    high_w = tl.full((BLOCK_H, BLOCK), 1.0, tl.float32)
    if q_norm is not None:
        low_w = tl.where(is_q[:, None], tl.load(q_norm + n, mask=n < HALF, other=0.0).to(tl.float32)[None, :], low_w)
        high_w = tl.where(
            is_q[:, None], tl.load(q_norm + HALF + n, mask=n < HALF, other=0.0).to(tl.float32)[None, :], high_w
        )
    if k_norm is not None:
        low_w = tl.where(is_k[:, None], tl.load(k_norm + n, mask=n < HALF, other=0.0).to(tl.float32)[None, :], low_w)
        high_w = tl.where(
            is_k[:, None], tl.load(k_norm + HALF + n, mask=n < HALF, other=0.0).to(tl.float32)[None, :], high_w
        )
    low, high = low * low_w, high * high_w
    c = tl.load(cos + row * HALF + n, mask=n < HALF, other=0.0)[None, :]
    s = tl.load(sin + row * HALF + n, mask=n < HALF, other=0.0)[None, :]
    turned_low = tl.where(is_v[:, None], low, tl.fma(low, c + tl.zeros_like(low), -(high * s)))
    turned_high = tl.where(is_v[:, None], high, tl.fma(high, c + tl.zeros_like(high), low * s))
    # a row's extra entries write K/V once more, but its queries only once
    queries = is_q[:, None] & cells & (entry < num_rows)
    target = q + row * HEADS * DIM + head[:, None] * DIM + n[None, :]
    tl.store(target, turned_low.to(q.dtype.element_ty), mask=queries)
    tl.store(target + HALF, turned_high.to(q.dtype.element_ty), mask=queries)
    if KV_HEADS > 0:
        target = k_pool + (head - HEADS).to(tl.int64)[:, None] * pool_stride + slot * DIM + n[None, :]
        tl.store(target, turned_low.to(k_pool.dtype.element_ty), mask=is_k[:, None] & cells)
        tl.store(target + HALF, turned_high.to(k_pool.dtype.element_ty), mask=is_k[:, None] & cells)
        target = v_pool + (head - HEADS - KV_HEADS).to(tl.int64)[:, None] * pool_stride + slot * DIM + n[None, :]
        tl.store(target, turned_low.to(v_pool.dtype.element_ty), mask=is_v[:, None] & cells)
        tl.store(target + HALF, turned_high.to(v_pool.dtype.element_ty), mask=is_v[:, None] & cells)


@triton.jit
def _geglu(gate, up, out, gate_stride, up_stride, width, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr):
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = n < width
    g = tl.load(gate + row * gate_stride + n, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + row * up_stride + n, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * width + n, (gelu(g) * u).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _per_layer(
    projected, tokens, table, weight, out, layers, size, eps, projection_scale, table_scale, last_scale,
    BLOCK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    row, layer = tl.program_id(0).to(tl.int64), tl.program_id(1)
    n = tl.arange(0, BLOCK)
    inside = n < size
    place = (row * layers + layer) * size + n
    value = tl.load(projected + place, mask=inside, other=0.0).to(tl.float32) * projection_scale
    value = value * inverse_rms(value, size, eps) * tl.load(weight + n, mask=inside, other=0.0).to(tl.float32)
    token = tl.load(tokens + row).to(tl.int64)
    looked_up = tl.load(table + (token * layers + layer) * size + n, mask=inside, other=0.0).to(tl.float32)
    value = tl.fma(looked_up, table_scale + tl.zeros_like(value), value) * last_scale
    tl.store(out + place, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _embed(tokens, table, soft_idx, arena, out, width, scale, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr):
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = n < width
    soft = tl.load(soft_idx + row).to(tl.int64)
    token = tl.load(tokens + row).to(tl.int64)
    word = tl.load(table + token * width + n, mask=inside & (soft < 0), other=0.0).to(tl.float32) * scale
    picture = tl.load(arena + soft * width + n, mask=inside & (soft >= 0), other=0.0).to(tl.float32)
    tl.store(out + row * width + n, tl.where(soft < 0, word, picture).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _copy_pages(pool, src, dst, stride, SIZE: tl.constexpr, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr):
    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()
    base = pool + tl.program_id(1).to(tl.int64) * stride
    source = base + tl.load(src + tl.program_id(0)).to(tl.int64) * SIZE
    target = base + tl.load(dst + tl.program_id(0)).to(tl.int64) * SIZE
    for start in range(0, SIZE, BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(target + i, tl.load(source + i, mask=i < SIZE), mask=i < SIZE)
