"""Triton's kernels between the linears against the reference, and a row's bits alone and among others.

Tolerances: in float32 a norm is a sum of up to a few hundred squares in another order and one rsqrt, 1e-5 on values of
size 1 to 4; in bfloat16 the result is rounded once, half a unit of 8 bits (2^-9 relative), so 2^-8 of the value.
"""

from __future__ import annotations

import pytest
import torch

from tests.engine.interpreter import DEVICE

# isort: split
from photocall_engine.kernels import triton_fused as fused
from photocall_engine.kernels.reference import ReferenceKernels
from photocall_engine.kv_pools import LayerKv
from photocall_engine.rows import PAGE_SIZE

REFERENCE = ReferenceKernels()
EPS = 1e-6
BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(DEVICE)


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=DEVICE)


def assert_near(found: torch.Tensor, expected: torch.Tensor) -> None:
    """`expected` in float32; see the tolerances above."""
    relative = 2.0**-8 if found.dtype == torch.bfloat16 else 0.0
    assert found.shape == expected.shape
    assert torch.isfinite(found).all()
    assert ((found.float() - expected).abs() <= 2e-5 + relative * expected.abs()).all()


@BOTH
@pytest.mark.parametrize("width", [64, 80, 256])
def test_norms(width: int, dtype: torch.dtype) -> None:
    wide = draw(9, 3 * width, dtype=dtype)
    x, weight = wide[:, width : 2 * width], draw(width, seed=1, dtype=dtype)
    assert_near(fused.rms_norm(x, weight, EPS), REFERENCE.rms_norm(x.float(), weight.float(), EPS))
    assert_near(fused.rms_norm(x, None, EPS), REFERENCE.rms_norm(x.float(), None, EPS))
    heads = wide.view(9, 3, width)
    assert_near(fused.rms_norm(heads, weight, EPS), REFERENCE.rms_norm(heads.float(), weight.float(), EPS))
    every = fused.rms_norm(x, weight, EPS)
    for start, count in ((0, 1), (4, 3), (8, 1)):
        assert torch.equal(fused.rms_norm(x[start : start + count].clone(), weight, EPS), every[start : start + count])


@BOTH
def test_norm_add_scales_and_hands_on(dtype: torch.dtype) -> None:
    residual, x = draw(7, 80, dtype=dtype), draw(7, 80, seed=1, dtype=dtype)
    weight, after = draw(80, seed=2, dtype=dtype), draw(80, seed=3, dtype=dtype)
    scalar = torch.tensor([0.7], dtype=dtype, device=DEVICE)
    plain, _ = REFERENCE.norm_add(residual.float(), x.float(), weight.float(), EPS)
    found, nothing = fused.norm_add(residual, x, weight, EPS)
    assert nothing is None
    assert_near(found, plain)
    found, normed = fused.norm_add(residual, x, weight, EPS, scalar=scalar, next_weight=after)
    assert normed is not None
    assert_near(found, plain * scalar.float())
    assert_near(normed, REFERENCE.rms_norm(found.float(), after.float(), EPS))
    assert torch.equal(normed, fused.rms_norm(found, after, EPS))
    alone, alone_normed = fused.norm_add(
        residual[3:4].clone(), x[3:4].clone(), weight, EPS, scalar=scalar, next_weight=after
    )
    assert alone_normed is not None
    assert torch.equal(alone[0], found[3])
    assert torch.equal(alone_normed[0], normed[3])


def turns(rows: int, half: int, turning: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Proportional RoPE where fewer than all pairs turn: their angle is 0."""
    angle = draw(rows, half, seed=5) * 3
    angle[:, turning:] = 0
    return angle.cos(), angle.sin()


@BOTH
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "turning", "shared_v"),
    [(4, 2, 64, 32, False), (8, 1, 128, 16, True), (2, 2, 72, 36, False), (3, 1, 64, 8, True)],
)
def test_queries_turn_and_pages_are_written(
    heads: int, kv_heads: int, dim: int, turning: int, shared_v: bool, dtype: torch.dtype
) -> None:
    """Into the full pool and, through the map, into the sliding one; two rows are written to a second slot too."""
    rows = 5
    stacked = draw(rows, (heads + kv_heads * (1 if shared_v else 2)) * dim, dtype=dtype)
    q_norm, k_norm = draw(dim, seed=1, dtype=dtype), draw(dim, seed=2, dtype=dtype)
    cos, sin = turns(rows, dim // 2, turning)
    row, slot = ints(0, 1, 2, 3, 4, 1, 4), ints(16, 17, 18, 40, 3, 70, 71)
    smap = ints(0, 2, 0, 1, 3)  # full pages 1, 3 and 4 have a page; page 2 has none
    parts = stacked.float().view(rows, -1, dim)
    q_raw, k_raw = parts[:, :heads], parts[:, heads : heads + kv_heads]
    v_raw = k_raw if shared_v else parts[:, heads + kv_heads :]
    expected_q = REFERENCE.rope(REFERENCE.rms_norm(q_raw, q_norm.float(), EPS), cos, sin)
    expected_k = REFERENCE.rope(REFERENCE.rms_norm(k_raw, k_norm.float(), EPS), cos, sin)
    expected_v = REFERENCE.rms_norm(v_raw, None, EPS)
    for mapped in (None, smap):
        shape = (kv_heads, 5 * PAGE_SIZE + 1, dim)
        kv = LayerKv(
            torch.full(shape, 9.0, dtype=dtype, device=DEVICE), torch.full(shape, 9.0, dtype=dtype, device=DEVICE)
        )
        q = fused.turn_and_write(
            stacked, q_norm, k_norm, cos, sin, EPS, kv, row, slot, mapped,
            heads=heads, kv_heads=kv_heads, head_dim=dim, num_rows=rows,
        )  # fmt: skip
        assert_near(q, expected_q)
        physical = slot if mapped is None else mapped[slot.long() // PAGE_SIZE] * PAGE_SIZE + slot % PAGE_SIZE
        for pool, wanted in ((kv.k, expected_k), (kv.v, expected_v)):
            assert_near(pool[:, physical.long()].transpose(0, 1), wanted[row.long()])
            untouched = torch.ones(shape[1], dtype=torch.bool, device=DEVICE)
            untouched[physical.long()] = False
            assert (pool[:, untouched] == 9.0).all()


def test_a_row_has_the_same_queries_and_pages_alone() -> None:
    stacked, (cos, sin) = draw(6, 8 * 64), turns(6, 32, 32)
    norm = draw(64, seed=1)
    shape = (2, 3 * PAGE_SIZE + 1, 64)

    def write(rows: slice) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        count = len(stacked[rows])
        kv = LayerKv(torch.zeros(shape, device=DEVICE), torch.zeros(shape, device=DEVICE))
        index = torch.arange(count, dtype=torch.int32, device=DEVICE)
        q = fused.turn_and_write(
            stacked[rows].clone(), norm, norm, cos[rows].clone(), sin[rows].clone(), EPS, kv, index, index + 16, None,
            heads=4, kv_heads=2, head_dim=64, num_rows=count,
        )  # fmt: skip
        return q, kv.k[:, 16 : 16 + count], kv.v[:, 16 : 16 + count]

    q, k, v = write(slice(0, 6))
    q_alone, k_alone, v_alone = write(slice(4, 5))
    assert torch.equal(q_alone[0], q[4])
    assert torch.equal(k_alone[:, 0], k[:, 4])
    assert torch.equal(v_alone[:, 0], v[:, 4])


def test_layers_that_share_make_queries_only() -> None:
    stacked, (cos, sin) = draw(3, 4 * 64), turns(3, 32, 32)
    norm = draw(64, seed=1)
    q = fused.turn_and_write(
        stacked, norm, None, cos, sin, EPS, None, ints(0, 1, 2), ints(0, 0, 0), None,
        heads=4, kv_heads=0, head_dim=64, num_rows=3,
    )  # fmt: skip
    assert_near(q, REFERENCE.rope(REFERENCE.rms_norm(stacked.view(3, 4, 64), norm, EPS), cos, sin))


@BOTH
def test_gates(dtype: torch.dtype) -> None:
    """The MLP's halves of one output, and the per-layer gate: a slice of the per-layer embeddings."""
    wide = draw(6, 2 * 1100, dtype=dtype) * 4
    gate, up = wide[:, :1100], wide[:, 1100:]
    assert_near(fused.geglu(gate, up), REFERENCE.geglu(gate.float(), up.float()))
    per_layer = draw(6, 3, 48, seed=1, dtype=dtype)
    narrow = draw(6, 48, seed=2, dtype=dtype)
    every = fused.geglu(narrow, per_layer[:, 1])
    assert_near(every, REFERENCE.geglu(narrow.float(), per_layer[:, 1].float()))
    assert torch.equal(fused.geglu(narrow[2:3].clone(), per_layer[2:3, 1].clone())[0], every[2])
    far = torch.tensor([[-200.0, 200.0, 0.0, -1e10, 1e10]], dtype=dtype, device=DEVICE)
    assert torch.equal(fused.geglu(far, torch.ones_like(far)), far.clamp(min=0))


@BOTH
def test_per_layer_inputs(dtype: torch.dtype) -> None:
    projected, table, weight = (draw(*s, seed=i, dtype=dtype) for i, s in enumerate(((5, 3 * 48), (11, 3 * 48), (48,))))
    tokens = ints(3, 0, 10, 3, 7)
    found = fused.per_layer_inputs(projected, tokens, table, weight, EPS, projection_scale=0.125, table_scale=7.0)
    normed = REFERENCE.rms_norm(projected.float().view(5, 3, 48) * 0.125, weight.float(), EPS)
    assert_near(found, (normed + table.float()[tokens.long()].view(5, 3, 48) * 7.0) * 2.0**-0.5)


@BOTH
def test_embedding_takes_soft_rows_as_they_are(dtype: torch.dtype) -> None:
    table, arena = draw(11, 1100, dtype=dtype), draw(4, 1100, seed=1, dtype=dtype)
    found = fused.embed(ints(3, 0, 10), table, 50.5, ints(-1, 2, -1), arena)
    assert torch.equal(found[1], arena[2])
    assert_near(found[[0, 2]], table.float()[[3, 10]] * 50.5)
