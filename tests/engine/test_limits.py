from __future__ import annotations

from typing import Any

import pytest

from photocall_engine.fake_runner import FakeRunner
from photocall_engine.limits import Limits
from photocall_engine.window import sliding_pages_during


def limits(token_budget: int = 512, **sizes: Any) -> Limits:
    return Limits.of(FakeRunner(vocab_size=10, **sizes), token_budget, 8)


def test_a_chunk_leaves_room_for_its_window_and_two_tails() -> None:
    made = limits(sliding_pages=20, sliding_window=64)
    assert made.max_chunk == 208
    assert sliding_pages_during(64, made.max_chunk) + 2 <= 20
    assert limits(sliding_pages=200).max_chunk == 512
    assert limits(sliding_pages=0).max_chunk == 512


def test_the_longest_sequence_fits_both_context_and_pool() -> None:
    assert limits(num_pages=20).max_tokens == 17 * 16
    assert limits(num_pages=1000, context=500).max_tokens == 500


def test_budget_is_within_the_runners_rows() -> None:
    assert limits(token_budget=4000, max_rows=300).token_budget == 300


def test_without_sliding_layers_nothing_is_bidirectional() -> None:
    assert limits(sliding_pages=20).bidirectional
    assert not limits(sliding_pages=0).bidirectional


@pytest.mark.parametrize("sizes", [{"num_pages": 3}, {"sliding_pages": 7, "sliding_window": 64}])
def test_pools_too_small_for_anything_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="no room for a request"):
        limits(**sizes)
