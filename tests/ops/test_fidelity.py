"""Answers from fast and from exact pixels compared, on one picture; `ops.bench.fidelity` has the figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ops.bench.fidelity import SETS, SHIFT, Shifts, moves, summary
from ops.bench.fidelity import measured as measured_shifts

MINI = Path(__file__).parents[2] / "models" / "mini"


@pytest.mark.skipif(not list(MINI.glob("*.safetensors")), reason="models/mini holds no weights")
@pytest.mark.parametrize("name", list(SETS))
def test_answers_stay_where_they_are(name: str) -> None:
    shifts = list(measured_shifts(SETS[name], 1, threads=1, model=MINI))
    assert all(0 < shift.pixel_max <= 28 for shift in shifts), "the pixels do differ"
    assert all(shift.pixel_mean <= 0.5 for shift in shifts)
    moved = [move for shift in shifts for _, move, _ in shift.answers]
    assert len(moved) >= 10
    assert sum(moved) / len(moved) < SHIFT


@pytest.mark.parametrize(
    ("first", "second", "move", "other"),
    [
        ({"noul": 0.4}, {"noul": 0.6}, 0.2, True),
        (
            {"choice": "a", "probabilities": {"a": 0.5, "b": 0.3, "c": 0.2}},
            {"choice": "a", "probabilities": {"a": 0.45, "b": 0.4, "c": 0.15}},
            0.1,
            False,
        ),
        ({"probabilities": {"3": 0.6, "4": 0.3}}, {"probabilities": {"3": 0.4, "5": 0.5}}, 0.2, True),
        ({"text": "x", "logprob": 0.0}, {"text": "x", "logprob": 0.0}, 0.0, False),
    ],
)
def test_a_move_is_the_largest_of_an_answers_probabilities(
    first: dict[str, Any], second: dict[str, Any], move: float, other: bool
) -> None:
    found = moves(first, second)
    assert found[0] == pytest.approx(move)
    assert found[1] is other


def test_the_summary_counts_by_type_and_over_all() -> None:
    shifts = [Shifts((("noul", 0.02, True), ("choice", 0.0, False)), 0.2, 9)]
    lines = {line["workload"]: line for line in summary("a set", shifts)}
    assert lines["a set, all: mean move of a probability"]["value"] == pytest.approx(0.01)
    assert lines["a set, noul: largest"]["value"] == 0.02
    assert lines["a set, noul: share of other answers"]["value"] == 1.0
    assert lines["a set: pixels, largest"]["value"] == 9
