"""The description of how a picture may be shown, as fields beside it and as parameters of a query; see `viewing.py`."""

from __future__ import annotations

from photocall.grid import BUDGETS
from photocall.views import AUTO, MAX_DPI, MIN_DPI
from photocall_gateway.described import query
from photocall_gateway.openapi_parts import Schema
from photocall_gateway.viewing import MAX_FRAME

_SAID: dict[str, tuple[Schema, str]] = {
    "page": ({"type": "integer", "minimum": 1, "maximum": MAX_FRAME}, "Of a document, from 1; or `frame`."),
    "frame": ({"type": "integer", "minimum": 0, "maximum": MAX_FRAME}, "Of an animation, from 0; or `page`."),
    "dpi": ({"type": "integer", "minimum": MIN_DPI, "maximum": MAX_DPI}, "At which a page of a PDF is drawn."),
    "background": ({"type": "string", "pattern": "^#?[0-9a-fA-F]{6}$"}, "Colour behind what is transparent."),
    "budget": ({"enum": [AUTO, *BUDGETS]}, "Soft tokens of this picture."),
}


def _or_null(schema: Schema) -> Schema:
    if "enum" in schema:
        return {"enum": [*schema["enum"], None]}
    return {**schema, "type": [schema["type"], "null"]}


VIEW_FIELDS: dict[str, Schema] = {
    name: {**_or_null(schema), "description": description} for name, (schema, description) in _SAID.items()
}
VIEW_QUERY: list[Schema] = [query(name, schema, description) for name, (schema, description) in _SAID.items()]
