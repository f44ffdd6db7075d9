"""From labelled answers to the object that `POST /v1/calibrations` and `photocall calibrate` give.

A label is one answer as it was given, the name of its question, and what is right: `{"question", "answer", "label"}`.
With `provenance`, which stood beside the answers, the calibration is bound to the model and prompt that gave them.
What the object says under `questions` or `types` is what a request's `calibration` takes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from photocall.calibrating import Fit, Labelled, TooLittle, fit
from photocall.calibration_reports import report_diagram, report_of
from photocall.invalid import InvalidField, Loc
from photocall.names import check_name
from photocall.recalibration import TYPES, FittedFor, Recalibration, parse_fitted_for


def calibration_object(labels: Iterable[Any], by: Literal["question", "type"] = "question") -> dict[str, Any]:
    """Raises InvalidField for a label that is none, and TooLittle where nothing could be fitted.

    `refused` names what had too few labels; `reports` has accuracy, Brier, ECE and NLL before and after (held out), and
    a diagram as SVG. A question that no correction helps has a report and no correction; where none helps anywhere, the
    id is None, which a request's `calibration` takes too.
    """
    groups: defaultdict[str, list[Labelled]] = defaultdict(list)
    kinds: dict[str, str] = {}
    fitted_for: FittedFor | None = None
    for i, raw in enumerate(labels):
        name, kind, row = _labelled(raw, ("labels", i))
        group = name if by == "question" else kind
        if kinds.setdefault(group, kind) != kind:
            raise InvalidField(("labels", i, "answer"), f"{group[:80]!r} was of another type before", "mixed_types")
        groups[group].append(row)
        said = parse_fitted_for(raw.get("provenance"), ("labels", i, "provenance"))
        if i and said != fitted_for:
            msg = "Not of the model and prompt of the labels before it: a calibration is for one of them"
            raise InvalidField(("labels", i, "provenance"), msg, "mixed_models")
        fitted_for = said
    fits: dict[str, Fit] = {}
    refused: dict[str, str] = {}
    for group, rows in groups.items():
        try:
            fits[group] = fit(rows, kinds[group] == "noul")
        except TooLittle as error:
            refused[group] = str(error)
    if not fits:
        raise TooLittle("; ".join(f"{group[:80]}: {why}" for group, why in refused.items()) or "no labelled answers")
    corrections = {group: found.correction for group, found in fits.items() if found.correction is not None}
    own = Recalibration(corrections if by == "question" else {}, corrections if by == "type" else {}, fitted_for)
    reports = {group: report_of(found) for group, found in fits.items()}
    shown = {group: {**report, "svg": report_diagram(group, report)} for group, report in reports.items()}
    told = {"reports": shown, "refused": refused}
    return {"id": None if own.empty else own.id, "object": "calibration", **own.to_content(), **told}


def _labelled(raw: Any, loc: Loc) -> tuple[str, str, Labelled]:
    if not isinstance(raw, Mapping):
        raise InvalidField(loc, "Expected an object with question, answer and label", "dict_type")
    name, answer, label = raw.get("question"), raw.get("answer"), raw.get("label")
    if not isinstance(name, str):
        raise InvalidField((*loc, "question"), "Expected the question's name", "string_type")
    check_name(name, (*loc, "question"))
    kind = answer.get("type") if isinstance(answer, Mapping) else None
    kind = "noul" if kind == "predicate" else kind
    if kind not in TYPES or not isinstance(answer, Mapping):
        raise InvalidField((*loc, "answer"), f"Expected an answer of type {', '.join(TYPES)}", "literal_error")
    spread = _spread(kind, answer)
    if not spread or not all(_probability(p) for _, p in spread):
        raise InvalidField((*loc, "answer"), "Its probabilities are missing, or are none", "missing")
    if kind == "score" and isinstance(label, str) and label.isdecimal():
        label = int(label)
    right = [type(value) is type(label) and value == label for value, _ in spread]
    if True not in right:
        expected = {"choice": "one of its labels", "noul": "true or false", "score": "the index of a level"}[kind]
        raise InvalidField((*loc, "label"), f"Expected {expected}", "literal_error")
    return name, kind, Labelled(tuple(float(p) for _, p in spread), right.index(True))


def _spread(kind: str, answer: Mapping[str, Any]) -> list[tuple[Any, Any]]:
    """What may be right, as a label has it, and its probability as it was read; nothing where they cannot be told.

    The Decisions shape has a list of values with their probabilities where the others have a map.
    """
    found = answer.get("probabilities_raw") or answer.get("probabilities")
    if kind == "noul" and not answer.get("probabilities_raw"):
        yes = answer.get("noul", answer.get("probability"))
        return [(True, yes), (False, 1 - yes)] if _probability(yes) else []
    if isinstance(found, list):
        return [(one.get("value"), one.get("probability")) for one in found if isinstance(one, Mapping)]
    if not isinstance(found, Mapping):
        return []
    if kind == "noul":
        return [(True, found.get("true")), (False, found.get("false"))]
    if kind == "score":
        return [(int(level) if level.isdecimal() else level, p) for level, p in found.items()]
    return list(found.items())


def _probability(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
