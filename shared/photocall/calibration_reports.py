"""What a fit has to say for itself, as JSON: figures before and after, and the points of its reliability diagram."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from photocall.calibrating import BINS, Bin, Fit, Report
from photocall.invalid import InvalidField, Json, Loc
from photocall.names import SHOWN_CHARS, check_name
from photocall.recalibration import MAX_QUESTIONS
from photocall.reliability import diagram

MOMENTS = ("before", "after")
FIGURES = ("accuracy", "brier", "ece", "nll")


def report_of(found: Fit) -> dict[str, Any]:
    """Of one question or type."""
    figures = {"before": asdict(found.before), "after": asdict(found.after)}
    bins = {"before": found.bins_before, "after": found.bins_after}
    points = {moment: [[one.confidence, one.accuracy, one.count] for one in bins[moment]] for moment in MOMENTS}
    return {"count": found.count, **figures, "bins": points}


def report_diagram(name: str, report: Mapping[str, Any]) -> str:
    """Its reliability diagram as SVG."""
    before, after = ([Bin(*point) for point in report["bins"][moment]] for moment in MOMENTS)
    return diagram(name, before, after, report["before"]["ece"], report["after"]["ece"])


def parse_reports(value: Json, loc: Loc) -> dict[str, dict[str, Any]]:
    """Reports that were made elsewhere, by name, with nothing in them beside what `report_of` gives.

    Raises InvalidField.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidField(loc, "Expected an object of reports by name", "dict_type")
    if len(value) > MAX_QUESTIONS:
        raise InvalidField(loc, f"At most {MAX_QUESTIONS}, got {len(value)}", "too_long")
    for name in value:
        check_name(name, (*loc, name[:SHOWN_CHARS]))
    return {name: _report(raw, (*loc, name[:SHOWN_CHARS])) for name, raw in value.items()}


def _report(raw: Json, loc: Loc) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        raise InvalidField(loc, "Expected a report", "dict_type")
    count = raw.get("count")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count < 1 << 53:
        raise InvalidField((*loc, "count"), "Expected how many labels there were", "int_type")
    found: dict[str, Any] = {"count": count, "bins": {}}
    points = raw.get("bins")
    for moment in MOMENTS:
        figures = raw.get(moment)
        if not isinstance(figures, Mapping):
            raise InvalidField((*loc, moment), f"Expected {', '.join(FIGURES)}", "dict_type")
        read = {name: _figure(figures.get(name), (*loc, moment, name)) for name in FIGURES}
        found[moment] = asdict(Report(**read))
        given = points.get(moment) if isinstance(points, Mapping) else None
        if not isinstance(given, list) or len(given) > BINS:
            raise InvalidField((*loc, "bins", moment), f"Expected a list of {BINS} points at most", "list_type")
        found["bins"][moment] = [_point(point, (*loc, "bins", moment, i)) for i, point in enumerate(given)]
    return found


def _point(raw: Json, loc: Loc) -> list[float]:
    if not isinstance(raw, list) or len(raw) != 3:
        raise InvalidField(loc, "Expected [confidence, accuracy, count]", "list_type")
    confidence, accuracy, count = (_figure(value, loc) for value in raw)
    if max(confidence, accuracy) > 1:
        raise InvalidField(loc, "Expected a confidence and an accuracy of 1 at most", "out_of_range")
    return [confidence, accuracy, int(count)]


def _figure(value: Json, loc: Loc) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1 << 53 or math.isnan(value):
        raise InvalidField(loc, "Expected a number, 0 or more", "float_type")
    return float(value)
