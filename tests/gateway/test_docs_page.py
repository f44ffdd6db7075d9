"""The page at /docs: everything that is described, and nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from photocall_gateway.app import ROUTES
from photocall_gateway.docs_page import WORDS
from photocall_gateway.openapi import document


class Page(HTMLParser):
    """What stands in a page: tags, ids, targets, text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.targets: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.targets |= {value or "" for name, value in attrs if name in ("href", "src", "action")}

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def page(client: TestClient) -> Page:
    response = client.get("/docs")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")
    return Page(response.text)


def test_every_call_and_every_schema_is_there(page: Page) -> None:
    described = document(ROUTES)
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            assert f"{method.upper()} {path}" in page.text
            assert operation["summary"] in page.text
            assert all(status in page.text for status in operation["responses"])
    assert sorted(page.ids) == sorted(described["components"]["schemas"])
    for schema in described["components"]["schemas"].values():
        for name in schema.get("properties", {}):
            assert name in page.text


def test_it_asks_for_nothing_and_runs_nothing(client: TestClient, page: Page) -> None:
    assert page.targets - {"/openapi.json"} == {f"#{name}" for name in page.ids if f"#{name}" in page.targets}
    assert not page.tags & {"script", "link", "img", "iframe", "object"}
    text = client.get("/docs").text
    assert "@import" not in text
    assert "url(" not in text
    policy = client.get("/docs").headers["content-security-policy"]
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; frame-ancestors 'none'"


def test_what_is_described_is_text_and_not_markup() -> None:
    assert WORDS.line({"type": "string", "description": "<b>&"}) == "string. &lt;b&gt;&amp;"
    assert WORDS.line({"enum": ["<x>", None]}) == "<code>&quot;&lt;x&gt;&quot;</code> | <code>null</code>"


def test_limits_are_said() -> None:
    array = {"type": "array", "items": {"$ref": "#/components/schemas/A"}, "minItems": 1, "maxItems": 2}
    assert WORDS.line(array) == "array of (<a href='#A'>A</a>), at least 1 items, at most 2 items"
