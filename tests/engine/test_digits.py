from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photocall.questions import Number
from photocall_engine.digits import END, NoNumber, NumberGrammar, grammar_of


def written(grammar: NumberGrammar) -> list[str]:
    """Every text the grammar can finish, walking only what it says may follow."""
    found, open_texts = [], [""]
    while open_texts:
        text = open_texts.pop()
        following = grammar.following(text)
        assert following, f"{text!r} was allowed but leads nowhere"
        found += [text] * (END in following)
        open_texts += [text + char for char in following if char != END]
    return found


def grammar(**limits: Any) -> NumberGrammar:
    return NumberGrammar(Number("n", "How many?", **limits))


@pytest.mark.parametrize(
    ("limits", "values"),
    [
        ({"min": 0, "max": 12, "step": 1}, [str(i) for i in range(13)]),
        ({"min": 98, "max": 101, "step": 1}, ["98", "99", "100", "101"]),
        ({"min": -3, "max": 12, "step": 3}, ["-3", "0", "3", "6", "9", "12"]),
        ({"min": -101, "max": -98, "step": 1}, ["-101", "-100", "-99", "-98"]),
        ({"min": 7, "max": 7, "step": 1}, ["7"]),
        ({"min": 0.3, "max": 0.4, "step": 1}, ["0.3"]),
        ({"min": 0, "max": 1, "step": 0.25}, ["0", "0.0", "0.00", "0.25", "0.5", "0.50", "0.75", "1", "1.0", "1.00"]),
        ({"min": -0.5, "max": 0.5, "step": 0.5}, ["-0.5", "0", "0.0", "0.5"]),
        ({"min": 1000, "max": 3000, "step": 1000}, ["1000", "2000", "3000"]),
    ],
)
def test_exactly_the_numbers_on_the_grid_can_be_written(limits: dict[str, Any], values: list[str]) -> None:
    assert sorted(written(grammar(**limits))) == sorted(values)


@settings(max_examples=60, deadline=None)
@given(
    low=st.integers(-300, 300),
    span=st.integers(0, 300),
    step=st.sampled_from(["1", "2", "7", "0.5", "0.25", "10"]),
)
def test_random_grids(low: int, span: int, step: str) -> None:
    made = grammar(min=low, max=low + span, step=float(step))
    values = {Decimal(low) + k * Decimal(step) for k in range(int(Decimal(span) / Decimal(step)) + 1)}
    assert {Decimal(text) for text in written(made)} == values


def test_without_limits_any_number_may_start() -> None:
    made = grammar()
    assert set(made.following("")) == set("-0123456789")
    assert set(made.following("0")) == {END, "."}
    assert set(made.following("-")) == set("0123456789")
    assert set(made.following("-0")) == {"."}
    assert set(made.following("12.5")) == {END, *"0123456789"}
    assert made.following("1" * 15) == [END, "."]
    assert made.following("0.123456") == [END]


def test_a_whole_step_means_no_point() -> None:
    assert "." not in grammar(min=0, step=1).following("3")
    assert "." in grammar(min=0.5, step=1).following("3")
    assert "-" not in grammar(min=0).following("")
    assert "-" in grammar(max=5).following("")


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        ({"min": 1e16}, "at most 15 digits"),
        ({"step": 1e-13}, "at most 12 decimals"),
        ({"max": 2.5, "min": 2.5 + 1e-9, "step": 1}, "no number meets"),
    ],
)
def test_limits_that_nothing_meets(limits: dict[str, Any], said: str) -> None:
    with pytest.raises(NoNumber, match=said):
        grammar(**limits)


@pytest.mark.parametrize(
    "limits",
    [
        {"step": 5e14},  # a minus was allowed, but no number below zero has room: the reader found nothing behind it
        {"max": 0, "step": 999999999999999},
        {"step": 0.123456789012},  # finer than Decimal's 28 digits can divide
        {"min": -999999999999999, "step": 1e-12},
        {"max": -1e-9, "min": -1e14, "step": 3e-12},
        {"min": 0.1, "step": 1e14},
    ],
)
def test_what_may_follow_always_leads_to_a_number(limits: dict[str, Any]) -> None:
    made = grammar(**limits)
    for pick in range(12):  # the last, the one before it, ... of what may follow, down to an end
        text = ""
        while following := [char for char in made.following(text) if char != END]:
            text += following[-1 - min(pick, len(following) - 1)]
        assert made.following(text) == [END], text


def test_a_step_that_no_number_has_room_for_is_refused() -> None:
    with pytest.raises(NoNumber, match="15 digits"):
        grammar(step=1e300)


def test_questions_with_equal_limits_share_what_is_known() -> None:
    """A thousand number questions kept the engine busy for minutes with what it had found out for the first."""
    first = grammar_of(Number("a", "How many?", 0, 9, 1))
    assert grammar_of(Number("b", "How much?", 0.0, 9.0, 1.0, "kg")) is first
    assert grammar_of(Number("a", "How many?", 0, 8, 1)) is not first
    assert first.following("1") is first.following("1") == [END]
    for i in range(5000):  # bounded, and the same when forgotten
        first.following(f"0{i}")
    assert first.following("1") == [END]
