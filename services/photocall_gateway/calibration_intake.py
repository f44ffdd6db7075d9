"""The body of POST /v1/calibrations: labels to fit, or what was fitted elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from photocall.calibrating import TooLittle
from photocall.calibration_object import calibration_object
from photocall.calibration_reports import parse_reports, report_diagram
from photocall.calibrations import By, StoredCalibration
from photocall.invalid import InvalidField, Json
from photocall.recalibration import Recalibration, parse_recalibration, sent_calibration
from photocall_gateway.openapi_calibrations import MAX_LABELS
from photocall_gateway.parsing import metadata_of

MAX_PROBABILITIES = 10 * MAX_LABELS  # of all labels together: what is fitted takes time with each


@dataclass(frozen=True, slots=True)
class NewCalibration:
    """What is to be kept, unless `store` is false; and what is told of it once."""

    fitted: StoredCalibration
    store: bool
    refused: Mapping[str, str]  # what had too few labels

    @property
    def told_reports(self) -> dict[str, Any]:
        """The reports with their diagrams. Drawing a thousand takes a while, so not on an event loop."""
        return {name: {**report, "svg": report_diagram(name, report)} for name, report in self.fitted.reports.items()}


def read_calibration(raw: Mapping[str, Json]) -> NewCalibration:
    """Blocking: it fits. Raises InvalidField."""
    store = raw.get("store", True)
    if not isinstance(store, bool):
        raise InvalidField(("store",), "Expected true or false", "bool_type")
    given = raw.get("calibration")
    if given is not None and raw.get("labels") is not None:
        raise InvalidField(("calibration",), "Either `labels` or `calibration`", "exclusive")
    metadata = metadata_of(raw.get("metadata"))
    if given is None:
        by = _by(raw)
        found = _fitted(raw.get("labels"), by)
        own = Recalibration() if found["id"] is None else parse_recalibration(found)
        refused = found["refused"]
    else:
        own, refused = sent_calibration(given), {}
        found = dict(given) if isinstance(given, Mapping) else {}
        by = "type" if own is not None and own.types else "question"
    assert own is not None, "neither is null"
    own = replace(own, part_of=own.id)
    reports = parse_reports(found.get("reports"), ("calibration", "reports"))
    fitted = StoredCalibration(own, time.time(), by, metadata, reports)
    return NewCalibration(fitted, store and not own.empty, refused)


def _by(raw: Mapping[str, Json]) -> By:
    by = raw.get("by", "question")
    if by not in ("question", "type"):
        raise InvalidField(("by",), "Expected 'question' or 'type'", "literal_error")
    return "type" if by == "type" else "question"


def _fitted(labels: Json, by: By) -> dict[str, Any]:
    if not isinstance(labels, list):
        raise InvalidField(("labels",), "Expected a list of labelled answers", "list_type")
    if len(labels) > MAX_LABELS:
        msg = f"At most {MAX_LABELS}, got {len(labels)}: `photocall calibrate` takes any number"
        raise InvalidField(("labels",), msg, "too_long")
    if (count := sum(map(_size, labels))) > MAX_PROBABILITIES:
        raise InvalidField(("labels",), f"At most {MAX_PROBABILITIES} probabilities, got {count}", "too_long")
    try:
        return calibration_object(labels, by)
    except TooLittle as error:
        raise InvalidField(("labels",), str(error), "too_short") from error


def _size(label: Json) -> int:
    """How many probabilities a label holds at most: it is read from one of two places."""
    answer = label.get("answer") if isinstance(label, Mapping) else None
    held = [answer.get(name) for name in ("probabilities", "probabilities_raw")] if isinstance(answer, Mapping) else []
    return max([2, *(len(one) for one in held if isinstance(one, Mapping | list))])
