"""The description of sessions: what makes one, a turn, and what is shown of it."""

from __future__ import annotations

from photocall_gateway.openapi_parts import PROVENANCE, Schema, content, obj, ref

_TEXT: Schema = {"type": "string"}
_WHOLE: Schema = {"type": "integer", "minimum": 0}
_FLAG: Schema = {"type": "boolean"}
_WORDS: Schema = {"type": "object", "maxProperties": 16, "additionalProperties": {"type": "string", "maxLength": 512}}
_STATE: Schema = {"type": ["string", "object", "array", "null"]}

SESSION_SCHEMAS: dict[str, Schema] = {
    "SessionRequest": obj(
        state={**_STATE, "description": "In front of every turn, without pictures."},
        mode={"enum": ["every", "newest"], "default": "every", "description": "newest: for frames of a camera."},
        remember={**_FLAG, "description": "Whether turns stay in the transcript; true unless mode is newest."},
        ttl_s={"type": "integer", "minimum": 1, "description": "Seconds it lives without a turn."},
        metadata=_WORDS,
    )
    | {"additionalProperties": False},
    "TurnRequest": obj(
        model=_TEXT,
        state={**_STATE, "description": "What is new; may be left out."},
        questions={"description": "As in a job."},
        order={"description": "As in a job."},
        abstain={"description": "As in a job."},
        calibration={"description": "As in a job."},
        provenance=PROVENANCE,
        text={**_TEXT, "description": "Instead of questions: a message that a text answers."},
        max_tokens={"type": "integer", "minimum": 1, "description": "Of the answer to `text`."},
        assets={"type": "object", "description": "As in a job."},
        remember=_FLAG,
        deadline_s={"type": "number", "exclusiveMinimum": 0},
        metadata=_WORDS,
    ),
    "InterruptRequest": obj(waiting={**_FLAG, "default": False, "description": "Those that wait, too."}),
    "Session": obj(
        ("id", "object", "created_at", "mode", "turns", "held", "reused", "notices", "urls"),
        id=_TEXT,
        object={"const": "session"},
        created_at={"type": "number"},
        mode={"enum": ["every", "newest"]},
        remember=_FLAG,
        state=_STATE,
        metadata=_WORDS,
        ttl_s=_WHOLE,
        expires_in_s={"type": ["number", "null"], "description": "null while a turn is unfinished"},
        turns=obj(
            accepted=_WHOLE,
            answered=_WHOLE,
            remembered=_WHOLE,
            unfinished={"type": "array", "items": _TEXT},
        ),
        held={
            **obj(engine=_TEXT, tokens=_WHOLE, bytes=_WHOLE, expires_in_s={"type": "number"}),
            "type": ["object", "null"],
            "description": "The prefix that an engine holds, under a lease; null: none, it is computed again.",
        },
        reused=obj(turns=_WHOLE, tokens=_WHOLE),
        notices={"type": "array", "items": _TEXT},
        interrupted={"type": "array", "items": _TEXT, "description": "Only in the answer to an interrupt."},
        urls={"type": "object", "additionalProperties": _TEXT},
    ),
    "SessionList": obj(
        ("object", "data", "has_more"),
        object={"const": "list"},
        data={"type": "array", "items": {**obj(("id", "object"), id=_TEXT, object={"const": "session"})}},
        has_more={"type": "boolean"},
        last_id={"type": ["string", "null"]},
    ),
}


def optional_body(schema: str) -> Schema:
    """A JSON body that may be left out."""
    return {"required": False, "content": content(ref(schema))}
