"""Orders of options: what is asked, what comes of it, and that the caller's order decides nothing."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from photocall.asking import Abstain, Asking, Order
from photocall.questions import Choice, Noul, Option, Score
from photocall_engine.branch import Branch, Sequence
from photocall_engine.inquiry import Inquiry
from photocall_engine.orders import MAX_ORDERS, as_given, averaged, in_order, orders_of, spread
from photocall_engine.prompt import question_pieces
from photocall_engine.readout import LetterReader
from photocall_engine.tokenizer import ChatTokenizer
from photocall_engine.window import BlockTable
from tests.engine.harness import Bench, bench, choice, picture

LETTER_IDS = tuple(range(100, 126))
DEBIAS = Asking("debias")
CONTENT = {"red": 1.0, "green": 0.7, "blue": -0.5, "other": 0.2, "none": -1.0}
BIAS = [2.0, 0.5, 0.0, -0.3, -1.7, 0.9]  # what the model thinks of each letter, whatever stands there


def debiased(*labels: str, order: Order = "debias", abstain: Abstain | None = None) -> Choice:
    return replace(choice("c", *labels), asking=Asking(order, abstain))


def told(question: Choice, table: BlockTable, slot: float = 0.0) -> Mapping[str, Any]:
    """The answer of a model with CONTENT and BIAS, and so many of its branches asked."""
    orders = orders_of(question)
    branches = []
    for i, order in enumerate(orders):
        asked = in_order(question, order)
        reader = LetterReader(asked, LETTER_IDS, 1.0, question.asking.abstain)
        branches.append(Branch(asked, reader, Sequence(None, (1,), (), table), i))
    inquiry = Inquiry(question, branches, orders)
    while inquiry.answer is None:
        branch = next(branch for branch in branches if branch.counts and not branch.done)
        assert isinstance(branch.question, Choice)
        logits = [CONTENT[o.label] + b for o, b in zip(branch.question.options, BIAS, strict=False)]
        if question.asking.cannot_tell:
            logits.append(slot)
        branch.reader.take((), np.asarray(logits, dtype=np.float32))
        inquiry.took()
    return {**inquiry.answer, "asked": sum(branch.counts for branch in branches)}


@pytest.fixture
def table(tokenizer: ChatTokenizer) -> BlockTable:
    return BlockTable(bench(tokenizer).engine.scheduler.pages, 0)


def test_a_planted_order_bias_is_gone_whatever_the_callers_order(table: BlockTable) -> None:
    weights = np.exp(list(CONTENT.values()))
    fair = dict(zip(CONTENT, weights / weights.sum(), strict=True))
    found = [told(debiased(*labels), table)["probabilities"] for labels in itertools.permutations(CONTENT)]
    assert all(probabilities == found[0] for probabilities in found), "bit by bit"
    assert found[0] == pytest.approx(fair, abs=1e-6)
    given = LetterReader(choice("c", "none", "red"), LETTER_IDS, 1.0)
    given.take((), np.asarray([CONTENT["none"] + BIAS[0], CONTENT["red"] + BIAS[1]], dtype=np.float32))
    assert given.answer is not None
    assert given.answer["probabilities"]["none"] > 0.37, "as given, the bias more than trebles it"


def test_the_spread_says_how_much_the_order_moved(table: BlockTable) -> None:
    answer = told(debiased("red", "none"), table)
    by_order = [1 / (1 + np.exp(-(2.0 + 1.5))), 1 / (1 + np.exp(-(2.0 - 1.5)))]
    assert answer["order_spread"] == pytest.approx(by_order[0] - by_order[1], abs=1e-6)
    assert told(debiased("red"), table)["order_spread"] == 0.0


def test_auto_asks_again_only_where_the_first_two_are_close(table: BlockTable) -> None:
    clear = told(debiased("none", "other", order="auto"), table)  # asked as 1.0 and 0.7, and then the other way round
    assert (clear["asked"], clear["choice"]) == (2, "other")
    sure = told(debiased("blue", "none", order="auto"), table)
    assert (sure["asked"], sure["order_spread"]) == (1, None)
    assert sure["probabilities"]["blue"] == pytest.approx(1 / (1 + np.exp(-(0.5 + 1.5))), abs=1e-6)


def test_a_slot_stays_behind_the_options_and_is_averaged_with_them(table: BlockTable) -> None:
    answer = told(debiased("red", "none", abstain=Abstain(cannot_tell=True)), table, slot=9.0)
    assert answer["answer_status"] == "abstained"
    assert answer["cannot_tell"] > 0.99
    assert answer["confidence"] == 0
    assert sum(answer["probabilities"].values()) == pytest.approx(1)


def test_every_option_stands_at_every_place_once() -> None:
    orders = orders_of(debiased(*CONTENT))
    assert len(orders) == 5
    for place in range(5):
        assert sorted(order[place] for order in orders) == [0, 1, 2, 3, 4]
    many = orders_of(Choice("c", "?", tuple(Option(f"o{i:03}") for i in range(200)), DEBIAS))
    assert len(many) == MAX_ORDERS
    assert [order[0] for order in many] == list(range(0, 200, 20))


def test_a_scale_is_asked_up_and_down_and_a_yes_no_with_its_sides_changed() -> None:
    up, down = orders_of(Score("s", "?", ("low", "mid", "high")))
    assert in_order(Score("s", "?", ("low", "mid", "high")), down) == Score("s", "?", ("high", "mid", "low"))
    assert as_given(down, [0.7, 0.2, 0.1, 0.0]) == [0.1, 0.2, 0.7, 0.0]
    assert as_given(up, [0.7, 0.2, 0.1]) == [0.7, 0.2, 0.1]
    question = Noul("n", "Is it?", "it is", None)
    first, second = (question_pieces(in_order(question, order), ()) for order in orders_of(question))
    assert first == question_pieces(question, ())
    assert second == ["\nIs it?\nA) no\nB) yes: it is\nAnswer with one letter."]


def test_what_was_impossible_once_is_impossible() -> None:
    assert averaged([[1.0, 0.0], [0.5, 0.5]]) == [1.0, 0.0]
    assert averaged([[1.0, 0.0], [0.0, 1.0]]) == [0.5, 0.5]
    assert spread([[1.0, 0.0], [0.0, 1.0]]) == 1.0


LABELS = ["cat", "dog", "cow", "hen"]


def answers(made: Bench, order: Order, labels: list[str], **fields: Any) -> dict[str, Any]:
    job = f"{order} {labels}"
    question = replace(choice("c", *labels), asking=Asking(order))
    made.ask(job, "see img", question, images={"img": picture(1)}, **fields)
    made.run()
    return made.body(job)


@pytest.mark.parametrize("order", ["debias", "auto"])
def test_through_the_engine_the_callers_order_decides_nothing(tokenizer: ChatTokenizer, order: Order) -> None:
    """The fake's logits are drawn anew for every prompt: no model depends more on the order."""
    made = bench(tokenizer, num_pages=512, sliding_pages=500)
    found = [answers(made, order, list(labels))["answers"]["c"] for labels in itertools.permutations(LABELS)]
    assert all(answer == found[0] | {"probabilities": answer["probabilities"]} for answer in found)
    assert all(answer["probabilities"] == found[0]["probabilities"] for answer in found)
    given = [answers(made, "as_given", list(labels))["answers"]["c"] for labels in itertools.permutations(LABELS)]
    assert len({answer["choice"] for answer in given}) > 1
    assert all("order_spread" not in answer for answer in given)


def test_other_orders_are_branches_of_the_same_forward(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=512, sliding_pages=500, token_budget=1024)
    given, debiased_ = (answers(made, order, LABELS)["usage"] for order in ("as_given", "debias"))
    assert debiased_["steps"] == given["steps"]
    assert debiased_["prompt_rows"] < 4 * given["prompt_rows"]


def test_two_letters_and_untrained_types_have_orders_too(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=2048, sliding_pages=2000, token_budget=2048)
    labels = [f"o{i}" for i in range(60)]
    first, second = (answers(made, "debias", asked)["answers"]["c"] for asked in (labels, labels[::-1]))
    assert first["probabilities"] == second["probabilities"]
    assert sum(first["probabilities"].values()) == pytest.approx(1, abs=1e-6)
