"""Numbers against every way to write every number that is allowed, on a small real model."""

from __future__ import annotations

import itertools
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from photocall.questions import Number
from photocall_engine.number_tree import NEGLIGIBLE
from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.test_exact import Speller, answer
from tests.engine.test_exact import checkpoint as checkpoint
from tests.engine.test_number_tree import ask

WRITTEN = re.compile(r"-?(0|[1-9][0-9]?)(\.[0-9])?")


def writings(low: Decimal, high: Decimal, step: Decimal) -> list[str]:
    """Everything of up to four characters that is a number on the grid, found by trying them all."""
    texts = ("".join(chars) for size in range(1, 5) for chars in itertools.product("-.0123456789", repeat=size))
    numbers = [text for text in texts if WRITTEN.fullmatch(text) and not (text[0] == "-" and Decimal(text) == 0)]
    return [text for text in numbers if low <= Decimal(text) <= high and (Decimal(text) - low) % step == 0]


def test_every_number_has_the_probability_of_all_its_writings(checkpoint: Path) -> None:
    low, high, step = Decimal("-1.5"), Decimal(2), Decimal("0.5")
    found, asked, made = answer(checkpoint, Number("q", "How much?", float(low), float(high), float(step)))
    texts = writings(low, high, step)
    assert {"-1.5", "-1", "-1.0", "0", "0.0", "0.5", "2.0"} <= set(texts)
    tokens = {char: made.tokenizer.single(char) for char in "-.0123456789"} | {"": made.tokenizer.end}
    spelled = Speller(checkpoint, made, asked).spelled
    chances = {"": 1.0}
    whole: dict[Decimal, float] = {}
    for length in range(5):
        for text in [text for text in chances if len(text) == length]:
            follow = sorted({other[length : length + 1] for other in texts if other.startswith(text)})
            path = [tokens[char] for char in text]
            p = spelled(path, [tokens[c] for c in follow]) if len(follow) > 1 else [1.0]
            for char, chance in zip(follow, p, strict=True):
                if char:
                    chances[text + char] = chances[text] * float(chance)
                else:
                    value = Decimal(text).normalize() + 0
                    whole[value] = whole.get(value, 0.0) + chances[text] * float(chance)
    assert sum(whole.values()) == pytest.approx(1)
    got = {Decimal(text): p for text, p in found["probabilities"].items()}
    assert set(got) == set(whole) == {low + i * step for i in range(8)}
    # what stays unexpanded is at most NEGLIGIBLE, and is shared out over the rest
    assert all(got[value] == pytest.approx(p, abs=NEGLIGIBLE) for value, p in whole.items())
    assert found["number"] == float(max(whole, key=whole.__getitem__))
    assert found["expected"] == pytest.approx(sum(float(v) * p for v, p in whole.items()), abs=8 * NEGLIGIBLE)
    values = sorted(got)
    cumulative = np.cumsum([got[value] for value in values])
    assert found["interval"] == [float(values[int(np.searchsorted(cumulative, q))]) for q in (0.05, 0.95)]
    assert 0 < found["no_number"] < 1


def test_what_is_no_number_is_reported(tokenizer: ChatTokenizer) -> None:
    """By the reader's own model in these tests: "x" has e^5, the two digits that may come 0.9 and 0.1 of e^0."""
    reader, _ = ask(tokenizer, lambda text: {"2": 0.9, "3": 0.1} if not text else {"": 1.0}, min=0, max=9, step=1)
    assert reader.answer is not None
    assert reader.answer["no_number"] == pytest.approx(np.exp(5) / (1 + np.exp(5)), abs=1e-6)
