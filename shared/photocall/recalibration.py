"""A calibration of the caller's own: a temperature, and for yes-no a bias, by question or by type of question.

It travels in the ask that it is for, whether the caller sent it whole or named one that is stored (calibrations.py), so
what becomes of the stored one later changes no answer. How one is fitted from labelled answers: calibrating.py.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from photocall.invalid import InvalidField, Json, Loc
from photocall.names import SHOWN_CHARS, check_name

TYPES = ("choice", "noul", "score")
MAX_QUESTIONS = 1000
MAX_ID_CHARS = 80
MOST = 100.0  # times that a temperature may be off


@dataclass(frozen=True, slots=True)
class Correction:
    """What log odds are divided by, and what is then added to those of yes."""

    temperature: float
    bias: float = 0.0


@dataclass(frozen=True, slots=True)
class FittedFor:
    """Whose answers were fitted, as their provenance names it: the checkpoint's hash, and the version of the prompt."""

    model_sha256: str
    prompt_version: str


@dataclass(frozen=True, slots=True)
class Recalibration:
    """Corrections by question name and by type; a question's own goes before its type's."""

    questions: Mapping[str, Correction] = field(default_factory=dict)
    types: Mapping[str, Correction] = field(default_factory=dict)
    fitted_for: FittedFor | None = None  # an engine of another refuses it; None: nobody said, and every one takes it
    part_of: str = ""  # its id, where that is known: of the whole that it was taken from, or the name it is kept under

    @property
    def id(self) -> str:
        """The same for equal calibrations; stands in every answer it was applied to."""
        if self.part_of:
            return self.part_of
        text = json.dumps(self.to_content(), sort_keys=True, separators=(",", ":"))
        return f"cal_{hashlib.sha256(text.encode()).hexdigest()[:24]}"

    @property
    def empty(self) -> bool:
        """It corrects nothing."""
        return not (self.questions or self.types)

    def for_questions(self, names: Mapping[str, str | None]) -> Recalibration | None:
        """What of it concerns these questions, under the same id; None where nothing does.

        `names`: by the name that a question is asked under, the one that its labels had.
        """
        named = [(asked, own) for asked, own in names.items() if own is not None]
        part = replace(self, questions={asked: self.questions[own] for asked, own in named if own in self.questions})
        return None if part.empty else replace(part, part_of=self.id)

    def of(self, name: str, kind: str) -> Correction | None:
        """For one question; None where nothing is to be corrected."""
        return self.questions.get(name) or self.types.get(kind)

    def to_content(self) -> dict[str, Any]:
        """As it stands in a request."""
        both = {"questions": self.questions, "types": self.types}
        made = {place: {name: asdict(one) for name, one in found.items()} for place, found in both.items() if found}
        return made if self.fitted_for is None else {**made, "fitted_for": asdict(self.fitted_for)}


def parse_calibration(value: Json) -> Recalibration | str | None:
    """The `calibration` of a request body: the id of a stored one, or one that is sent whole. Raises InvalidField."""
    if isinstance(value, str):
        if not 1 <= len(value) <= MAX_ID_CHARS:
            raise InvalidField(("calibration",), f"An id has 1 to {MAX_ID_CHARS} characters", "string_length")
        return value
    return sent_calibration(value)


def sent_calibration(value: Json) -> Recalibration | None:
    """One that a caller sends whole; its questions have names as those of a request. Raises InvalidField."""
    own = parse_recalibration(value)
    for name in own.questions if own else ():
        check_name(name, ("calibration", "questions", name[:SHOWN_CHARS]))
    return own


def parse_recalibration(value: Json) -> Recalibration | None:
    """One as it is written down, whatever its questions are called; None where none is given. Raises InvalidField.

    What else `photocall calibrate` has written down beside the corrections (counts, reports, its id) is skipped.
    """
    if value is None:
        return None
    loc: Loc = ("calibration",)
    if not isinstance(value, Mapping):
        raise InvalidField(loc, "Expected an id, or an object with questions or types", "dict_type")
    parts = []
    for place in ("questions", "types"):
        raw = value.get(place)
        if raw is None:
            raw = {}
        if not isinstance(raw, Mapping):
            raise InvalidField((*loc, place), "Expected an object of corrections by name", "dict_type")
        if len(raw) > MAX_QUESTIONS:
            raise InvalidField((*loc, place), f"At most {MAX_QUESTIONS}, got {len(raw)}", "too_long")
        parts.append({name: _correction(one, (*loc, place, name[:SHOWN_CHARS])) for name, one in raw.items()})
    questions, types = parts
    for name in types:
        if name not in TYPES:
            raise InvalidField((*loc, "types", name[:SHOWN_CHARS]), f"Expected {', '.join(TYPES)}", "literal_error")
        if types[name].bias and name != "noul":
            raise InvalidField((*loc, "types", name, "bias"), "Only yes-no questions have a bias", "extra_forbidden")
    own = Recalibration(questions, types, parse_fitted_for(value.get("fitted_for"), (*loc, "fitted_for")))
    if own.empty:
        raise InvalidField(loc, "Expected questions or types with a correction at least", "missing")
    return own


def parse_fitted_for(value: Json, loc: Loc) -> FittedFor | None:
    """From a calibration, or from the provenance of an answer; None where nothing is said. Raises InvalidField."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidField(loc, "Expected an object with model_sha256 and prompt_version", "dict_type")
    found = [value.get(name) for name in ("model_sha256", "prompt_version")]
    sha256, version = (one if isinstance(one, str) and 1 <= len(one) <= MAX_ID_CHARS else None for one in found)
    if sha256 is None or version is None:
        msg = f"Expected model_sha256 and prompt_version, {MAX_ID_CHARS} characters at most"
        raise InvalidField(loc, msg, "missing")
    return FittedFor(sha256, version)


def _correction(raw: Json, loc: Loc) -> Correction:
    if not isinstance(raw, Mapping):
        raise InvalidField(loc, "Expected an object with a temperature", "dict_type")
    temperature, bias = _real(raw.get("temperature"), (*loc, "temperature")), raw.get("bias")
    if not 1 / MOST <= temperature <= MOST:
        raise InvalidField((*loc, "temperature"), f"Expected {1 / MOST:g} to {MOST:g}", "out_of_range")
    return Correction(temperature, 0.0 if bias is None else _real(bias, (*loc, "bias")))


def _real(value: Json, loc: Loc) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e6 or math.isnan(value):
        raise InvalidField(loc, "Expected a number", "float_type")
    return float(value)
