"""A route together with its description: what is served and what is said of it stand in one place.

`Described(path, endpoint, "POST", operation(...), {"Thing": {...}})` is a Starlette route; `openapi.py` collects the
operations and the schemas of all of them. A route that is not described fails a test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.routing import Route, WebSocketRoute

from photocall_gateway.openapi_parts import Schema, content, ref

# What any call may end in: no key or not one for this, a foreign Host, a key's limit, a defect, a store that is away or
# a server that is leaving.
_ANY = (401, 403, 421, 429, 500, 503)
WRITE_ERRORS = (400, 404, 408, 413, 415, 422, 507)  # of a call with a body, besides those of any


class Described(Route):
    """One path and one method, its OpenAPI operation, and the schemas that are used for the first time here."""

    def __init__(
        self, path: str, endpoint: Any, method: str, operation: Schema, schemas: Mapping[str, Schema] | None = None
    ) -> None:
        super().__init__(path, endpoint, methods=[method])
        self.method = method
        self.operation = operation
        self.schemas = dict(schemas or {})


class DescribedSocket(WebSocketRoute):
    """A WebSocket: described as the GET that asks for it."""

    method = "GET"

    def __init__(
        self, path: str, endpoint: Any, operation: Schema, schemas: Mapping[str, Schema] | None = None
    ) -> None:
        super().__init__(path, endpoint)
        self.operation = operation
        self.schemas = dict(schemas or {})


def operation(
    summary: str,
    ok: Mapping[int, Schema | None],
    errors: Sequence[int] = (),
    *,
    parameters: Sequence[Schema] = (),
    body: Schema | None = None,
    error: str = "Problem",
    description: str | None = None,
) -> Schema:
    """An operation. `ok`: schema of the JSON body by status, None for no body, a dict of media types for any other.

    `errors` come beside those that any call may end in; all have the schema named `error`.
    """
    kind = "application/problem+json" if error == "Problem" else "application/json"
    failure = {"description": "Failure", "content": content(ref(error), kind)}
    responses = {str(status): _success(schema) for status, schema in ok.items()}
    for status in sorted({*errors, *_ANY}):
        responses.setdefault(str(status), failure)
    return {
        "summary": summary,
        **({"description": description} if description else {}),
        **({"parameters": list(parameters)} if parameters else {}),
        **({"requestBody": body} if body else {}),
        "responses": responses,
    }


def _success(schema: Schema | None) -> Schema:
    if schema is None:
        return {"description": "Success"}
    if any("/" in key for key in schema):  # media types
        return {"description": "Success", "content": schema}
    return {"description": "Success", "content": content(schema)}


def json_body(schema: str) -> Schema:
    """A required JSON body, named by its schema."""
    described = "May be compressed with gzip or zstd."
    return {"required": True, "description": described, "content": content(ref(schema))}


def header(name: str, description: str, **schema: Any) -> Schema:
    """An optional request header."""
    found = {"type": "string", **schema}
    return {"name": name, "in": "header", "required": False, "description": description, "schema": found}


def query(name: str, schema: Schema, description: str = "") -> Schema:
    """An optional query parameter."""
    said = {"description": description} if description else {}
    return {"name": name, "in": "query", "required": False, **said, "schema": schema}


def in_path(name: str, schema: Schema | None = None) -> Schema:
    """A part of the path."""
    return {"name": name, "in": "path", "required": True, "schema": schema or {"type": "string", "minLength": 1}}
