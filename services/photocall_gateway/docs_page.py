"""The page at /docs: the API's description as HTML, made here whole: no script, and no other request."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from photocall_gateway.openapi_parts import Schema

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f24 }
h2 { border-bottom: 1px solid #d0d7de; margin-top: 2.5rem } h3 { margin: 2rem 0 .3rem }
code, .method { font-family: ui-monospace, monospace; font-size: .92em } .method { font-weight: 700 }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 } a { color: #0550ae }
th, td { text-align: left; vertical-align: top; padding: .2rem .8rem .2rem 0; border-top: 1px solid #eaeef2 }
@media (prefers-color-scheme: dark) { body { background: #0d1117; color: #e6edf3 } a { color: #79c0ff } }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
HEADERS = {
    "content-security-policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
}
_LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "minProperties": "at least {} entries",
    "maxProperties": "at most {} entries",
    "maxLength": "at most {} characters",
    "default": "default {}",
}


def page(described: Mapping[str, Any]) -> str:
    """The whole page of an API description."""
    info = described["info"]
    return "\n".join(
        [
            f"<!doctype html>\n<html lang='en'><meta charset='utf-8'><title>{escape(info['title'])}</title>",
            f"<meta name='viewport' content='width=device-width'><style>{_STYLE}</style>",
            f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info['description'])}",
            "<p>For programs: <a href='/openapi.json'>/openapi.json</a>.<h2>Calls</h2>",
            *(
                _operation(path, method, operation)
                for path, methods in described["paths"].items()
                for method, operation in methods.items()
            ),
            "<h2>What they carry</h2>",
            *(_schema(name, schema) for name, schema in described["components"]["schemas"].items()),
            "</html>",
        ]
    )


def _operation(path: str, method: str, operation: Mapping[str, Any]) -> str:
    rows = [
        (f"<code>{escape(p['name'])}</code> ({p['in']})", escape(p.get("description", "")) or _type(p["schema"]))
        for p in operation.get("parameters", [])
    ]
    if "requestBody" in operation:
        rows.append(("body", _bodies(operation["requestBody"]["content"])))
    rows += _answers(operation["responses"])
    title = f"<span class='method'>{method.upper()}</span> <code>{escape(path)}</code>"
    return f"<h3>{title}</h3>{escape(operation['summary'])}.{_table(rows)}"


def _bodies(content: Mapping[str, Any]) -> str:
    kinds = [(_type(media.get("schema", {})), escape(kind)) for kind, media in content.items()]
    return "; ".join(f"{schema} as <code>{kind}</code>" if schema else f"<code>{kind}</code>" for schema, kind in kinds)


def _answers(responses: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A row for each different answer, with every status that comes with it."""
    statuses: dict[str, list[str]] = {}
    for status, answer in sorted(responses.items()):
        shown = f"{escape(answer['description'])}: {_bodies(answer.get('content', {})) or 'no body'}"
        statuses.setdefault(shown, []).append(status)
    return [(f"<code>{' '.join(found)}</code>", shown) for shown, found in statuses.items()]


def _schema(name: str, schema: Schema) -> str:
    required = schema.get("required", [])
    rows = [
        (f"<code>{escape(field)}</code>{' *' if field in required else ''}", _type(inner))
        for field, inner in schema.get("properties", {}).items()
    ]
    body = _table(rows) if rows else f"<p>{_type(schema)}"
    return f"<h3 id='{escape(name)}'>{escape(name)}</h3>{body}"


def _type(schema: Schema) -> str:
    """One schema in a line: its type, its bounds, and what it says of itself."""
    found = [part for part in (_kind(schema), ", ".join(_limits(schema))) if part]
    said = escape(schema.get("description", ""))
    return ", ".join(found) + (f". {said}" if said and found else said)


def _kind(schema: Schema) -> str:
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f"<a href='#{name}'>{name}</a>"
    for joined in ("oneOf", "anyOf"):
        if joined in schema:
            return "; or ".join(_type(option) for option in schema[joined])
    if "const" in schema or "enum" in schema:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        return " | ".join(f"<code>{escape(json.dumps(value))}</code>" for value in values)
    kind = schema.get("type", "")
    text = escape(kind if isinstance(kind, str) else " or ".join(kind))
    if "items" in schema:
        return f"{text} of ({_type(schema['items'])})"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"{text} with any names, of ({_type(schema['additionalProperties'])})"
    if schema.get("properties"):
        return f"{text} ({'; '.join(f'<code>{escape(k)}</code>: {_type(v)}' for k, v in schema['properties'].items())})"
    return text


def _limits(schema: Schema) -> Iterator[str]:
    for name, text in _LIMITS.items():
        if name in schema:
            yield escape(text.format(json.dumps(schema[name])))


def _table(rows: list[tuple[str, str]]) -> str:
    return f"<table>{''.join(f'<tr><td>{left}<td>{right}' for left, right in rows)}</table>"
