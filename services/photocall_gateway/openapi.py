"""The description of the API, true to the routes: a test compares the two."""

from __future__ import annotations

from typing import Any

from photocall import __version__
from photocall.errors import TABLE
from photocall.jobs import JobStatus
from photocall.questions import DEFAULT_TEXT_TOKENS, MAX_OPTIONS, MAX_QUESTIONS, MAX_TEXT_TOKENS

Schema = dict[str, Any]

_CONTENT: Schema = {"type": ["string", "object", "array", "null"]}
_INSTRUCTIONS: Schema = {**_CONTENT, "description": "What is asked. Asset keys in it stand for their pictures."}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: Schema, kind: str = "application/json") -> Schema:
    return {kind: {"schema": schema}}


def _object(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _question(kind: str, required: tuple[str, ...] = (), **fields: Schema) -> Schema:
    return _object(("type", *required), type={"const": kind}, instructions=_INSTRUCTIONS, **fields)


_OPTIONS: Schema = {
    "oneOf": [
        {"type": "object", "additionalProperties": _CONTENT, "minProperties": 1, "maxProperties": MAX_OPTIONS},
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_OPTIONS, "uniqueItems": True},
    ]
}
_LEVELS: Schema = {
    "type": "array",
    "items": {"type": ["string", "object", "array"]},
    "minItems": 1,
    "maxItems": MAX_OPTIONS,
}
_TOKENS: Schema = {"type": "integer", "minimum": 1, "maximum": MAX_TEXT_TOKENS, "default": DEFAULT_TEXT_TOKENS}
_NUMBER: Schema = {"type": ["number", "null"]}
_TIME: Schema = {"type": ["number", "null"], "description": "Seconds since the epoch."}

_REQUEST_FIELDS: dict[str, Schema] = {
    "model": {"type": ["string", "null"]},
    "state": {"type": ["string", "object", "array"], "description": "What the questions are about."},
    "questions": {
        "type": "object",
        "additionalProperties": _ref("Question"),
        "minProperties": 1,
        "maxProperties": MAX_QUESTIONS,
    },
    "assets": {"type": ["object", "null"], "additionalProperties": _ref("Asset"), "minProperties": 1},
}

SCHEMAS: dict[str, Schema] = {
    "Question": {
        "oneOf": [_ref("Choice"), _ref("Noul"), _ref("Score"), _ref("Number"), _ref("Text")],
        "description": "`predicate` is taken as `noul`.",
    },
    "Choice": _question("choice", ("criteria",), criteria=_OPTIONS),
    "Noul": _question(
        "noul", criteria={"type": ["object", "null"], "properties": {"true": _CONTENT, "false": _CONTENT}}
    ),
    "Score": _question("score", ("criteria",), criteria=_LEVELS),
    "Number": _question(
        "number", ("instructions",), min=_NUMBER, max=_NUMBER, step=_NUMBER, unit={"type": ["string", "null"]}
    ),
    "Text": _question("text", ("instructions",), max_tokens=_TOKENS),
    "Asset": _object(
        type={"const": "image"},
        data_base64={"type": "string", "contentEncoding": "base64"},
        part={"type": "string", "description": "Name of the part of a multipart body that holds the picture."},
    ),
    "SystemOneRequest": _object(("state", "questions"), **_REQUEST_FIELDS),
    "SystemOneResponse": _object(
        ("model", "answers", "usage"),
        model={"type": "string"},
        answers={"type": "object", "additionalProperties": _ref("Answer")},
        usage=_object(
            ("input_tokens", "output_tokens"), input_tokens={"type": "integer"}, output_tokens={"type": "integer"}
        ),
    ),
    "Answer": {"type": "object", "required": ["type"], "properties": {"type": {"type": "string"}}},
    "JobRequest": _object(
        ("state", "questions"),
        **_REQUEST_FIELDS,
        priority={"enum": ["interactive", "batch"], "default": "interactive"},
        deadline_s={"type": ["number", "null"], "exclusiveMinimum": 0},
        metadata={"type": ["object", "null"], "additionalProperties": {"type": "string"}},
    ),
    "Job": _object(
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
        urls=_object(self={"type": "string"}, cancel={"type": "string"}, events={"type": "string"}),
        metadata={"type": "object"},
        result=_ref("SystemOneResponse"),
        error=_object(("code", "message"), code={"enum": sorted(TABLE)}, message={"type": "string"}),
    ),
    "JobList": _object(
        ("object", "data", "has_more"),
        object={"const": "list"},
        data={"type": "array", "items": _ref("Job")},
        has_more={"type": "boolean"},
        last_id={"type": ["string", "null"]},
    ),
    "Problem": _object(
        ("type", "title", "status", "detail", "code"),
        type={"type": "string"},
        title={"type": "string"},
        status={"type": "integer"},
        detail={"type": "string"},
        code={"enum": sorted(TABLE)},
        loc={"type": "array", "items": {"type": ["string", "integer"]}},
    ),
    "SystemOneError": _object(
        ("detail",),
        detail={
            "oneOf": [
                _object(("message", "error_type"), message={"type": "string"}, error_type={"type": "string"}),
                {"type": "array", "items": _object(("loc", "msg", "type"))},
            ]
        },
    ),
    "Models": _object(("models", "object", "data")),
}


def _header(name: str, description: str) -> Schema:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": {"type": "string"}}


def _query(name: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "required": False, "schema": schema}


_JOB_ID: Schema = {"name": "job_id", "in": "path", "required": True, "schema": {"type": "string"}}
_PREFER = _header("Prefer", "`wait=N`: answer when the job has ended, after N seconds at the latest.")


def _body(schema: str) -> Schema:
    form = _object(("request",), request=_ref(schema))
    content = {**_json(_ref(schema)), **_json(form, "multipart/form-data")}
    return {"required": True, "description": "May be compressed with gzip or zstd.", "content": content}


def _answers(ok: dict[int, Schema | None], *errors: int, systemone: bool = False) -> dict[str, Schema]:
    wrong = _json(_ref("SystemOneError")) if systemone else _json(_ref("Problem"), "application/problem+json")
    found: dict[str, Schema] = {}
    for status, schema in ok.items():
        found[str(status)] = {"description": "Success", **({"content": _json(schema)} if schema else {})}
    return found | {str(status): {"description": "Failure", "content": wrong} for status in errors}


_WRITE_ERRORS = (400, 401, 403, 408, 413, 415, 421, 422, 429, 503)
PATHS: dict[str, dict[str, Schema]] = {
    "/v1/jobs": {
        "post": {
            "summary": "Accept a job",
            "parameters": [_header("Idempotency-Key", "The same key and body give the same job."), _PREFER],
            "requestBody": _body("JobRequest"),
            "responses": _answers({200: _ref("Job"), 202: _ref("Job")}, *_WRITE_ERRORS, 409, 507),
        },
        "get": {
            "summary": "The caller's jobs, newest first",
            "parameters": [
                _query("status", {"enum": [status.value for status in JobStatus]}),
                _query("after", {"type": "string"}),
                _query("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
            ],
            "responses": _answers({200: _ref("JobList")}, 401, 404, 422, 503),
        },
    },
    "/v1/jobs/{job_id}": {
        "get": {
            "summary": "A job",
            "parameters": [_JOB_ID, _PREFER, _header("If-None-Match", "An ETag: 304 while it is still that version.")],
            "responses": _answers({200: _ref("Job"), 304: None}, 401, 404, 410, 503),
        },
        "delete": {
            "summary": "Cancel and forget a job",
            "parameters": [_JOB_ID],
            "responses": _answers({204: None}, 401, 403, 404, 410, 503),
        },
    },
    "/v1/jobs/{job_id}/cancel": {
        "post": {
            "summary": "Cancel a job",
            "parameters": [_JOB_ID],
            "responses": _answers({200: _ref("Job"), 202: _ref("Job")}, 401, 403, 404, 410, 503),
        }
    },
    "/v1/jobs/{job_id}/events": {
        "get": {
            "summary": "The job's events as they come",
            "parameters": [_JOB_ID, _header("Last-Event-ID", "Go on behind this event.")],
            "responses": {
                "200": {"description": "Events", "content": _json({"type": "string"}, "text/event-stream")},
                **_answers({}, 401, 404, 410, 422, 503),
            },
        }
    },
    "/v1/systemone": {
        "post": {
            "summary": "Ask, and wait for the answers",
            "requestBody": _body("SystemOneRequest"),
            "responses": _answers({200: _ref("SystemOneResponse")}, *_WRITE_ERRORS, 410, 500, 504, 529, systemone=True),
        }
    },
    "/v1/models": {
        "get": {"summary": "The names a request may use", "responses": _answers({200: _ref("Models")}, systemone=True)}
    },
    "/healthz": {"get": {"summary": "This process answers", "responses": _answers({200: _object()})}},
    "/readyz": {
        "get": {
            "summary": "A request would be answered now",
            "responses": {
                **_answers({200: _object()}),
                "503": {"description": "Not ready", "content": _json(_object())},
            },
        }
    },
    "/metrics": {
        "get": {
            "summary": "Prometheus metrics",
            "responses": {"200": {"description": "Metrics", "content": _json({"type": "string"}, "text/plain")}},
        }
    },
    "/openapi.json": {"get": {"summary": "This document", "responses": _answers({200: _object()})}},
}


def document() -> dict[str, Any]:
    """OpenAPI 3.1."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "photocall",
            "version": __version__,
            "description": "Ask a picture typed questions; get answers with probabilities.",
        },
        "paths": PATHS,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"key": []}],
    }
