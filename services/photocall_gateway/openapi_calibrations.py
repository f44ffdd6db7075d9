"""The description of calibrations: what one is fitted from, what it is, and how a request says which it is under."""

from __future__ import annotations

from photocall import calibration_reports, recalibration
from photocall.calibrating import BINS
from photocall_gateway.openapi_parts import NAME, Schema, obj, ref

MAX_LABELS = 2000  # of one call: what a gateway can fit in a second or two

_TEXT: Schema = {"type": "string"}
_SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_WORDS: Schema = {
    "type": ["object", "null"],
    "maxProperties": 16,
    "additionalProperties": {"type": "string", "maxLength": 512},
}
_CORRECTIONS: Schema = {"type": "object", "propertyNames": NAME, "additionalProperties": ref("Correction")}
_FIGURES: Schema = obj(
    calibration_reports.FIGURES, **{name: {"type": "number", "minimum": 0} for name in calibration_reports.FIGURES}
)
_POINTS: Schema = {
    "type": "array",
    "items": {"type": "array", "items": {"type": "number"}, "minItems": 3, "maxItems": 3},
    "maxItems": BINS,
    "description": "Points of the diagram: confidence, accuracy, count.",
}
_TYPES: Schema = {
    "type": "object",
    "properties": {kind: ref("Correction") for kind in recalibration.TYPES},
    "additionalProperties": False,
}

_ID: Schema = {**_TEXT, "minLength": 1, "maxLength": recalibration.MAX_ID_CHARS}
_FITTED_FOR: Schema = {
    **obj(("model_sha256", "prompt_version"), model_sha256=_ID, prompt_version=_ID),
    "type": ["object", "null"],
}

OWN: Schema = {
    "oneOf": [
        {**_ID, "description": "The id of a stored one."},
        ref("OwnCalibration"),
        {"type": "null"},
    ],
    "description": "Your own, on top of the model's; docs/questions.md.",
}

SCHEMAS: dict[str, Schema] = {
    "OwnCalibration": {**obj(questions=_CORRECTIONS, types=_TYPES, fitted_for=_FITTED_FOR), "minProperties": 1},
    "Correction": obj(
        ("temperature",),
        temperature={"type": "number", "minimum": 1 / recalibration.MOST, "maximum": recalibration.MOST},
        bias={"type": ["number", "null"], "minimum": -1e6, "maximum": 1e6},
    ),
    "CalibrationRequest": obj(
        labels={
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_LABELS,
            "items": obj(
                ("question", "answer", "label"),
                question=NAME,
                answer={"type": "object", "description": "As it was answered."},
                label={"type": ["string", "boolean", "integer"], "description": "What is right."},
                provenance={**_FITTED_FOR, "description": "That stood beside the answers: of all labels, or of none."},
            ),
        },
        by={"enum": ["question", "type"], "default": "question"},
        calibration={
            "oneOf": [ref("OwnCalibration"), {"type": "null"}],
            "description": "Instead of labels: what `photocall calibrate` has fitted, with its reports.",
        },
        store={"type": "boolean", "default": True, "description": "false: nothing is kept."},
        metadata=_WORDS,
    ),
    "Calibration": obj(
        ("id", "object", "by", "created_at", "expires_at", "metadata", "urls"),
        id={"type": ["string", "null"], "description": "null where nothing is corrected: there is nothing to apply."},
        object={"const": "calibration"},
        by={"enum": ["question", "type"]},
        questions=_CORRECTIONS,
        types=_CORRECTIONS,
        fitted_for={**_FITTED_FOR, "description": "Another model or prompt refuses it; not there: nobody said."},
        created_at={"type": "number"},
        expires_at={"type": ["number", "null"], "description": "Unless it is used; null: it is not stored."},
        metadata=_WORDS,
        urls=obj(self=_TEXT, diagram=_TEXT),
        reports={
            "type": "object",
            "additionalProperties": obj(
                ("count", *calibration_reports.MOMENTS, "bins"),
                count={"type": "integer", "minimum": 1},
                before=_FIGURES,
                after=_FIGURES,
                bins=obj(calibration_reports.MOMENTS, before=_POINTS, after=_POINTS),
                svg={**_TEXT, "description": "The reliability diagram; only where it was just fitted."},
            ),
            "description": "By question or type, before and after; `after` is of rows held out. Not in lists.",
        },
        refused={
            "type": "object",
            "additionalProperties": _TEXT,
            "description": "What had too few labels, and how many; only where it was just fitted.",
        },
    ),
    "CalibrationList": obj(
        ("object", "data", "has_more"),
        object={"const": "list"},
        data={"type": "array", "items": ref("Calibration")},
        has_more={"type": "boolean"},
        last_id={"type": ["string", "null"]},
    ),
}
