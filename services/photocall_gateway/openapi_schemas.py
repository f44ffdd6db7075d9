"""The description of what requests and answers are made of, shape by shape."""

from __future__ import annotations

from typing import get_args

from photocall.answers import Answer
from photocall.asking import ORDERS
from photocall.errors import TABLE
from photocall.grid import BUDGETS
from photocall.jobs import JobStatus
from photocall.provenance import Provenance
from photocall.questions import (
    DEFAULT_TEXT_TOKENS,
    MAX_ONE_OF_CHARS,
    MAX_OPTIONS,
    MAX_PATTERN_CHARS,
    MAX_QUESTIONS,
    MAX_TEXT_TOKENS,
)
from photocall.views import AUTO
from photocall.webhooks import JOB_EVENTS
from photocall_gateway.assets import MAX_ASSETS, MAX_KEY_CHARS
from photocall_gateway.openapi_calibrations import OWN
from photocall_gateway.openapi_parts import NAME, PROVENANCE, Schema, content, obj, ref
from photocall_gateway.openapi_views import VIEW_FIELDS
from photocall_gateway.typed_schemas import schema_of

SHA256: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "An image that is stored, by its hash."}
URL: Schema = {"type": "string", "description": "An https URL, fetched where that is switched on; docs/images.md."}
_CONTENT: Schema = {"type": ["string", "object", "array", "null"]}
_INSTRUCTIONS: Schema = {**_CONTENT, "description": "What is asked. Asset keys in it stand for their pictures."}


_ORDER: Schema = {
    "enum": [*ORDERS, None],
    "description": "`debias` asks in every turn of the options and averages, `auto` only where the first is close.",
}
_ABSTAIN: Schema = {
    "oneOf": [
        {"type": ["boolean", "null"]},
        {
            **obj(cannot_tell={"type": "boolean"}, label_mass={"type": ["number", "null"], "minimum": 0, "maximum": 1}),
            "additionalProperties": False,
        },
    ],
    "description": "When an answer is `abstained`; true is the slot `cannot_tell` alone.",
}
_AFTER: Schema = {
    "oneOf": [
        obj(("question", "equals"), question={"type": "string"}, equals={"type": ["string", "number", "boolean"]}),
        {"type": "null"},
    ],
    "description": "Asked only when that question of the request has this answer.",
}


def _question(kind: str, required: tuple[str, ...] = (), **fields: Schema) -> Schema:
    asked = {"instructions": _INSTRUCTIONS, **fields, "abstain": _ABSTAIN, "after": _AFTER}
    return obj(("type", *required), type={"const": kind}, **asked)


_OPTIONS: Schema = {
    "oneOf": [
        {"type": "object", "additionalProperties": _CONTENT, "minProperties": 1, "maxProperties": MAX_OPTIONS},
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_OPTIONS, "uniqueItems": True},
    ]
}
_STATE = "What the questions are about. Parts of type `image_url` inside arrays are pictures."
_LEVELS: Schema = {
    "type": "array",
    "items": {"type": ["string", "object", "array"]},
    "minItems": 1,
    "maxItems": MAX_OPTIONS,
}
_TOKENS: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_TEXT_TOKENS, "default": DEFAULT_TEXT_TOKENS}
_NUMBER: Schema = {"type": ["number", "null"]}
_TIME: Schema = {"type": ["number", "null"], "description": "Seconds since the epoch."}


_ATTEMPT: Schema = obj(
    at={"type": "number"},
    ms={"type": "number"},
    status={"type": ["integer", "null"], "description": "Of the target's answer."},
    error={"type": ["string", "null"]},
)


def _listed(marker: str) -> Schema:
    return {
        "type": ["array", "null"],
        "items": {"type": ["string", "object"], "description": "Base64, a data or https URL, or an object with one."},
        "maxItems": MAX_ASSETS,
        "description": f"Pictures that the text names `{marker}`; the others stand before the state.",
    }


_REQUEST_FIELDS: dict[str, Schema] = {
    "model": {"type": ["string", "null"]},
    "state": {"type": ["string", "object", "array"], "description": _STATE},
    "questions": {
        "type": "object",
        "propertyNames": NAME,
        "additionalProperties": ref("Question"),
        "minProperties": 1,
        "maxProperties": MAX_QUESTIONS,
    },
    "assets": {
        "type": ["object", "null"],
        "propertyNames": {"type": "string", "minLength": 1, "maxLength": MAX_KEY_CHARS},
        "additionalProperties": ref("Asset"),
        "minProperties": 1,
    },
    "images": _listed("[image N]"),
    "media": _listed("<image:N>"),
    "calibration": OWN,
    "provenance": PROVENANCE,
}

SCHEMAS: dict[str, Schema] = {
    "Question": {
        "oneOf": [ref("Choice"), ref("Noul"), ref("Score"), ref("Number"), ref("Text"), ref("Box")],
        "description": "`predicate` is taken as `noul`.",
    },
    "Choice": _question("choice", ("criteria",), criteria=_OPTIONS, order=_ORDER),
    "Noul": _question(
        "noul",
        criteria={"type": ["object", "null"], "properties": {"true": _CONTENT, "false": _CONTENT}},
        order=_ORDER,
    ),
    "Score": _question("score", ("criteria",), criteria=_LEVELS, order=_ORDER),
    "Number": _question(
        "number", ("instructions",), min=_NUMBER, max=_NUMBER, step=_NUMBER, unit={"type": ["string", "null"]}
    ),
    "Text": _question(
        "text",
        ("instructions",),
        max_tokens=_TOKENS,
        one_of={
            "type": ["array", "null"],
            "items": {"type": "string", "minLength": 1},
            "minItems": 1,
            "maxItems": MAX_OPTIONS,
            "uniqueItems": True,
            "description": f"The only texts to answer with, of {MAX_ONE_OF_CHARS} characters in all.",
        },
        pattern={
            "type": ["string", "null"],
            "minLength": 1,
            "maxLength": MAX_PATTERN_CHARS,
            "description": "Instead: a regular expression (Rust's `regex`) that the whole text matches.",
        },
    ),
    "Box": _question("box"),
    "Asset": obj(
        (),
        **VIEW_FIELDS,
        type={"const": "image"},
        data_base64={"type": "string", "contentEncoding": "base64"},
        sha256=SHA256,
        url=URL,
        part={"type": "string", "description": "Name of the part of a multipart body that holds the picture."},
    ),
    "SystemOneRequest": obj(("state", "questions"), **_REQUEST_FIELDS),
    "SystemOneResponse": obj(
        ("model", "answers", "usage"),
        model={"type": "string"},
        answers={"type": "object", "additionalProperties": ref("Answer")},
        usage=obj(
            ("input_tokens", "output_tokens"), input_tokens={"type": "integer"}, output_tokens={"type": "integer"}
        ),
        provenance=ref("Provenance"),
    ),
    "Provenance": schema_of(Provenance),
    "Answer": {"oneOf": [ref(answer.__name__) for answer in get_args(Answer)]},
    **{answer.__name__: schema_of(answer) for answer in get_args(Answer)},
    "JobRequest": obj(
        ("state", "questions"),
        **_REQUEST_FIELDS,
        priority={"enum": ["interactive", "batch"], "default": "interactive"},
        order={**_ORDER, "description": "For all questions that say nothing else."},
        abstain={**_ABSTAIN, "description": "For all questions that say nothing else."},
        budget={
            "enum": [AUTO, *BUDGETS, None],
            "description": "Soft tokens of each picture that says nothing itself; more shows more of it.",
        },
        deadline_s={"type": ["number", "null"], "exclusiveMinimum": 0},
        metadata={"type": ["object", "null"], "additionalProperties": {"type": "string"}},
        webhook={"oneOf": [ref("Webhook"), {"type": "null"}]},
    ),
    "Webhook": obj(
        ("url",),
        url={"type": "string", "description": "https, at a public address."},
        events={"type": ["array", "null"], "items": {"enum": list(JOB_EVENTS)}, "minItems": 1},
    ),
    "Job": obj(
        ("id", "object", "status", "created_at", "priority", "attempts", "urls", "metadata"),
        id={"type": "string"},
        object={"const": "job"},
        status={"enum": [status.value for status in JobStatus]},
        created_at={"type": "number"},
        started_at=_TIME,
        completed_at=_TIME,
        expires_at=_TIME,
        priority={"enum": ["interactive", "batch"]},
        progress={"type": ["object", "null"]},
        queue={
            "type": ["object", "null"],
            "properties": {"position": {"type": "integer"}, "eta_s": {"type": ["number", "null"]}},
        },
        usage={"type": ["object", "null"]},
        timings={"type": ["object", "null"], "description": "Seconds by stage."},
        attempts={"type": "integer"},
        urls=obj(self={"type": "string"}, cancel={"type": "string"}, events={"type": "string"}),
        metadata={"type": "object"},
        webhook=obj(
            url={"type": "string"},
            events={"type": ["array", "null"], "items": {"type": "string"}},
            state={"enum": ["pending", "delivered", "failed", None], "description": "null until the job has ended."},
            attempts={"type": "array", "items": _ATTEMPT},
        ),
        result={
            "oneOf": [ref("SystemOneResponse"), ref("DecisionsResponse")],
            "description": "As the shape that asked has it.",
        },
        error=obj(("code", "message"), code={"enum": sorted(TABLE)}, message={"type": "string"}),
    ),
    "JobList": obj(
        ("object", "data", "has_more"),
        object={"const": "list"},
        data={"type": "array", "items": ref("Job")},
        has_more={"type": "boolean"},
        last_id={"type": ["string", "null"]},
    ),
    "Problem": obj(
        ("type", "title", "status", "detail", "code"),
        type={"type": "string"},
        title={"type": "string"},
        status={"type": "integer"},
        detail={"type": "string"},
        code={"enum": sorted(TABLE)},
        loc={"type": "array", "items": {"type": ["string", "integer"]}},
    ),
    "SystemOneError": obj(
        ("detail",),
        detail={
            "oneOf": [
                obj(("message", "error_type"), message={"type": "string"}, error_type={"type": "string"}),
                {"type": "array", "items": obj(("loc", "msg", "type"))},
            ]
        },
    ),
    "Image": obj(
        ("object", "sha256", "bytes", "format", "kept_s"),
        object={"const": "image"},
        sha256=SHA256,
        bytes={"type": "integer"},
        format={"type": "string"},
        kept_s={"type": "integer", "description": "Seconds it is kept once no job uses it."},
    ),
    "Models": obj(("models", "object", "data")),
}


def json_or_form(schema: str) -> Schema:
    """A body as JSON, or as a form whose first part is that JSON and whose other parts are pictures."""
    form = obj(("request",), request=ref(schema))
    kinds = {**content(ref(schema)), **content(form, "multipart/form-data")}
    return {"required": True, "description": "May be compressed with gzip or zstd.", "content": kinds}
