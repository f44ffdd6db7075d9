"""Greedy choice: what may be said, ties, and the probability of what was said."""

from __future__ import annotations

import math

import numpy as np
import pytest

from photocall_engine.greedy import pick_rows
from photocall_engine.tokenizer import ChatTokenizer


def test_control_tokens_and_ids_beyond_the_tokenizer_are_never_said(tokenizer: ChatTokenizer) -> None:
    logits = np.full((1, tokenizer.vocab_size + 8), -2.0, dtype=np.float32)
    logits[0, [0, tokenizer.image, tokenizer.vocab_size + 3]] = 9.0
    logits[0, 70] = 3.0
    token, logprob = pick_rows(logits, tokenizer.sayable())
    others = tokenizer.vocab_size - len(tokenizer.special)  # allowed tokens beside the one said, the end among them
    assert token.tolist() == [70]
    assert logprob[0] == pytest.approx(-math.log(1 + others * math.exp(-5)), rel=1e-6)


def test_the_end_of_the_turn_may_be_said_and_is_the_lowest_of_equals(tokenizer: ChatTokenizer) -> None:
    token, _ = pick_rows(np.zeros((2, tokenizer.vocab_size), dtype=np.float32), tokenizer.sayable())
    assert token.tolist() == [tokenizer.end, tokenizer.end]


def test_nan_is_not_passed_over() -> None:
    logits = np.zeros((2, 9), dtype=np.float32)
    logits[0, 4] = np.nan
    _, logprob = pick_rows(logits, np.ones(9, dtype=np.bool_))
    assert np.isnan(logprob).tolist() == [True, False]
