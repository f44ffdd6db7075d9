"""The small parts that the description of the API is put together from."""

from __future__ import annotations

from typing import Any

from photocall import names

Schema = dict[str, Any]
NAME: Schema = {"type": "string", "maxLength": names.MAX_NAME_CHARS}
PROVENANCE: Schema = {
    "type": ["boolean", "null"],
    "default": False,
    "description": "The answer says what it comes from, and may be replayed; docs/provenance.md.",
}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def content(schema: Schema, kind: str = "application/json") -> Schema:
    return {kind: {"schema": schema}}


def obj(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}
