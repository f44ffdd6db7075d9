"""Calibration error and intervals on cases that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from ops.train.calibrate import Case, Table, fit
from ops.train.metrics import Judged, ece, summary


def test_ece_is_the_gap_between_sureness_and_accuracy() -> None:
    confidence = np.repeat([0.6, 0.9], 100)
    right = np.concatenate([np.arange(100) < 60, np.arange(100) < 70]).astype(np.float64)
    assert ece(confidence, right, bins=2) == pytest.approx(0.5 * (0.9 - 0.7))


def test_bins_have_equal_mass() -> None:
    confidence = np.linspace(0.5, 1.0, 30)
    assert ece(confidence, confidence, bins=15) == pytest.approx(0.0)


def test_equal_confidences_share_a_bin() -> None:
    right = (np.arange(300) >= 60).astype(np.float64)
    assert ece(np.full(300, 0.8), right) == pytest.approx(0.0)


def test_intervals_widen_when_a_pictures_answers_hang_together() -> None:
    alone = [Judged(i, i % 4 != 0, 0.75) for i in range(400)]
    together = [Judged(i // 20, (i // 20) % 4 != 0, 0.75) for i in range(400)]
    narrow, wide = summary(alone, rounds=200), summary(together, rounds=200)
    assert narrow["accuracy"] == wide["accuracy"] == 0.75

    def width(row: dict[str, object]) -> float:
        interval = row["accuracy_95"]
        assert isinstance(interval, list)
        return float(interval[1]) - float(interval[0])

    assert width(wide) > 2 * width(narrow) > 0.05


def test_the_fitted_temperature_undoes_a_known_one() -> None:
    rng = np.random.default_rng(0)
    cases: list[Case] = []
    for _ in range(1200):
        honest = rng.normal(0, 2, 4)
        weights = np.exp(honest) / np.exp(honest).sum()
        cases.append([(honest * 1.6, int(rng.choice(4, p=weights)))])
    table = Table.of(cases)
    found = fit(table)
    assert found == pytest.approx(1.6, abs=0.2)  # 1,200 answers fix it to about 6 %
    assert table.loss(found) < table.loss(1.0)
