"""Triton's matrix products against the reference, and the bits of a row for every number of rows around it.

Tolerance: operands are what they are, sums are float32, so against a product in float64 what remains is the rounding of
the sum (K additions of terms of size 1: 1e-5 x sqrt(K) is generous) and, for bfloat16 results, 2^-8 of the value.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.engine.interpreter import DEVICE, ON_GPU

# isort: split
from photocall_engine.kernels.matmul_table import H200, Form, MatmulPlan, Tile, default_plan, fingerprint, plan_for
from photocall_engine.kernels.reference import ReferenceKernels
from photocall_engine.kernels.triton_matmul import matmul

PLAN = MatmulPlan("plain", 32, 3, few=Tile(64, 32, 4, 3), many=Tile(128, 64, 4, 3), few_rows=64)
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
    apart = matmul(x, weight, replace(plan, few_rows=1000))
    assert torch.equal(apart, every)


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


def test_the_plan_of_a_shape_never_asks_for_the_rows() -> None:
    plan = plan_for(H200, 2560, 10240)
    assert plan == default_plan(2560, 10240, form="tma")
    assert plan.splits == 3
    assert plan.blocks_per_split(10240) * plan.block_k * plan.splits >= 10240
    assert plan_for("some other device", 2560, 10240).form == "plain"
    assert default_plan(262144, 2560, form="tma").splits == 1
    assert len(fingerprint()) == 16
    with pytest.raises(ValueError, match="at least 64 rows"):
        Tile(32, 64, 4, 3)
