"""Picking tokens, in Triton's interpreter on the CPU and compiled where there is a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.engine.interpreter import DEVICE

pytest.importorskip("triton")

from photocall_engine.kernels.triton_pick import pick


def drawn(rows: int, vocab: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    logits = torch.randn(rows, vocab, generator=generator) * 4
    allowed = (torch.rand(vocab, generator=generator) > 0.1).to(torch.uint8)
    return logits.to(DEVICE), allowed.to(DEVICE)


@pytest.mark.parametrize("vocab", [7, 2048, 5000])
@pytest.mark.parametrize("cap", [None, 5.0])
def test_it_is_the_softmax_of_what_may_be_said(vocab: int, cap: float | None) -> None:
    logits, allowed = drawn(3, vocab)
    token, logprob = pick(logits, allowed, cap)
    capped = logits.double() if cap is None else cap * torch.tanh(logits.double() / cap)
    said = capped.masked_fill(~allowed.bool(), -torch.inf)
    expected = said.log_softmax(1)
    assert token.tolist() == said.argmax(1).tolist()
    assert torch.allclose(logprob.double(), expected.amax(1), rtol=0, atol=1e-5)  # float32 sums of thousands


def test_equals_take_the_lowest_id_and_nothing_forbidden() -> None:
    logits = torch.zeros(2, 4100, device=DEVICE)
    logits[1, [3, 2050, 4099]] = 1.0
    allowed = torch.ones(4100, dtype=torch.uint8, device=DEVICE)
    allowed[:4] = 0
    assert pick(logits, allowed, None)[0].tolist() == [4, 2050]


def test_a_block_of_forbidden_ids_changes_no_bit() -> None:
    logits, allowed = drawn(1, 4096)
    allowed[:2048] = 0
    behind = pick(logits[:, 2048:].contiguous(), allowed[2048:].contiguous(), None)
    both = pick(logits, allowed, None)
    assert both[0].item() == behind[0].item() + 2048
    assert torch.equal(both[1], behind[1])


def test_a_row_has_one_result() -> None:
    logits, allowed = drawn(5, 3000)
    token, logprob = pick(logits, allowed, None)
    for row in range(5):
        alone = pick(logits[row : row + 1], allowed, None)
        assert torch.equal(alone[0][0], token[row])
        assert torch.equal(alone[1][0], logprob[row])


def test_nan_is_not_passed_over() -> None:
    logits, allowed = drawn(2, 3000)
    allowed[:] = 1
    logits[0, 2500] = np.nan
    logprob = pick(logits, allowed, None)[1]
    assert torch.isnan(logprob).tolist() == [True, False]
