"""Triton's matrix products against the reference, and the bits of a row for every number of rows around it.

Tolerance: operands are what they are, sums are float32, so against a product in float64 what remains is the rounding of
the sum (K additions of terms of size 1: 1e-5 x sqrt(K) is generous) and, for bfloat16 results, 2^-8 of the value.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from tests.engine.interpreter import DEVICE, ON_GPU

# isort: split
from photocall_engine.kernels.matmul_h200 import H200
from photocall_engine.kernels.matmul_plan import Form, MatmulPlan, Tile
from photocall_engine.kernels.matmul_table import TABLE, default_plan, fingerprint, plan_for
from photocall_engine.kernels.reference import ReferenceKernels
from photocall_engine.kernels.triton_fused import geglu, norm_add
from photocall_engine.kernels.triton_matmul import gated, matmul, unfinished
from photocall_engine.kernels.triton_vision import TritonVision
from photocall_engine.kernels.vision import Clip

TILES = (
    (16, Tile(16, 128, 64, 4, 3, apart=True, across=True)),
    (64, Tile(64, 32, 64, 4, 3, apart=True)),
    (1 << 31, Tile(128, 64, 64, 4, 3, walk="flat")),
)
PLAN = MatmulPlan("plain", 2, TILES)
WHOLE = MatmulPlan("plain", 1, TILES)
FORM_NAMES: tuple[Form, ...] = ("plain", "tma")
FORMS = pytest.mark.parametrize("form", FORM_NAMES)
BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(DEVICE)


def assert_near(found: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> None:
    expected = x.double() @ weight.double().T
    relative = 2.0**-8 if found.dtype == torch.bfloat16 else 0.0
    assert ((found.double() - expected).abs() <= 1e-5 * x.shape[1] ** 0.5 + relative * expected.abs()).all()


@BOTH
@FORMS
@pytest.mark.parametrize(("m", "n", "k"), [(1, 32, 64), (70, 80, 200), (130, 72, 96), (3, 40, 328)])
def test_products(m: int, n: int, k: int, form: Form, dtype: torch.dtype) -> None:
    x, weight = draw(m, k, dtype=dtype), draw(n, k, seed=1, dtype=dtype)
    found = matmul(x, weight, replace(PLAN, form=form), programs=5)
    assert found.dtype == dtype
    assert_near(found, x, weight)
    if dtype == torch.float32:
        near = ReferenceKernels(merged=False).linear(x.cpu(), weight.cpu())
        assert (found.cpu() - near).abs().max() < 1e-5 * k**0.5 * 4


@BOTH
@FORMS
def test_a_row_has_the_same_bits_among_any_number_of_rows(form: Form, dtype: torch.dtype) -> None:
    """Few rows (a program for each split, then the parts are added) and many (one program walks the splits)."""
    plan = replace(PLAN, form=form)
    x, weight = draw(150, 200, dtype=dtype), draw(48, 200, seed=1, dtype=dtype)
    every = matmul(x, weight, plan)
    for start, count in ((0, 1), (149, 1), (60, 17), (3, 64), (20, 65), (7, 130)):
        assert torch.equal(matmul(x[start : start + count], weight, plan, programs=3), every[start : start + count])
    for _, tile in TILES:
        for apart in (False, True):
            alone = replace(plan, tiles=((1 << 31, replace(tile, apart=apart)),))
            assert torch.equal(matmul(x, weight, alone), every)


@BOTH
@FORMS
def test_a_gate_has_the_bits_of_its_product_and_its_gate(form: Form, dtype: torch.dtype) -> None:
    """Both halves of one weight, ragged at the end of each, and a gate alone with a slice that it lets through."""
    plan = replace(WHOLE, form=form)
    x, weight = draw(90, 200, dtype=dtype), draw(2 * 72, 200, seed=1, dtype=dtype)
    wide = matmul(x, weight, plan)
    every = gated(x, weight, plan, programs=3)
    assert torch.equal(every, geglu(wide[:, :72], wide[:, 72:]))
    per_layer = draw(90, 3, 144, seed=2, dtype=dtype)
    through = gated(x, weight, plan, per_layer[:, 1], programs=3)
    assert torch.equal(through, geglu(wide, per_layer[:, 1]))
    for start, count in ((0, 1), (60, 17), (3, 64)):
        rows = slice(start, start + count)
        assert torch.equal(gated(x[rows], weight, plan), every[rows])
        assert torch.equal(gated(x[rows], weight, plan, per_layer[rows, 1]), through[rows])
    with pytest.raises(ValueError, match="one sum"):
        gated(x, weight, replace(plan, splits=2))
    with pytest.raises(ValueError, match="half of its columns"):
        gated(x, weight, replace(plan, tiles=((16, Tile(16, 64, 64, 4, 3, across=True)),)))


@BOTH
@FORMS
def test_gates_within_bounds(form: Form, dtype: torch.dtype) -> None:
    """As the vision tower has them: the bits of a product and the tower's gate behind it."""
    plan = replace(WHOLE, form=form)
    x, weight = draw(70, 96, dtype=dtype), draw(2 * 40, 96, seed=1, dtype=dtype) / 96**0.5
    clips = Clip(-0.5, 0.7), Clip(-0.4, math.inf), Clip(-0.1, 0.2)
    found = gated(x, weight, plan, clips=clips)
    assert torch.equal(found, TritonVision().gate(matmul(x, weight, plan), clips))
    for index in range(3):
        wider = tuple(Clip() if place == index else clip for place, clip in enumerate(clips))
        assert not torch.equal(found, gated(x, weight, plan, clips=wider))  # type: ignore[arg-type]


@BOTH
def test_parts_are_added_by_whoever_reads_the_product(dtype: torch.dtype) -> None:
    x, weight = draw(5, 328, dtype=dtype), draw(40, 328, seed=1, dtype=dtype)
    residual, norm = draw(5, 40, seed=2, dtype=dtype), draw(40, seed=3, dtype=dtype)
    parts = unfinished(x, weight, PLAN)
    assert (parts.shape, parts.dtype) == ((2, 5, 40), torch.float32)
    found = norm_add(residual, parts, norm, 1e-6, next_weight=norm)
    expected = norm_add(residual, matmul(x, weight, PLAN), norm, 1e-6, next_weight=norm)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))  # type: ignore[arg-type]
    assert unfinished(draw(70, 328, dtype=dtype), weight, PLAN).shape == (70, 40)


def test_both_forms_agree() -> None:
    x, weight = draw(70, 96, dtype=torch.bfloat16), draw(40, 96, seed=1, dtype=torch.bfloat16)
    if not ON_GPU:  # there the two may load into different instructions; the table then pins one
        assert torch.equal(matmul(x, weight, PLAN), matmul(x, weight, replace(PLAN, form="tma")))


def test_slices_of_wider_rows_and_float32_results() -> None:
    wide, weight = draw(9, 200, dtype=torch.bfloat16), draw(40, 64, seed=1, dtype=torch.bfloat16)
    x = wide[:, 100:164]
    for form in FORM_NAMES:
        found = matmul(x, weight, replace(PLAN, form=form), out_dtype=torch.float32)
        assert found.dtype == torch.float32
        assert_near(found, x, weight)
    with pytest.raises(ValueError, match="contiguous along K"):
        matmul(weight.T, wide[:, :40], PLAN)


def test_what_lies_past_the_rows_stays_out() -> None:
    """A bucket's spare rows hold NaN: they are computed, and nothing of them reaches another row."""
    x, weight = draw(5, 96), draw(40, 96, seed=1)
    padded = torch.cat((x, torch.full((20, 96), torch.nan, device=DEVICE)))
    assert torch.equal(matmul(padded, weight, PLAN)[:5], matmul(x, weight, PLAN))


def test_the_plan_of_a_shape_fixes_its_splits() -> None:
    plan = default_plan(2560, 10240, form="tma")
    assert plan.splits == 4
    assert plan.split_k(10240) * plan.splits >= 10240
    assert plan.split_k(10240) % 128 == 0
    assert default_plan(2560, 10240, form="tma", whole=True).splits == 1
    assert default_plan(262144, 2560, form="tma").splits == 1
    assert plan_for("some other device", 2560, 10240).form == "plain"
    assert plan_for(H200, 123, 456).form == "tma"
    assert len(fingerprint()) == 64
    for tile in ((32, 64, 64, 4, 3), (16, 32, 64, 4, 3, "no", False, True)):
        with pytest.raises(ValueError, match="64 rows at least"):
            Tile(*tile)
    with pytest.raises(ValueError, match="16 rows at least"):
        Tile(8, 64, 64, 4, 3, across=True)
    with pytest.raises(ValueError, match="does not divide"):
        Tile(64, 64, 96, 4, 3)


def test_a_tile_is_found_for_every_number_of_rows() -> None:
    across, few, many = (tile for _, tile in TILES)
    assert [PLAN.tile(rows) for rows in (1, 16, 17, 64, 65, 1 << 40)] == [across, across, few, few, many, many]
    for plan in TABLE.values():
        most = [rows for rows, _ in plan.tiles]
        assert most == sorted(most)
