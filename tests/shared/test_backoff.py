"""Waits between tries: they grow, are bounded, differ by chance, and begin anew after a success."""

from __future__ import annotations

import logging

import pytest

from photocall.backoff import Backoff

LOG = logging.getLogger(__name__)
ERROR = ConnectionError("away")


def waits(draw: float, count: int, **bounds: float) -> list[float]:
    backoff = Backoff(LOG, "cannot", draw=lambda: draw, **bounds)
    return [round(backoff.failed(ERROR), 6) for _ in range(count)]


def test_waits_double_up_to_the_bound() -> None:
    assert waits(1.0, 8, first_s=0.1, most_s=5.0) == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]


def test_each_is_drawn_from_the_upper_half() -> None:
    assert waits(0.0, 4, first_s=0.1, most_s=0.3) == [0.05, 0.1, 0.15, 0.15]
    backoff = Backoff(LOG, "cannot", most_s=2.0)
    found = {backoff.failed(ERROR) for _ in range(40)}
    assert len(found) == 40, "two that were cut off together would come back together"
    assert max(found) <= 2.0


def test_an_outage_of_days_is_waited_out_too() -> None:
    assert waits(1.0, 3000, most_s=5.0)[-1] == 5.0


def test_after_a_success_they_begin_anew_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    backoff = Backoff(LOG, "cannot sweep", first_s=0.1, draw=lambda: 1.0)
    with caplog.at_level(logging.INFO):
        backoff.succeeded()
        assert caplog.records == [], "nothing had failed"
        first = [backoff.failed(ERROR) for _ in range(3)]
        assert backoff.failing
        backoff.succeeded()
        assert not backoff.failing
        assert backoff.failed(ERROR) == first[0]
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3 + ["INFO", "WARNING"]
    assert "cannot sweep: away" in caplog.records[0].getMessage()
