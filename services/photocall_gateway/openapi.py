"""The description of the API, true to the routes: a test compares the two."""

from __future__ import annotations

from typing import Any

from photocall import __version__
from photocall.jobs import JobStatus
from photocall_gateway.openapi_parts import Schema, content, obj, ref
from photocall_gateway.openapi_schemas import SCHEMAS, SHA256


def _header(name: str, description: str) -> Schema:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": {"type": "string"}}


def _query(name: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "required": False, "schema": schema}


_JOB_ID: Schema = {"name": "job_id", "in": "path", "required": True, "schema": {"type": "string"}}
_JOINING_KEY = _header("Idempotency-Key", "Stands for one body; equal bodies share their work with or without it.")
_SHA256: Schema = {"name": "sha256", "in": "path", "required": True, "schema": SHA256}
_PREFER_ASYNC = _header("Prefer", "`respond-async`: 202 and the job; with `wait=N` the answer if it comes in time.")
_PREFER = _header("Prefer", "`wait=N`: answer when the job has ended, after N seconds at the latest.")


def _body(schema: str) -> Schema:
    form = obj(("request",), request=ref(schema))
    kinds = {**content(ref(schema)), **content(form, "multipart/form-data")}
    return {"required": True, "description": "May be compressed with gzip or zstd.", "content": kinds}


def _answers(ok: dict[int, Schema | None], *errors: int, error: str = "Problem") -> dict[str, Schema]:
    wrong = content(ref(error), "application/problem+json" if error == "Problem" else "application/json")
    found: dict[str, Schema] = {}
    for status, schema in ok.items():
        found[str(status)] = {"description": "Success", **({"content": content(schema)} if schema else {})}
    return found | {str(status): {"description": "Failure", "content": wrong} for status in errors}


_WRITE_ERRORS = (400, 401, 403, 404, 408, 413, 415, 421, 422, 429, 503)
_SYNC_ERRORS = (*_WRITE_ERRORS, 409, 410, 500, 504)
PATHS: dict[str, dict[str, Schema]] = {
    "/v1/jobs": {
        "post": {
            "summary": "Accept a job",
            "parameters": [_header("Idempotency-Key", "The same key and body give the same job."), _PREFER],
            "requestBody": _body("JobRequest"),
            "responses": _answers({200: ref("Job"), 202: ref("Job")}, *_WRITE_ERRORS, 409, 507),
        },
        "get": {
            "summary": "The caller's jobs, newest first",
            "parameters": [
                _query("status", {"enum": [status.value for status in JobStatus]}),
                _query("after", {"type": "string"}),
                _query("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
            ],
            "responses": _answers({200: ref("JobList")}, 401, 404, 422, 503),
        },
    },
    "/v1/jobs/{job_id}": {
        "get": {
            "summary": "A job",
            "parameters": [_JOB_ID, _PREFER, _header("If-None-Match", "An ETag: 304 while it is still that version.")],
            "responses": _answers({200: ref("Job"), 304: None}, 401, 404, 410, 503),
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
            "responses": _answers({200: ref("Job"), 202: ref("Job")}, 401, 403, 404, 410, 503),
        }
    },
    "/v1/jobs/{job_id}/events": {
        "get": {
            "summary": "The job's events as they come",
            "parameters": [_JOB_ID, _header("Last-Event-ID", "Go on behind this event.")],
            "responses": {
                "200": {"description": "Events", "content": content({"type": "string"}, "text/event-stream")},
                **_answers({}, 401, 404, 410, 422, 503),
            },
        }
    },
    "/v1/systemone": {
        "post": {
            "summary": "Ask, and wait for the answers",
            "parameters": [_JOINING_KEY, _PREFER_ASYNC],
            "requestBody": _body("SystemOneRequest"),
            "responses": _answers(
                {200: ref("SystemOneResponse"), 202: ref("Job")}, *_SYNC_ERRORS, 529, error="SystemOneError"
            ),
        }
    },
    "/v1/decisions": {
        "post": {
            "summary": "Ask in the shape of OpenAI's Decisions, and wait for the answers",
            "parameters": [_JOINING_KEY, _PREFER_ASYNC],
            "requestBody": {
                "required": True,
                "description": "May be compressed with gzip or zstd.",
                "content": content(ref("DecisionsRequest")),
            },
            "responses": _answers(
                {200: ref("DecisionsResponse"), 202: ref("Job")}, *_SYNC_ERRORS, error="DecisionsError"
            ),
        }
    },
    "/v1/images/{sha256}": {
        "put": {
            "summary": "Store a picture, to be named by its hash",
            "parameters": [_SHA256],
            "requestBody": {"required": True, "content": {"image/*": {}, "application/octet-stream": {}}},
            "responses": _answers(
                {200: ref("Image"), 201: ref("Image")}, 400, 401, 403, 408, 413, 415, 421, 422, 503, 507
            ),
        },
        "head": {
            "summary": "Whether a picture is stored; its time to live starts again",
            "parameters": [_SHA256],
            "responses": _answers({200: None}, 401, 404, 421, 503),
        },
    },
    "/v1/models": {
        "get": {
            "summary": "The names a request may use",
            "responses": _answers({200: ref("Models")}, error="SystemOneError"),
        }
    },
    "/healthz": {"get": {"summary": "This process answers", "responses": _answers({200: obj()})}},
    "/readyz": {
        "get": {
            "summary": "A request would be answered now",
            "responses": {
                **_answers({200: obj()}),
                "503": {"description": "Not ready", "content": content(obj())},
            },
        }
    },
    "/metrics": {
        "get": {
            "summary": "Prometheus metrics",
            "responses": {"200": {"description": "Metrics", "content": content({"type": "string"}, "text/plain")}},
        }
    },
    "/docs": {
        "get": {
            "summary": "This document as a page",
            "responses": {"200": {"description": "A page", "content": content({"type": "string"}, "text/html")}},
        }
    },
    "/openapi.json": {"get": {"summary": "This document", "responses": _answers({200: obj()})}},
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
