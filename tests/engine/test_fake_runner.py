"""The fake must notice what it is there to notice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from photocall_engine.fake_runner import SEED, FakeRunner, WrongHistory, chain, drawn_logits, soft_identities
from photocall_engine.reads import Reads
from photocall_engine.rows import PAGE_SIZE, Ints, RowBatch
from tests.engine.harness import picture


def ints(*values: int) -> Ints:
    return np.asarray(values, dtype=np.int32)


def prompt(tokens: list[int], pages: list[int], start: int = 0) -> RowBatch:
    """One sequence's rows from `start` on; its last row is read."""
    pos = np.arange(start, start + len(tokens), dtype=np.int32)
    return RowBatch(
        tokens=ints(*tokens),
        pos=pos,
        slot=ints(*pages)[pos // PAGE_SIZE] * PAGE_SIZE + pos % PAGE_SIZE,
        bt_off=np.zeros_like(pos),
        kv_hi=pos + 1,
        kv_hi_sliding=pos + 1,
        block_tables=ints(*pages),
        extra_row=ints(),
        extra_slot=ints(),
        soft_idx=np.full_like(pos, -1),
        read=ints(len(tokens) - 1),
        decode=False,
    )


def runner() -> FakeRunner:
    made = FakeRunner(vocab_size=50, num_pages=16, sliding_pages=15, sliding_window=20)
    made.set_sliding_map(ints(*range(1, 16)), ints(*range(1, 16)))
    return made


def history(tokens: list[int]) -> int:
    value = int(SEED)
    for token in tokens:
        value = chain(value, token)
    return value


def test_a_token_can_be_the_one_that_was_picked_last() -> None:
    made = runner()
    tokens = list(range(20))
    made.forward(prompt(tokens, [3, 9]))
    picked = made.collect(made.read(Reads(ints(), ints(), ints(0), ints()))).tokens
    made.forward(replace(prompt([0], [3, 9], start=20), from_row=ints(0), from_pick=ints(0)))
    assert np.array_equal(made.logits_rows(ints(0))[0], drawn_logits(history([*tokens, int(picked[0])]), 50))
    with pytest.raises(WrongHistory, match="none of those picked"):
        made.forward(replace(prompt([0], [3, 9], start=20), from_row=ints(0), from_pick=ints(1)))


def test_logits_depend_on_the_whole_history_and_on_nothing_else() -> None:
    made = runner()
    tokens = list(range(40))
    made.forward(prompt(tokens, [3, 9, 4]))
    [whole] = made.logits_rows(ints(0))
    assert np.array_equal(whole, drawn_logits(history(tokens), 50))
    made.forward(prompt(tokens[:30], [5, 6]))
    made.forward(prompt(tokens[30:], [5, 6, 7], start=30))
    assert np.array_equal(made.logits_rows(ints(0))[0], whole)
    made.forward(prompt([1, *tokens[1:]], [8, 10, 11]))
    assert not np.array_equal(made.logits_rows(ints(0))[0], whole)
    assert np.array_equal(made.letter_logits(ints(0), ints(7, 3)), made.logits_rows(ints(0))[:, [7, 3]])


def test_argmax_never_takes_an_excluded_token() -> None:
    made = runner()
    made.forward(prompt([1, 2], [1]))
    best = int(made.argmax_rows(ints(0), [[]])[0])
    assert best == int(made.logits_rows(ints(0))[0].argmax())
    assert int(made.argmax_rows(ints(0), [[best]])[0]) != best


def test_another_sequence_in_the_block_table_is_noticed() -> None:
    made = runner()
    made.forward(prompt(list(range(32)), [1, 2]))
    made.forward(prompt(list(range(100, 132)), [3, 4]))
    with pytest.raises(WrongHistory, match="of another sequence"):
        made.forward(prompt([7], [1, 4, 5], start=32))


def test_a_stale_page_is_noticed() -> None:
    made = runner()
    made.forward(prompt(list(range(32)), [1, 2]))
    with pytest.raises(WrongHistory, match="follows one that holds position"):
        made.forward(prompt([7], [1, 3, 5], start=32))


def test_an_unfilled_tail_is_noticed() -> None:
    made = runner()
    made.forward(prompt(list(range(20)), [1, 2]))
    with pytest.raises(WrongHistory):
        made.forward(prompt([7], [1, 3], start=20))
    made.copy_pages(ints(2), ints(3))
    made.forward(prompt([7], [1, 3], start=20))


def test_a_lost_sliding_page_is_noticed_inside_the_window_only() -> None:
    made = runner()
    made.forward(prompt(list(range(48)), [1, 2, 3]))
    made.set_sliding_map(ints(1), ints(0))
    made.forward(prompt([7], [1, 2, 3, 4], start=48))  # it sees positions 29 and up
    made.set_sliding_map(ints(2), ints(0))
    with pytest.raises(WrongHistory, match="no sliding page"):
        made.forward(prompt([8], [1, 2, 3, 4], start=49))


def test_a_sliding_page_that_others_have_written_is_noticed() -> None:
    made = runner()
    made.forward(prompt(list(range(32)), [1, 2]))
    made.set_sliding_map(ints(2), ints(0))
    made.set_sliding_map(ints(5), ints(2))
    made.forward(prompt([40, 41, 42], [5]))
    made.set_sliding_map(ints(5), ints(0))
    made.set_sliding_map(ints(2), ints(2))
    with pytest.raises(WrongHistory, match="sliding pool"):
        made.forward(prompt([7], [1, 2, 3], start=32))


def test_two_pages_on_one_sliding_page_are_noticed() -> None:
    made = runner()
    made.set_sliding_map(ints(1), ints(2))
    with pytest.raises(WrongHistory, match="share one sliding page"):
        made.forward(prompt([1], [1]))


def test_scratch_and_double_writes_are_noticed() -> None:
    made = runner()
    with pytest.raises(WrongHistory, match="scratch"):
        made.forward(prompt([1], [0]))
    with pytest.raises(WrongHistory, match="written twice"):
        made.forward(replace(prompt([1, 2], [1]), extra_row=ints(0), extra_slot=ints(17)))
    with pytest.raises(WrongHistory, match="scratch page"):
        made.copy_pages(ints(0), ints(3))
    with pytest.raises(WrongHistory, match="from and to"):
        made.copy_pages(ints(1, 2), ints(2, 3))


def test_a_row_written_elsewhere_than_it_is_read_is_noticed() -> None:
    made = runner()
    with pytest.raises(WrongHistory, match="not written where"):
        made.forward(replace(prompt([1, 2], [1]), slot=ints(16, 40)))


def test_soft_tokens_stand_for_their_picture() -> None:
    made = runner()
    image = picture(1, 3, 6)
    made.encode_images([image], [4])
    made.forward(replace(prompt([9, 7, 7], [1]), soft_idx=ints(-1, 4, 5)))
    assert np.array_equal(made.logits_rows(ints(0))[0], drawn_logits(history([9, *soft_identities(image)]), 50))
    assert soft_identities(picture(2, 3, 6)) != soft_identities(image)
