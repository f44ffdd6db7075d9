"""A caller's own calibration through the engine: what it corrects, what it leaves, and what follows from it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from photocall.asking import Abstain, After, Asking
from photocall.asks import Ask
from photocall.questions import Noul, Number, Question, Score
from photocall.recalibration import Correction, FittedFor, Recalibration
from photocall_engine.edges import Refused
from photocall_engine.prompt import PROMPT_VERSION
from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.harness import Bench, bench, choice

OWN = Recalibration({"n": Correction(1.5, 0.4)}, {"choice": Correction(3.0), "noul": Correction(2.0)})
QUESTIONS: tuple[Question, ...] = (
    choice("c", "red", "green", "blue"),
    Noul("n", "Is it?"),
    Noul("m", "Is it so?"),
    Score("s", "How?", ("low", "high")),
    Number("k", "How many?", 0, 9, 1),
)


def ask(made: Bench, job: str, *questions: Question, own: Recalibration | None) -> dict[str, Any]:
    request = made.ask(job, "x", *questions)
    made.incoming = [replace(request, ask=replace(request.ask, calibration=own))]
    made.run()
    return dict(made.body(job)["answers"])


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def test_what_it_names_is_corrected_and_the_rest_is_not(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=512, sliding_pages=500)
    plain, found = (ask(made, job, *QUESTIONS, own=own) for job, own in (("plain", None), ("own", OWN)))
    assert found["s"] == plain["s"]
    assert found["k"] == plain["k"]
    assert found["c"]["probabilities_raw"] == plain["c"]["probabilities"]
    weights = {label: p ** (1 / 3) for label, p in plain["c"]["probabilities"].items()}
    assert found["c"]["probabilities"] == pytest.approx({k: w / sum(weights.values()) for k, w in weights.items()})
    assert found["c"]["confidence"] < plain["c"]["confidence"]
    assert logit(found["n"]["noul"]) == pytest.approx(logit(plain["n"]["noul"]) / 1.5 + 0.4)
    assert logit(found["m"]["noul"]) == pytest.approx(logit(plain["m"]["noul"]) / 2)
    assert found["n"]["probabilities_raw"]["true"] == plain["n"]["noul"]
    assert {found[name]["calibration"] for name in "cnm"} == {OWN.id}
    assert "calibration" not in plain["c"]


def test_a_bias_is_of_yes_and_no_alone(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=512, sliding_pages=500)
    found = [
        ask(made, f"bias {bias}", choice("c", "a", "b"), own=Recalibration({"c": Correction(2.0, bias)}))
        for bias in (0.0, 3.0)
    ]
    assert found[0]["c"]["probabilities"] == found[1]["c"]["probabilities"]


def test_follow_ups_go_by_what_is_corrected_and_abstaining_stays(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=512, sliding_pages=500)
    silent = Noul("u", "Is it?", asking=Asking(abstain=Abstain(label_mass=1.0)))
    follow = Noul("f", "Then?", asking=Asking(after=After("n", True)))
    for name, bias in (("yes", 50.0), ("no", -50.0)):
        own = Recalibration({"n": Correction(1.0, bias)}, {"noul": Correction(2.0)})
        found = ask(made, name, Noul("n", "Is it?"), follow, silent, choice("c", "a", "b"), own=own)
        assert found["f"]["type"] == ("noul" if name == "yes" else "not_asked")
        assert found["u"]["answer_status"] == "abstained"


def test_an_ask_keeps_it_and_one_without_is_stored_as_ever() -> None:
    plain = Ask(None, "x", QUESTIONS)
    assert "calibration" not in plain.to_content()
    own = replace(plain, calibration=OWN)
    assert Ask.from_content(own.to_content()) == own


def test_one_that_was_fitted_for_another_model_is_refused(tokenizer: ChatTokenizer) -> None:
    """And for another prompt; where nobody said for which, or nothing of it concerns the questions, it is taken."""
    made = bench(tokenizer, num_pages=512, sliding_pages=500)
    here = FittedFor("", PROMPT_VERSION)  # the bench's engine
    others = {
        "here": here,
        "nobody said": None,
        "model": FittedFor("0" * 64, PROMPT_VERSION),
        "prompt": FittedFor("", "another"),
    }
    for job, fitted_for in others.items():
        asked = made.ask(job, "x", choice("c", "x", "y"))
        own = Recalibration({"c": Correction(2.0)}, fitted_for=fitted_for)
        made.incoming[-1] = replace(asked, ask=replace(asked.ask, calibration=own.for_questions({"c": "c"})))
    made.run()
    for job in ("here", "nobody said"):
        assert "calibration" in made.body(job)["answers"]["c"]
    for job in ("model", "prompt"):
        refused = made.outcomes[job]
        assert isinstance(refused, Refused)
        assert refused.code == "calibration_mismatch"
        assert "fit it again" in refused.message
