"""Questions as a program writes them: what each function sends is what the server's parser takes."""

from __future__ import annotations

from typing import Any

import pytest

from photocall import questions as asked
from photocall.client import box, choice, number, question_of, questions_of, score, text, yes_no
from photocall.client.questions import named
from photocall.question_parsing import parse_questions


def parsed(raw: Any) -> asked.Question:
    (question,) = parse_questions({"q": raw})
    return question


def test_the_server_takes_what_each_function_writes() -> None:
    found = parsed(choice("Which?", ["a", "b"]))
    assert isinstance(found, asked.Choice)
    assert [option.label for option in found.options] == ["a", "b"]
    found = parsed(choice("Which?", {"a": "the left one", "b": None}))
    assert isinstance(found, asked.Choice)
    assert found.options[0] == asked.Option("a", "the left one")
    assert parsed(yes_no("Is it?", no="it is not")) == asked.Noul("q", "Is it?", None, "it is not")
    assert parsed(score("How?", ["low", "high"])) == asked.Score("q", "How?", ("low", "high"))
    assert parsed(number("How many?", min=0, max=9, step=1, unit="kg")) == asked.Number("q", "How many?", 0, 9, 1, "kg")
    assert parsed(text("What?", one_of=["x", "y"])) == asked.Text("q", "What?", one_of=("x", "y"))
    assert parsed(text("What?", pattern="[A-Z]+", max_tokens=5)) == asked.Text("q", "What?", 5, pattern="[A-Z]+")
    assert parsed(box("Where is it?")) == asked.Box("q", "Where is it?")
    assert parsed(box()) == asked.Box("q", None)


def test_how_a_question_is_asked() -> None:
    damaged = yes_no("Is it?", order="debias", abstain=True)
    where = choice("Where?", ["left", "right"], after=("damaged", True), abstain={"label_mass": 0.5})
    assert where["after"] == {"question": "damaged", "equals": True}
    first, second = parse_questions({"damaged": damaged, "where": where})
    assert (first.asking.order, first.asking.cannot_tell) == ("debias", True)
    assert second.asking.after is not None
    assert second.asking.after.question == "damaged"


@pytest.mark.parametrize(
    ("line", "question"),
    [
        ("Is it damaged?", yes_no("Is it damaged?")),
        ("Is it damaged? -> yes/no", yes_no("Is it damaged?")),
        ("Which colour? -> red, dark green , blue", choice("Which colour?", ["red", "dark green", "blue"])),
        ("How full? -> empty < half < full", score("How full?", ["empty", "half", "full"])),
        ("How many?->number", number("How many?")),
        ("How many? -> number 0..20", number("How many?", min=0, max=20)),
        ("How heavy? -> number ..5.5 kg", number("How heavy?", max=5.5, unit="kg")),
        ("How cold? -> number -40.. degrees C", number("How cold?", min=-40, unit="degrees C")),
        ("How heavy? -> number kg", number("How heavy?", unit="kg")),
        ("What does A -> B mean? -> text", text("What does A -> B mean?")),
        ("Where is it? -> box", box("Where is it?")),
    ],
)
def test_a_line_is_short_for_a_question(line: str, question: dict[str, Any]) -> None:
    assert question_of(line) == question
    parsed(question)


@pytest.mark.parametrize(
    "line", ["Which? -> red", "Which? -> red,,blue", "-> red, blue", "", "How many? -> number x..y,"]
)
def test_a_line_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"expected|no question"):
        question_of(line)


def test_lines_with_names() -> None:
    found = questions_of("""
        # about the parcel
        damaged: Is the parcel damaged?
        which-side: Which side? -> left, right
        What does it say: a name or a number? -> text
    """)
    assert list(found) == ["damaged", "which-side", "q3"]
    assert found["q3"] == text("What does it say: a name or a number?")
    with pytest.raises(ValueError, match="twice"):
        questions_of("a: Is it?\na: Is it not?")
    with pytest.raises(ValueError, match="there is no question"):
        questions_of("# nothing\n")


def test_questions_by_name_one_alone_and_as_text() -> None:
    assert named(yes_no("Is it?")) == {"answer": yes_no("Is it?")}
    assert named("Is it?") == {"answer": yes_no("Is it?")}
    assert named({"type": "box"}) == {"answer": box()}
    assert named({"a": "Is it?", "b": box()}) == {"a": yes_no("Is it?"), "b": box()}
    assert named({"type": "Which type? -> a, b"}) == {"type": choice("Which type?", ["a", "b"])}, (
        "a name like any other"
    )
    for bad in (["Is it?"], {"a": 3}, 7):
        with pytest.raises(TypeError):
            named(bad)  # type: ignore[arg-type]
