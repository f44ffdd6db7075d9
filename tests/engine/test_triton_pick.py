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
    never = (torch.rand(vocab, generator=generator) < 0.1).to(torch.uint8)
    return logits.to(DEVICE), never.to(DEVICE)


@pytest.mark.parametrize("vocab", [7, 2048, 5000])
def test_it_is_the_softmax_of_what_may_be_said(vocab: int) -> None:
    logits, never = drawn(3, vocab)
    token, logprob = pick(logits, never)
    allowed = logits.double().masked_fill(never.bool(), -torch.inf)
    expected = allowed.log_softmax(1)
    assert token.tolist() == allowed.argmax(1).tolist()
    assert torch.allclose(logprob.double(), expected.amax(1), rtol=0, atol=1e-5)  # float32 sums of thousands


def test_equals_take_the_lowest_id_and_nothing_forbidden() -> None:
    logits = torch.zeros(2, 4100, device=DEVICE)
    logits[1, [3, 2050, 4099]] = 1.0
    never = torch.zeros(4100, dtype=torch.uint8, device=DEVICE)
    never[:4] = 1
    assert pick(logits, never)[0].tolist() == [4, 2050]


def test_a_block_of_forbidden_ids_changes_no_bit() -> None:
    logits, never = drawn(1, 4096)
    never[:2048] = 1
    behind = pick(logits[:, 2048:].contiguous(), never[2048:].contiguous())
    both = pick(logits, never)
    assert both[0].item() == behind[0].item() + 2048
    assert torch.equal(both[1], behind[1])


def test_a_row_has_one_result() -> None:
    logits, never = drawn(5, 3000)
    token, logprob = pick(logits, never)
    for row in range(5):
        alone = pick(logits[row : row + 1], never)
        assert torch.equal(alone[0][0], token[row])
        assert torch.equal(alone[1][0], logprob[row])


def test_nan_is_not_passed_over() -> None:
    logits, never = drawn(2, 3000)
    never[:] = 0
    logits[0, 2500] = np.nan
    logprob = pick(logits, never)[1]
    assert torch.isnan(logprob).tolist() == [True, False]
