"""The page at /docs: the API's description as HTML, made here whole: no script, and no other request."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from html import escape
from typing import Any

from photocall_gateway.openapi_parts import Schema
from photocall_gateway.schema_text import SchemaText

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


class _Html:
    between_values = " | "

    def text(self, text: str) -> str:
        return escape(text)

    def code(self, text: str) -> str:
        return f"<code>{escape(text)}</code>"

    def link(self, name: str) -> str:
        return f"<a href='#{escape(name)}'>{escape(name)}</a>"


WORDS = SchemaText(_Html())


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
        (f"<code>{escape(p['name'])}</code> ({p['in']})", escape(p.get("description", "")) or WORDS.line(p["schema"]))
        for p in operation.get("parameters", [])
    ]
    if "requestBody" in operation:
        rows.append(("body", WORDS.bodies(operation["requestBody"]["content"])))
    answers = WORDS.answers(operation["responses"])
    rows += [(f"<code>{' '.join(statuses)}</code>", shown) for statuses, shown in answers]
    title = f"<span class='method'>{method.upper()}</span> <code>{escape(path)}</code>"
    return f"<h3>{title}</h3>{escape(operation['summary'])}.{_table(rows)}"


def _schema(name: str, schema: Schema) -> str:
    rows = WORDS.fields(schema)
    body = _table(rows) if rows else f"<p>{WORDS.line(schema)}"
    return f"<h3 id='{escape(name)}'>{escape(name)}</h3>{body}"


def _table(rows: list[tuple[str, str]]) -> str:
    return f"<table>{''.join(f'<tr><td>{left}<td>{right}' for left, right in rows)}</table>"
