"""How questions are asked: what is taken, what is refused and where, and that a plain question is stored as ever."""

from __future__ import annotations

import json
from typing import Any

import pytest

from photocall.asking import PLAIN, Abstain, After, Asking
from photocall.asks import Ask
from photocall.invalid import InvalidField
from photocall.question_parsing import parse_questions
from photocall.questions import MAX_ONE_OF_CHARS, MAX_PATTERN_CHARS, MAX_PATTERNS, Question, Text

EVERY: dict[str, Any] = {
    "c": {"type": "choice", "instructions": "?", "criteria": ["a", "b"]},
    "n": {"type": "noul", "instructions": "?"},
    "s": {"type": "score", "instructions": "?", "criteria": ["low", "high"]},
    "k": {"type": "number", "instructions": "?"},
    "t": {"type": "text", "instructions": "?"},
    "o": {"type": "text", "instructions": "?", "one_of": ["x", "y"]},
    "b": {"type": "box"},
}


def parse(default: Asking = PLAIN, /, **changes: Any) -> dict[str, Question]:
    """All questions, some with more fields."""
    raw = {name: fields | changes.get(name, {}) for name, fields in EVERY.items()}
    return {question.name: question for question in parse_questions(raw, default)}


def test_each_says_how_it_is_asked() -> None:
    found = parse(
        c={"order": "debias", "abstain": True},
        n={"order": "auto", "abstain": {"label_mass": 1}},
        t={"abstain": True, "after": {"question": "n", "equals": True}},
        o={"abstain": {"cannot_tell": True, "label_mass": 0.25}},
        b={"after": {"question": "k", "equals": 3}},
    )
    assert found["c"].asking == Asking("debias", Abstain(cannot_tell=True))
    assert found["n"].asking == Asking("auto", Abstain(label_mass=1.0))
    assert found["t"].asking == Asking(abstain=Abstain(cannot_tell=True), after=After("n", True))
    assert found["o"].asking == Asking(abstain=Abstain(True, 0.25))
    assert found["b"].asking == Asking(after=After("k", 3.0))
    assert found["s"].asking == Asking()


def test_what_holds_for_all_holds_where_it_means_anything_and_gives_way() -> None:
    found = parse(Asking("debias", Abstain(label_mass=0.5)), c={"order": "as_given", "abstain": False})
    assert found["c"].asking == Asking()
    assert found["n"].asking == found["s"].asking == Asking("debias", Abstain(label_mass=0.5))
    assert found["k"].asking == found["o"].asking == found["b"].asking == Asking(abstain=Abstain(label_mass=0.5))
    assert found["t"].asking == Asking(), "a free text has no labels"


@pytest.mark.parametrize(
    ("name", "fields", "field"),
    [
        ("c", {"order": "random"}, ("order",)),
        ("c", {"order": ["debias"]}, ("order",)),
        ("k", {"order": "debias"}, ("order",)),
        ("c", {"abstain": "yes"}, ("abstain",)),
        ("c", {"abstain": {"floor": 0.5}}, ("abstain", "floor")),
        ("c", {"abstain": {"cannot_tell": 1}}, ("abstain", "cannot_tell")),
        ("c", {"abstain": {"label_mass": 1.5}}, ("abstain", "label_mass")),
        ("c", {"abstain": {"label_mass": True}}, ("abstain", "label_mass")),
        ("t", {"abstain": {"label_mass": 0.5}}, ("abstain", "label_mass")),
        ("c", {"after": "n"}, ("after",)),
        ("c", {"after": {"question": "n"}}, ("after", "equals")),
        ("c", {"after": {"equals": True}}, ("after", "question")),
        ("c", {"after": {"question": 1, "equals": True}}, ("after", "question")),
        ("c", {"after": {"question": "n", "equals": [True]}}, ("after", "equals")),
        ("c", {"after": {"question": "z", "equals": True}}, ("after", "question")),
        ("c", {"after": {"question": "c", "equals": "a"}}, ("after", "question")),
        ("n", {"after": {"question": "c", "equals": "z"}}, ("after", "equals")),
        ("c", {"after": {"question": "n", "equals": "true"}}, ("after", "equals")),
        ("c", {"after": {"question": "s", "equals": 2}}, ("after", "equals")),
        ("c", {"after": {"question": "s", "equals": 0.5}}, ("after", "equals")),
        ("c", {"after": {"question": "s", "equals": True}}, ("after", "equals")),
        ("c", {"after": {"question": "k", "equals": "3"}}, ("after", "equals")),
        ("c", {"after": {"question": "o", "equals": "z"}}, ("after", "equals")),
        ("c", {"after": {"question": "b", "equals": 1}}, ("after", "equals")),
        ("t", {"one_of": []}, ("one_of",)),
        ("t", {"one_of": "x"}, ("one_of",)),
        ("t", {"one_of": ["x", ""]}, ("one_of", 1)),
        ("t", {"one_of": ["x", "x"]}, ("one_of", 1)),
        ("t", {"one_of": ["x" * (MAX_ONE_OF_CHARS + 1)]}, ("one_of",)),
        ("t", {"one_of": ["x"], "pattern": "x"}, ("pattern",)),
        ("t", {"pattern": ""}, ("pattern",)),
        ("t", {"pattern": 5}, ("pattern",)),
        ("t", {"pattern": "x" * (MAX_PATTERN_CHARS + 1)}, ("pattern",)),
    ],
)
def test_a_field_that_cannot_be_taken_is_named(name: str, fields: dict[str, Any], field: tuple[str | int, ...]) -> None:
    with pytest.raises(InvalidField) as caught:
        parse(**{name: fields})
    assert caught.value.loc == ("questions", name, EVERY[name]["type"], *field)


def test_a_circle_is_refused_and_a_long_chain_is_not() -> None:
    circle = {"c": ("n", True), "n": ("s", 1), "s": ("c", "a")}
    fields = {name: {"after": {"question": q, "equals": equals}} for name, (q, equals) in circle.items()}
    with pytest.raises(InvalidField, match="circle") as caught:
        parse(**fields)
    assert caught.value.type == "circular"
    after = [{"after": {"question": f"q{i - 1}", "equals": True}} if i else {} for i in range(1000)]
    chain = {f"q{i}": EVERY["n"] | after[i] for i in range(1000)}
    assert len(parse_questions(dict(reversed(chain.items())))) == 1000


def test_patterns_are_counted() -> None:
    many = {f"q{i}": EVERY["t"] | {"pattern": "x"} for i in range(MAX_PATTERNS + 1)}
    with pytest.raises(InvalidField, match="At most"):
        parse_questions(many)


def test_an_ask_keeps_all_of_it() -> None:
    questions = parse(
        c={"order": "debias", "abstain": {"cannot_tell": True, "label_mass": 0.5}},
        t={"pattern": "[a-z]+", "after": {"question": "c", "equals": "a"}},
        s={"after": {"question": "k", "equals": 3}},
    )
    ask = Ask(None, "x", tuple(questions.values()))
    assert Ask.from_content(ask.to_content()) == ask


def test_a_plain_ask_is_stored_as_ever() -> None:
    """Its length counts against a limit and its bytes make its hash: neither may change for what it does not use."""
    body = Ask(None, "x", (Text("t", "?"), *parse_questions({"n": EVERY["n"]}))).to_content()["body"]
    assert json.loads(body)["questions"] == [
        {"type": "text", "name": "t", "instructions": "?", "max_tokens": 32},
        {"type": "noul", "name": "n", "instructions": "?", "true": None, "false": None},
    ]
