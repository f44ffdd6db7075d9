"""The description of the Decisions shape: its request, its answers and its error."""

from __future__ import annotations

from photocall.errors import TABLE
from photocall_gateway import decisions
from photocall_gateway.openapi_calibrations import OWN
from photocall_gateway.openapi_parts import PROVENANCE, Schema, obj, ref
from photocall_gateway.openapi_views import VIEW_FIELDS

_NAME: Schema = {"type": ["string", "null"], "maxLength": decisions.MAX_NAME_CHARS}
_PROBABILITY: Schema = {"type": "number", "minimum": 0, "maximum": 1}
_PARTS: Schema = {
    "oneOf": [{"type": "string"}, {"type": "array", "items": ref("DecisionsPart"), "minItems": 1}],
}
_VALUE: Schema = {"type": ["string", "boolean"], "description": "The text `true` and the boolean are two values."}


def _decisions_question(kind: str, *required: str, **fields: Schema) -> Schema:
    return obj(("type", *required), type={"const": kind}, name=_NAME, instructions=_PARTS, **fields)


def _decisions_answer(kind: str, **fields: Schema) -> Schema:
    return obj(("type", "name", *fields), type={"const": kind}, name=_NAME, **fields)


def _spread(**fields: Schema) -> Schema:
    """Probabilities, each with what it is of."""
    return {"type": "array", "items": obj((*fields, "probability"), **fields, probability=_PROBABILITY)}


def _calibrated(answer: Schema, raw: Schema) -> Schema:
    """An answer that the caller's own calibration may have corrected."""
    more = {"calibration": {"type": "string", "description": "The caller's own that was applied, by its id."}}
    more["probabilities_raw"] = {**raw, "description": "As they were before it."}
    return {**answer, "properties": {**answer["properties"], **more}}


def _items(least: int, most: int, items: Schema) -> Schema:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


_VALUES = _spread(value=_VALUE)
_SCORES = _spread(value={"type": "integer"}, label={"type": "string"})

SCHEMAS: dict[str, Schema] = {
    "DecisionsRequest": obj(
        ("input", "questions"),
        model={"type": ["string", "null"]},
        input={"oneOf": [{"type": "string"}, _items(1, decisions.MAX_PARTS, ref("DecisionsMessage"))]},
        questions=_items(1, decisions.MAX_QUESTIONS, ref("DecisionsQuestion")),
        calibration=OWN,
        provenance=PROVENANCE,
    ),
    "DecisionsMessage": obj(
        ("role", "content"), type={"const": "message"}, role={"enum": list(decisions.ROLES)}, content=_PARTS
    ),
    "DecisionsPart": {
        "oneOf": [
            obj(("type", "text"), type={"enum": ["input_text", "output_text"]}, text={"type": "string"}),
            obj(
                ("type",),
                type={"const": "input_image"},
                image_url={"type": "string", "description": "A data URL; other URLs are refused."},
                sha256={"type": "string", "description": "Instead: an image that is stored, by its hash."},
                **VIEW_FIELDS,
            ),
            obj(("type", "data"), type={"const": "input_json"}, data={"type": ["object", "array"]}),
        ]
    },
    "DecisionsQuestion": {
        "oneOf": [
            _decisions_question("predicate", "instructions"),
            _decisions_question(
                "choice",
                "choices",
                choices=_items(
                    1,
                    decisions.MAX_CHOICES,
                    obj(("value",), value=_VALUE, description={"type": ["string", "null"]}),
                ),
            ),
            _decisions_question(
                "score",
                "levels",
                levels=_items(
                    decisions.MIN_LEVELS,
                    decisions.MAX_LEVELS,
                    obj(("label",), label={"type": "string"}, description={"type": ["string", "null"]}),
                ),
            ),
        ]
    },
    "DecisionsResponse": obj(
        ("model", "answers", "usage"),
        model={"type": "string"},
        answers={"type": "array", "items": ref("DecisionsAnswer"), "description": "In the order of the questions."},
        usage=obj(
            ("input_tokens", "input_tokens_details", "output_tokens", "output_tokens_details", "total_tokens"),
            input_tokens={"type": "integer"},
            input_tokens_details={"type": "object"},
            output_tokens={"type": "integer"},
            output_tokens_details={"type": "object"},
            total_tokens={"type": "integer"},
        ),
        provenance=ref("Provenance"),
    ),
    "DecisionsAnswer": {
        "oneOf": [
            _calibrated(_decisions_answer("predicate", probability=_PROBABILITY), _spread(value={"type": "boolean"})),
            _calibrated(
                _decisions_answer("choice", choice=_VALUE, confidence=_PROBABILITY, probabilities=_VALUES), _VALUES
            ),
            _calibrated(
                _decisions_answer("score", score={"type": "number"}, confidence=_PROBABILITY, probabilities=_SCORES),
                _SCORES,
            ),
            obj(
                ("type", "name"),
                type={"const": "refusal"},
                name=_NAME,
                code={"enum": sorted(TABLE), "description": "Why this question could not be answered."},
                message={"type": "string"},
            ),
        ]
    },
    "DecisionsError": obj(
        ("error",),
        error=obj(
            ("message", "type", "param", "code"),
            message={"type": "string"},
            type={"type": "string"},
            param={"type": ["string", "null"]},
            code={"enum": sorted(TABLE)},
        ),
    ),
}
