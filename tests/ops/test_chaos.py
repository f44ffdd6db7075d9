"""The crash matrix with one seed, as `make chaos` runs it, and what its report says of a run that did not hold."""

from __future__ import annotations

import io
import random
from collections import Counter

import pytest

from ops.chaos.matrix import RECOVERY_S, Hit
from ops.chaos.run import Report
from ops.chaos.strikes import MATRIX, schedule
from ops.chaos.tasks import KINDS, task
from photocall import failpoints


def test_a_seed_is_one_order_of_every_strike() -> None:
    first, again = list(schedule(3, MATRIX)), list(schedule(3, MATRIX))
    assert first == again != list(schedule(4, MATRIX))
    assert Counter(strike for strike, _ in first) == Counter(MATRIX)
    points = {strike.point for strike in MATRIX} - {""}
    assert points == set(failpoints.POINTS), "every point is struck"


def test_tasks_are_made_of_seed_and_number() -> None:
    kinds = {task(5, number).kind for number in range(200)}
    assert kinds == set(KINDS)
    number = random.Random(1).randrange(200)
    assert task(5, number) == task(5, number) != task(6, number)


@pytest.mark.parametrize(
    ("hit", "faults", "said"),
    [
        (Hit(MATRIX[0], 0.0, recovery_s=1.0), ["a job was lost"], "FAULT a job was lost"),
        (Hit(MATRIX[0], 0.0, recovery_s=RECOVERY_S + 1), [], "too slow"),
        (Hit(MATRIX[0], 0.0, fault="nobody came to the point"), [], "nobody came to the point"),
    ],
)
def test_what_did_not_hold_is_said(hit: Hit, faults: list[str], said: str) -> None:
    report = Report(1, hits=[hit], faults=faults)
    out = io.StringIO()
    report.show(out)
    assert not report.held
    assert said in out.getvalue()
    assert out.getvalue().splitlines()[-1].startswith("chaos: DID NOT HOLD: seed 1, 1 strikes")
