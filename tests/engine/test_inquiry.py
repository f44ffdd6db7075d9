"""Follow-up questions: asked when they apply, and said not to have been asked when they do not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from photocall.answers import not_asked
from photocall.asking import After, Asking
from photocall.questions import Noul, Number, Question, Score, Text
from photocall_engine.inquiry import equals
from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.harness import Bench, bench, choice
from tests.engine.test_composer import by_question

LABELS = ("red", "green", "blue")


def follow(question: Question, name: str, wanted: bool | float | str) -> Question:
    return replace(question, asking=Asking(after=After(name, wanted)))


def ask(made: Bench, *questions: Question, job: str = "job") -> dict[str, Any]:
    made.ask(job, "x", *questions)
    made.run()
    return made.body(job)


def test_a_follow_up_is_asked_when_it_applies_and_answered_as_if_alone(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=512, sliding_pages=500)
    first, then = choice("c", *LABELS), Text("t", "Which red?", 5)
    alone = ask(made, first, then, job="alone")
    for label in LABELS:
        body = ask(made, follow(then, "c", label), first, job=label)
        assert list(body["answers"]) == ["t", "c"]
        assert body["answers"]["c"] == alone["answers"]["c"]
        if label == alone["answers"]["c"]["choice"]:
            assert body["answers"]["t"] == alone["answers"]["t"]
            assert body["usage"]["input_tokens"] == alone["usage"]["input_tokens"]
            assert body["usage"]["steps"] > alone["usage"]["steps"]
        else:
            assert body["answers"]["t"] == not_asked("c")
            assert body["usage"]["input_tokens"] < alone["usage"]["input_tokens"]
            assert body["usage"]["output_tokens"] == 1


def test_a_chain_ends_where_one_is_not_asked(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=512, sliding_pages=500)
    yes = ask(made, Noul("a", "Is it?"), job="first")["answers"]["a"]["noul"] >= 0.5
    chain = (
        follow(Score("c", "How?", ("low", "high")), "b", True),
        follow(Noul("b", "So?"), "a", not yes),
        Noul("a", "Is it?"),
    )
    body = ask(made, *chain)
    assert body["answers"]["b"] == not_asked("a")
    assert body["answers"]["c"] == not_asked("b")
    assert made.events[-1][2] == {"answered": 3, "questions": 3}


def test_in_several_orders_and_with_several_followers(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=1024, sliding_pages=1000)
    first = choice("c", *LABELS)
    found = ask(made, first, job="first")["answers"]["c"]["choice"]
    for order in ("debias", "auto"):
        asking = Asking(order, after=After("c", found))
        many = tuple(replace(choice(f"q{i}", *LABELS, str(i)), asking=asking) for i in range(12))
        apart = tuple(replace(question, asking=Asking(order)) for question in many)
        body = ask(made, *many, first, job=order)
        assert body["answers"] == ask(made, *apart, first, job=f"{order} apart")["answers"]


def test_where_the_first_cannot_be_answered_the_second_is_not_asked(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    impossible = Number("n", "How big?", step=1e-14)
    made.incoming = [by_question(made.ask("job", "x", impossible, follow(Noul("b", "So?"), "n", 3.0), Noul("c", "?")))]
    made.run()
    answers = made.body("job")["answers"]
    assert answers["n"]["code"] == "unanswerable"
    assert answers["b"] == not_asked("n")
    assert answers["c"]["type"] == "noul"


def test_only_followers_of_what_cannot_be_answered(tokenizer: ChatTokenizer) -> None:
    """Nothing is left to run, and the request must still end."""
    made = bench(tokenizer)
    impossible = Number("n", "How big?", step=1e-14)
    made.incoming = [by_question(made.ask("job", "x", impossible, follow(Noul("b", "So?"), "n", 3.0)))]
    made.run()
    outcome = made.outcomes["job"]
    assert getattr(outcome, "code", None) == "unanswerable"


def test_a_preempted_request_still_asks_its_follow_ups(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=512, sliding_pages=500)
    first = choice("c", *LABELS)
    found = ask(made, first, job="first")["answers"]["c"]["choice"]
    questions = (first, follow(Text("t", "Which?", 6), "c", found))
    alone = ask(made, *questions, job="alone")["answers"]
    made.ask("job", "x", *questions)
    for _ in range(2):
        made.step()
    scheduler = made.engine.scheduler
    [request] = scheduler.running
    scheduler._preempt(request, None)
    scheduler.cache.clear()
    made.run()
    assert made.body("job")["answers"] == alone


@pytest.mark.parametrize(
    ("answer", "wanted", "is_it"),
    [
        ({"type": "noul", "noul": 0.5}, True, True),
        ({"type": "noul", "noul": 0.4}, True, False),
        ({"type": "noul", "noul": 0.4}, False, True),
        ({"type": "score", "probabilities": {"0": 0.4, "1": 0.4, "2": 0.2}}, 0.0, True),
        ({"type": "score", "probabilities": {"0": 0.4, "1": 0.4, "2": 0.2}}, 1.0, False),
        ({"type": "number", "number": 3}, 3.0, True),
        ({"type": "text", "text": "a"}, "b", False),
        ({"type": "choice", "choice": "a"}, "a", True),
        ({"type": "choice", "choice": "a", "answer_status": "abstained"}, "a", False),
        ({"type": "choice", "choice": "a", "answer_status": "untrained"}, "a", True),
    ],
)
def test_what_equals_what(answer: dict[str, Any], wanted: bool | float | str, is_it: bool) -> None:
    assert equals(answer, wanted) is is_it
