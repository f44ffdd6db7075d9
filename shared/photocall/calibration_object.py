"""From labelled answers to the object that `POST /v1/calibrations` and `photocall calibrate` give.

A label is one answer as it was given, the name of its question, and what is right: `{"question", "answer", "label"}`.
What the object says under `questions` or `types` is what a request's `calibration` takes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Literal

from photocall.calibrating import Fit, Labelled, TooLittle, fit
from photocall.invalid import InvalidField, Loc
from photocall.recalibration import TYPES, Recalibration
from photocall.reliability import diagram


def calibration_object(labels: Iterable[Any], by: Literal["question", "type"] = "question") -> dict[str, Any]:
    """Raises InvalidField for a label that is none, and TooLittle where nothing could be fitted.

    `refused` names what had too few labels; `reports` has accuracy, Brier, ECE and NLL before and after (held out), and
    a diagram as SVG. A question that no correction helps has a report and no correction.
    """
    groups: defaultdict[str, list[Labelled]] = defaultdict(list)
    kinds: dict[str, str] = {}
    for i, raw in enumerate(labels):
        name, kind, row = _labelled(raw, ("labels", i))
        group = name if by == "question" else kind
        if kinds.setdefault(group, kind) != kind:
            raise InvalidField(("labels", i, "answer"), f"{group[:80]!r} was of another type before", "mixed_types")
        groups[group].append(row)
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
    own = Recalibration(corrections) if by == "question" else Recalibration({}, corrections)
    reports = {group: _report(group, found) for group, found in fits.items()}
    return {"id": own.id, "object": "calibration", **own.to_content(), "reports": reports, "refused": refused}


def _report(group: str, found: Fit) -> dict[str, Any]:
    svg = diagram(group, found.bins_before, found.bins_after, found.before.ece, found.after.ece)
    return {"count": found.count, "before": asdict(found.before), "after": asdict(found.after), "svg": svg}


def _labelled(raw: Any, loc: Loc) -> tuple[str, str, Labelled]:
    if not isinstance(raw, Mapping):
        raise InvalidField(loc, "Expected an object with question, answer and label", "dict_type")
    name, answer, label = raw.get("question"), raw.get("answer"), raw.get("label")
    if not isinstance(name, str):
        raise InvalidField((*loc, "question"), "Expected the question's name", "string_type")
    kind = answer.get("type") if isinstance(answer, Mapping) else None
    if kind not in TYPES or not isinstance(answer, Mapping):
        raise InvalidField((*loc, "answer"), f"Expected an answer of type {', '.join(TYPES)}", "literal_error")
    found = answer.get("probabilities_raw") or answer.get("probabilities")
    if kind == "noul" and not answer.get("probabilities_raw"):
        yes = answer.get("noul")
        found = {"true": yes, "false": 1 - yes} if isinstance(yes, int | float) else None
    if not isinstance(found, Mapping) or not all(_probability(p) for p in found.values()):
        raise InvalidField((*loc, "answer"), "Its probabilities are missing, or are none", "missing")
    spelled = str(label).lower() if isinstance(label, bool) else str(label) if kind == "score" else label
    if isinstance(label, bool) != (kind == "noul") or spelled not in list(found):
        expected = {"choice": "one of its labels", "noul": "true or false", "score": "the index of a level"}[kind]
        raise InvalidField((*loc, "label"), f"Expected {expected}", "literal_error")
    return name, kind, Labelled(tuple(map(float, found.values())), list(found).index(spelled))


def _probability(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
