"""An API description in words: one schema in a line, the bodies of a call, its answers.

What is said is the same for the page at /docs and for docs/api.md; a `Markup` says how each of them writes it down.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from photocall_gateway.openapi_parts import Schema

_LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} entries",
    "maxProperties": "at most {} entries",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "default": "default {}",
}


class Markup(Protocol):
    """How a document writes things down."""

    between_values: str

    def text(self, text: str) -> str:
        """Ordinary text."""

    def code(self, text: str) -> str:
        """Something to be typed as it is."""

    def link(self, name: str) -> str:
        """A reference to the schema of that name in the same document."""


class SchemaText:
    """Words for the parts of a description, in one markup."""

    def __init__(self, markup: Markup) -> None:
        self._markup = markup

    def line(self, schema: Schema) -> str:
        """One schema in a line: its type, its bounds, and what it says of itself."""
        found = ", ".join(part for part in (self._kind(schema), *self._limits(schema)) if part)
        return ". ".join(part for part in (found, self._markup.text(schema.get("description", ""))) if part)

    def bodies(self, content: Mapping[str, Any]) -> str:
        """What a body may be."""
        kinds = [(self.line(media.get("schema", {})), self._markup.code(kind)) for kind, media in content.items()]
        return "; ".join(f"{schema} as {kind}" if schema else kind for schema, kind in kinds)

    def answers(self, responses: Mapping[str, Any]) -> list[tuple[list[str], str]]:
        """Each different answer, with every status that comes with it."""
        statuses: dict[str, list[str]] = {}
        for status, answer in sorted(responses.items()):
            body = self.bodies(answer.get("content", {})) or "no body"
            statuses.setdefault(f"{self._markup.text(answer['description'])}: {body}", []).append(status)
        return [(found, shown) for shown, found in statuses.items()]

    def fields(self, schema: Schema) -> list[tuple[str, str]]:
        """The fields of an object, those required with a star."""
        required = schema.get("required", [])
        return [
            (f"{self._markup.code(field)}{' *' if field in required else ''}", self.line(inner))
            for field, inner in schema.get("properties", {}).items()
        ]

    def _kind(self, schema: Schema) -> str:
        markup = self._markup
        if "$ref" in schema:
            return markup.link(schema["$ref"].rpartition("/")[2])
        for joined in ("oneOf", "anyOf", "allOf"):
            if joined in schema:
                return "; or ".join(self.line(option) for option in schema[joined])
        if "const" in schema or "enum" in schema:
            values = [schema["const"]] if "const" in schema else schema["enum"]
            return markup.between_values.join(markup.code(json.dumps(value)) for value in values)
        kind = schema.get("type", "")
        text = markup.text(kind if isinstance(kind, str) else " or ".join(kind))
        if "items" in schema:
            return f"{text} of ({self.line(schema['items'])})"
        if isinstance(schema.get("additionalProperties"), Mapping):
            named = self.line(schema.get("propertyNames", {}))
            names = f"names ({named})" if named else "any names"
            return f"{text} with {names}, of ({self.line(schema['additionalProperties']) or 'anything'})"
        if schema.get("properties"):
            inner = "; ".join(f"{markup.code(name)}: {self.line(of)}" for name, of in schema["properties"].items())
            return f"{text} ({inner})"
        return text

    def _limits(self, schema: Schema) -> Iterator[str]:
        for name, text in _LIMITS.items():
            if name in schema:
                yield self._markup.text(text.format(json.dumps(schema[name])))
