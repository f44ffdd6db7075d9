"""Fitting a calibration: what was planted is found, held-out figures get better, too little is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from photocall.calibrating import Labelled, TooLittle, bins, corrected, fit, report
from photocall.calibration_object import calibration_object
from photocall.cli import main
from photocall.invalid import InvalidField
from photocall.recalibration import Correction, FittedFor, Recalibration, parse_recalibration


def rows(count: int, options: int, temperature: float, bias: float = 0.0, seed: int = 1) -> list[Labelled]:
    """Answers of a model that is `temperature` times too sure of itself, and too fond of the first of two."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        true = rng.dirichlet(np.full(options, 0.7))
        logs = np.log(np.maximum(true, 1e-9)) * temperature
        logs[0] += bias
        said = np.exp(logs - logs.max())
        made.append(Labelled(tuple(said / said.sum()), int(rng.choice(options, p=true))))
    return made


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_a_planted_temperature_is_found(temperature: float) -> None:
    found = fit(rows(1500, 4, temperature), yes_no=False)
    assert found.correction is not None
    assert found.correction.temperature == pytest.approx(temperature, rel=0.15)
    assert found.correction.bias == 0
    assert found.after.nll < found.before.nll
    assert found.after.brier < found.before.brier
    assert found.after.ece < found.before.ece / 2
    assert found.after.accuracy == found.before.accuracy, "a temperature changes no answer"
    assert sum(one.count for one in found.bins_after) == 1500


def test_a_planted_bias_is_found() -> None:
    found = fit(rows(1500, 2, 1.5, bias=1.2), yes_no=True)
    assert found.correction is not None
    assert found.correction.temperature == pytest.approx(1.5, rel=0.2)
    assert found.correction.bias == pytest.approx(-1.2 / 1.5, abs=0.2)
    assert found.after.accuracy > found.before.accuracy


def test_what_is_honest_is_left_alone_and_what_is_always_right_stays_finite() -> None:
    honest = fit(rows(1000, 3, 1.0), yes_no=False)
    assert honest.correction is None or honest.correction.temperature == pytest.approx(1, abs=0.1)
    always = [Labelled((0.7, 0.3), 0), Labelled((0.3, 0.7), 1)] * 40
    found = fit(always, yes_no=True).correction
    assert found is not None
    assert 0.05 <= found.temperature < 0.5
    assert abs(found.bias) < 0.1


def test_too_little_is_refused_with_the_numbers() -> None:
    with pytest.raises(TooLittle, match="49 labelled answers, at least 50"):
        fit(rows(49, 3, 2.0), yes_no=False)
    with pytest.raises(TooLittle, match="100 times yes and 9 times no"):
        fit([Labelled((0.9, 0.1), 0)] * 100 + [Labelled((0.9, 0.1), 1)] * 9, yes_no=True)


def test_figures_by_hand() -> None:
    found = report([Labelled((0.8, 0.2), 0), Labelled((0.6, 0.4), 1)])
    assert found.accuracy == 0.5
    assert found.brier == pytest.approx((0.04 + 0.04 + 0.36 + 0.36) / 2)
    assert found.nll == pytest.approx(-(math.log(0.8) + math.log(0.4)) / 2)
    assert found.ece == pytest.approx((0.2 + 0.6) / 2)


def test_equal_probabilities_share_a_bin() -> None:
    """Ranked by outcome too, the wrong of these filled a bin of their own: an error of 0.32 where there is none."""
    true = [Labelled((0.8, 0.2), int(i % 5 == 0)) for i in range(300)] + [Labelled((0.98, 0.02), 0)] * 49
    found = [(round(one.confidence, 9), one.count) for one in bins([*true, Labelled((0.98, 0.02), 1)])]
    assert found == [(0.8, 300), (0.98, 50)]
    assert report(true).ece == pytest.approx(0.02 * 49 / 349)


def test_a_correction_divides_log_odds_and_adds_to_them() -> None:
    yes, no = corrected((0.9, 0.1), Correction(2.0, -0.5))
    assert math.log(yes / no) == pytest.approx(math.log(9) / 2 - 0.5)
    assert corrected((1.0, 0.0), Correction(1.0))[0] == pytest.approx(1)


def labels(count: int = 300) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for row in rows(count, 2, 2.0, bias=1.0):
        yes, no = row.probabilities
        made.append({"question": "ok", "answer": {"type": "noul", "noul": yes}, "label": row.label == 0})
        answer = {"type": "choice", "choice": "a", "probabilities": {"a": yes, "b": no}}
        made.append({"question": "kind", "answer": answer, "label": "ab"[row.label]})
    made.append({"question": "few", "answer": {"type": "score", "probabilities": {"0": 0.5, "1": 0.5}}, "label": 1})
    return made


def test_the_object_is_what_a_request_takes() -> None:
    found = calibration_object(labels())
    assert set(found["questions"]) == set(found["reports"]) == {"ok", "kind"}
    assert found["refused"] == {"few": "1 labelled answers, at least 50 are needed"}
    own = parse_recalibration(found)
    assert own is not None
    assert own.id == found["id"]
    assert own.of("ok", "noul") == Correction(**found["questions"]["ok"])
    assert own.of("other", "noul") is None
    by_type = parse_recalibration(calibration_object(labels(), "type"))
    assert by_type is not None
    assert set(by_type.types) == {"noul", "choice"}
    for name, made in found["reports"].items():
        root = ElementTree.fromstring(made["svg"])
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert name in made["svg"]


def test_labels_with_provenance_bind_a_calibration_to_their_model() -> None:
    here = {"model_sha256": "a" * 64, "prompt_version": "1", "torch": "2"}
    bound = calibration_object([label | {"provenance": here} for label in labels()])
    assert bound["fitted_for"] == {"model_sha256": "a" * 64, "prompt_version": "1"}
    own, anyone = parse_recalibration(bound), calibration_object(labels())
    assert own is not None
    assert own.id == bound["id"] != anyone["id"]
    assert own.fitted_for == FittedFor("a" * 64, "1")
    part = own.for_questions({"ok": "ok"})
    assert part is not None
    assert (part.id, part.fitted_for) == (own.id, own.fitted_for)
    assert "fitted_for" not in anyone


@pytest.mark.parametrize("other", [None, {"model_sha256": "b" * 64, "prompt_version": "1"}, {"model_sha256": "a"}, 5])
def test_labels_are_of_one_model_or_nobody_says(other: Any) -> None:
    first, second, *rest = labels()
    here = {"model_sha256": "a" * 64, "prompt_version": "1"}
    with pytest.raises(InvalidField) as caught:
        calibration_object([first | {"provenance": here}, second | {"provenance": other}, *rest])
    assert caught.value.loc == ("labels", 1, "provenance")


def test_a_second_fit_is_of_what_was_read_and_not_of_what_was_corrected() -> None:
    plain = [label for label in labels() if label["question"] == "ok"]
    seen = []
    for label in plain:
        raw = {"true": label["answer"]["noul"], "false": 1 - label["answer"]["noul"]}
        seen.append(label | {"answer": {"type": "noul", "noul": 0.5, "probabilities_raw": raw}})
    assert calibration_object(seen)["questions"] == calibration_object(plain)["questions"]


@pytest.mark.parametrize(
    ("label", "field"),
    [
        (5, None),
        ({"question": 1}, "question"),
        ({"question": "q", "answer": {"type": "box"}}, "answer"),
        ({"question": "q", "answer": {"type": "noul"}, "label": True}, "answer"),
        ({"question": "q", "answer": {"type": "noul", "noul": 1.5}, "label": True}, "answer"),
        ({"question": "q", "answer": {"type": "noul", "noul": 0.5}, "label": "true"}, "label"),
        ({"question": "q", "answer": {"type": "choice", "probabilities": {"a": 1.0}}, "label": "b"}, "label"),
        ({"question": "q", "answer": {"type": "score", "probabilities": {"0": 1.0}}, "label": False}, "label"),
    ],
)
def test_a_label_that_is_none_is_named(label: Any, field: str | None) -> None:
    with pytest.raises(InvalidField) as caught:
        calibration_object([label])
    assert caught.value.loc == (("labels", 0, field) if field else ("labels", 0))


@pytest.mark.parametrize(
    "value",
    [
        "cal_1", {}, {"questions": []}, {"questions": {"q": 2}}, {"questions": {"q": {}}},
        {"questions": {"q": {"temperature": 0}}}, {"questions": {"q": {"temperature": 1000}}},
        {"questions": {"q": {"temperature": 1, "bias": "x"}}}, {"types": {"number": {"temperature": 1}}},
        {"questions": {"q": {"temperature": True}}}, {"types": {"choice": {"temperature": 1, "bias": 0.5}}},
    ],
)  # fmt: skip
def test_a_calibration_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(InvalidField) as caught:
        parse_recalibration(value)
    assert caught.value.loc[0] == "calibration"


def test_equal_calibrations_have_one_id() -> None:
    one = Recalibration({"a": Correction(2.0), "b": Correction(1.5, 0.1)})
    assert one.id == Recalibration({"b": Correction(1.5, 0.1), "a": Correction(2.0, 0.0)}).id
    assert one.id != Recalibration({}, {"noul": Correction(2.0)}).id


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "labels.jsonl"
    file.write_text("\n".join(json.dumps(label) for label in labels()))
    assert main(["calibrate", str(file), "--diagrams", str(tmp_path / "shown")]) == 0
    said = capsys.readouterr()
    assert set(json.loads(said.out)["questions"]) == {"ok", "kind"}
    assert "ece" in said.err
    assert (tmp_path / "shown" / "0.svg").read_text().startswith("<svg")
    assert main(["calibrate", str(file), "--json"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    assert json.loads(line) == json.loads(said.out)
    for name, why in (("x" * 1025, "this one 1025"), ("\ud83d", "surrogate")):
        file.write_text(json.dumps(labels()[0] | {"question": name}))
        assert main(["calibrate", str(file)]) == 2
        assert why in capsys.readouterr().err
    file.write_text(json.dumps(labels()[0]))
    assert main(["calibrate", str(file)]) == 2
    assert "at least 50" in capsys.readouterr().err
