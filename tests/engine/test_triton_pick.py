"""Picking tokens, in Triton's interpreter on the CPU and compiled where there is a GPU.

Tolerance: float32 sums of K products and of V exponentials, 1e-5 x sqrt(K) on a logit and as much on the sum.
"""

from __future__ import annotations

import pytest
import torch

from tests.engine.interpreter import DEVICE

pytest.importorskip("triton")

# isort: split
from photocall_engine.kernels.fp8 import Fp8Weight
from photocall_engine.kernels.matmul_plan import Form
from photocall_engine.kernels.reference import ROW_TILE, ReferenceKernels
from photocall_engine.kernels.triton_pick import BLOCK_N, FEW, MANY, SOME, pick, tile_for

FORM_NAMES: tuple[Form, ...] = ("plain", "tma")
FORMS = pytest.mark.parametrize("form", FORM_NAMES)
K = 96


def drawn(rows: int, vocab: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Hidden, head and what may be said."""
    generator = torch.Generator().manual_seed(rows)
    hidden = torch.randn(rows, K, generator=generator).to(dtype)
    head = (torch.randn(vocab, K, generator=generator) * 4 / K**0.5).to(dtype)
    allowed = (torch.rand(vocab, generator=generator) > 0.1).to(torch.uint8)
    return hidden.to(DEVICE), head.to(DEVICE), allowed.to(DEVICE)


def whole_numbers(rows: int, vocab: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Hidden and head whose logits are the same in any order of adding: one in the first column of each row."""
    hidden, head = torch.zeros(rows, K), torch.zeros(vocab, K)
    hidden[:, 0] = 1.0
    return hidden.to(DEVICE), head.to(DEVICE)


@pytest.mark.parametrize("vocab", [7, 1000])
@pytest.mark.parametrize(("cap", "dtype"), [(None, torch.float32), (5.0, torch.bfloat16)])
@FORMS
def test_it_is_the_softmax_of_what_may_be_said(vocab: int, cap: float | None, dtype: torch.dtype, form: Form) -> None:
    hidden, head, allowed = drawn(3, vocab, dtype)
    token, logprob = pick(hidden, head, allowed, cap, form=form, processors=2)
    logits = hidden.double() @ head.double().T
    capped = logits if cap is None else cap * torch.tanh(logits / cap)
    said = capped.masked_fill(~allowed.bool(), -torch.inf)
    assert token.tolist() == said.argmax(1).tolist()
    assert torch.allclose(logprob.double(), said.log_softmax(1).amax(1), rtol=0, atol=2e-5 * K**0.5)


def test_it_means_what_the_reference_means() -> None:
    hidden, head, allowed = drawn(ROW_TILE, 300)
    for weight in (head, _in_8_bits(head)):
        token, logprob = pick(hidden, weight, allowed, 5.0, form="plain")
        other, same = ReferenceKernels().pick(hidden.cpu(), _on_host(weight), allowed.cpu(), 5.0)
        assert token.tolist() == other.tolist()
        assert torch.allclose(logprob.cpu(), same, rtol=0, atol=2e-5 * K**0.5)


@FORMS
def test_equals_take_the_lowest_id_and_nothing_forbidden(form: Form) -> None:
    """In one tile, in two, and where the first of them is forbidden."""
    hidden, head = whole_numbers(3, 700)
    hidden[1, 1] = hidden[2, 2] = 1.0
    head[[5, 260, 699], 1] = 1.0
    head[[300, 301], 2] = 1.0
    allowed = torch.ones(700, dtype=torch.uint8, device=DEVICE)
    allowed[:6] = 0
    token, logprob = pick(hidden, head, allowed, None, form=form, processors=3)
    assert token.tolist() == [6, 260, 300]
    assert torch.allclose(logprob[:1].cpu(), -torch.log(torch.tensor(694.0)), atol=1e-6)


def test_what_is_forbidden_changes_no_bit() -> None:
    """Not even a NaN, nor a tile of which nothing is allowed."""
    hidden, head, allowed = drawn(2, 5 * BLOCK_N)
    allowed[BLOCK_N : 2 * BLOCK_N] = 0
    before = pick(hidden, head, allowed, 5.0, form="plain")
    head[~allowed.bool()] = torch.nan
    after = pick(hidden, head, allowed, 5.0, form="plain")
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])


@pytest.mark.parametrize(("form", "dtype"), [("plain", torch.float32), ("tma", torch.bfloat16)])
def test_a_row_has_one_result(form: Form, dtype: torch.dtype) -> None:
    """Alone, among few and many, at any place, whoever computes it, in tiles of every height."""
    hidden, head, allowed = drawn(130, 200, dtype)
    token, logprob = pick(hidden, head, allowed, None, form=form)
    assert [tile_for(n) for n in (1, 64, 65, 128, 129, 300)] == [FEW, FEW, SOME, SOME, MANY, MANY]
    for start, count, tile in ((0, 1, None), (129, 1, None), (63, 2, FEW), (66, 64, None), (3, 65, SOME), (9, 9, MANY)):
        part = slice(start, start + count)
        found = pick(hidden[part], head, allowed, None, form=form, processors=1, tile=tile)
        assert torch.equal(found[0], token[part])
        assert torch.equal(found[1], logprob[part])


def test_nan_is_not_passed_over() -> None:
    hidden, head, allowed = drawn(2, 300)
    allowed[:] = 1
    hidden[:, 0] = torch.tensor([1.0, 0.0])
    head[250, 0] = torch.nan
    head[:250, 0] = 0.0
    token, logprob = pick(hidden, head, allowed, None, form="plain")
    assert torch.isnan(logprob).all()  # NaN x 0 is NaN too
    assert ((token >= 0) & (token < 300)).all()
    allowed[250] = 0
    assert torch.isfinite(pick(hidden, head, allowed, None, form="plain")[1]).all()


def test_no_rows_are_no_work() -> None:
    hidden, head, allowed = drawn(1, 300)
    token, logprob = pick(hidden[:0], head, allowed, None, form="tma")
    assert (len(token), len(logprob)) == (0, 0)


def _in_8_bits(head: torch.Tensor) -> Fp8Weight:
    weight = Fp8Weight.empty(head.shape, head.device)
    weight.put(0, head)
    return weight


def _on_host(weight: torch.Tensor | Fp8Weight) -> torch.Tensor:
    return weight.dequantised().cpu() if isinstance(weight, Fp8Weight) else weight.cpu()
