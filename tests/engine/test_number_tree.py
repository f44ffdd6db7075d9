from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from photocall.questions import Number
from photocall_engine.number_tree import MAX_NODES, NEGLIGIBLE, NumberReader
from photocall_engine.readout import Path
from photocall_engine.tokenizer import ChatTokenizer

Model = Callable[[str], dict[str, float]]  # the text so far -> probabilities of characters, "" for the end


def ask(tokenizer: ChatTokenizer, model: Model, temperature: float = 1.0, **limits: Any) -> tuple[NumberReader, int]:
    """Run a reader on a model of text; returns it and how many beginnings it read."""
    reader = NumberReader(Number("n", "How many?", **limits), tokenizer, temperature)
    chars = {tokenizer.single(char): char for char in "-.0123456789"}
    wants, read = reader.begin(), 0
    while wants:
        want, read = wants.pop(), read + 1
        logits = np.full(tokenizer.vocab_size, -30.0, dtype=np.float32)
        logits[tokenizer.single("x")] = 5.0  # what is no number never counts
        for char, p in model("".join(chars[token] for token in want.path)).items():
            logits[tokenizer.single(char) if char else tokenizer.end] = math.log(p)
        wants += reader.take(want.path, logits)
    assert reader.answer is not None
    return reader, read


def counts(text: str) -> dict[str, float]:
    """2 with 0.9, 3 with 0.05, 1 with 0.03, 12 with 0.02."""
    return {"": {"2": 0.9, "3": 0.05, "1": 0.05}, "1": {"": 0.6, "2": 0.4}}.get(text, {"": 1.0})


def test_a_distribution_over_values(tokenizer: ChatTokenizer) -> None:
    reader, read = ask(tokenizer, counts, min=0, max=20, step=1)
    answer = reader.answer
    assert answer is not None
    assert answer["type"] == "number"
    assert answer["number"] == 2
    assert isinstance(answer["number"], int)
    assert answer["confidence"] == pytest.approx(0.9, abs=1e-4)
    assert answer["probabilities"]["12"] == pytest.approx(0.02, abs=1e-4)
    assert answer["expected"] == pytest.approx(1.8 + 0.15 + 0.03 + 0.24, abs=1e-3)
    assert [a["number"] for a in answer["alternatives"][:3]] == [3, 1, 12]
    assert answer["interval"] == [2, 3]  # 0.03 lies below 2, 0.02 above 3
    assert list(answer["probabilities"])[:4] == ["0", "1", "2", "3"]
    assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-6)
    assert reader.output_tokens == 1
    assert read == 3  # the question, "1" and "2"; nothing within 20 can follow the others


def test_one_digit_needs_one_reading(tokenizer: ChatTokenizer) -> None:
    reader, read = ask(tokenizer, counts, min=0, max=9, step=1)
    assert read == 1
    assert reader.answer is not None
    assert reader.answer["probabilities"]["1"] == pytest.approx(0.05, abs=1e-4)


def test_what_is_out_of_bounds_is_never_answered(tokenizer: ChatTokenizer) -> None:
    reader, _ = ask(tokenizer, counts, min=3, max=7, step=2)
    assert reader.answer is not None
    assert reader.answer["number"] == 3
    assert set(reader.answer["probabilities"]) == {"3", "5", "7"}


def test_decimals_and_signs(tokenizer: ChatTokenizer) -> None:
    def model(text: str) -> dict[str, float]:
        wanted = "-2.50"
        return {wanted[len(text) : len(text) + 1]: 1.0}

    reader, _ = ask(tokenizer, model)
    assert reader.answer is not None
    assert reader.answer["number"] == -2.5
    assert next(iter(reader.answer["probabilities"])) == "-2.5"
    assert reader.output_tokens == 5
    assert reader.answer["confidence"] == pytest.approx(1, abs=1e-3)


def test_one_value_written_twice_counts_once(tokenizer: ChatTokenizer) -> None:
    def model(text: str) -> dict[str, float]:
        if text == "2":
            return {"": 0.5, ".": 0.5}
        return {"": {"2": 1.0}, "2.": {"0": 1.0}}.get(text, {"": 1.0})

    reader, _ = ask(tokenizer, model)
    assert reader.answer is not None
    assert reader.answer["probabilities"]["2"] == pytest.approx(1, abs=1e-3)


def test_temperature_flattens_every_digit(tokenizer: ChatTokenizer) -> None:
    hot, _ = ask(tokenizer, lambda text: {"1": 0.8, "3": 0.2} | dict.fromkeys("0245", 1e-9), 2.0, min=0, max=5, step=1)
    assert hot.answer is not None
    assert hot.answer["confidence"] == pytest.approx(2 / 3, abs=1e-3)


def test_a_flat_model_stops_at_the_bound(tokenizer: ChatTokenizer) -> None:
    def flat(text: str) -> dict[str, float]:
        return dict.fromkeys(["", *"0123456789"], 1 / 11)

    reader, read = ask(tokenizer, flat, min=0, step=1)
    assert read <= MAX_NODES
    assert reader.answer is not None
    assert sum(reader.answer["probabilities"].values()) <= 1 + 1e-9


def test_a_model_that_never_ends_is_ended_by_the_grammar(tokenizer: ChatTokenizer) -> None:
    reader, _ = ask(tokenizer, lambda text: {"7": 1.0}, min=0, step=1)
    assert reader.answer is not None
    assert reader.answer["number"] == 777_777_777_777_777
    assert reader.answer["confidence"] > 1 - NEGLIGIBLE


def test_the_order_in_which_values_come_does_not_matter(tokenizer: ChatTokenizer) -> None:
    def model(text: str) -> dict[str, float]:
        chance = np.random.default_rng(abs(hash(text)) % 2**32)
        weights = chance.dirichlet(np.ones(11))
        return dict(zip(["", *"0123456789"], weights, strict=True))

    answers = []
    for order in (1, -1):
        reader = NumberReader(Number("n", "x", 0, 999, 1), tokenizer, 1.0)
        chars = {tokenizer.single(char): char for char in "0123456789"}
        wants = reader.begin()
        while wants:
            coming: list[Path] = [want.path for want in wants][::order]
            wants = []
            for path in coming:
                logits = np.full(tokenizer.vocab_size, -30.0, dtype=np.float32)
                for char, p in model("".join(chars[t] for t in path)).items():
                    logits[tokenizer.single(char) if char else tokenizer.end] = math.log(p)
                wants += reader.take(path, logits)
        answers.append(reader.answer)
    assert answers[0] == answers[1]


def test_probabilities_are_exact_where_everything_is_expanded(tokenizer: ChatTokenizer) -> None:
    """Against the product of conditional probabilities, restricted to 0..40."""

    def model(text: str) -> dict[str, float]:
        weights = np.random.default_rng(len(text) * 31 + sum(map(ord, text))).uniform(0.2, 1.0, 11)
        return dict(zip(["", *"0123456789"], weights / weights.sum(), strict=True))

    reader, _ = ask(tokenizer, model, min=0, max=40, step=1)
    assert reader.answer is not None
    expected: dict[Decimal, float] = {}
    first = {d: p for d, p in model("").items() if d}
    for digit, p in first.items():
        p /= sum(first.values())
        allowed = {d: q for d, q in model(digit).items() if not d or (digit != "0" and int(digit + d) <= 40)}
        for second, q in allowed.items():
            value = Decimal(digit + second)
            expected[value] = expected.get(value, 0) + p * q / sum(allowed.values())
    shown = {Decimal(text): p for text, p in reader.answer["probabilities"].items()}
    assert len(expected) == 41
    assert all(shown[value] == pytest.approx(expected[value], abs=1e-6) for value in shown)
