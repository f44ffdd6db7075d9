"""The documents say what the code says: the file list, the settings, and the twelve files of a request."""

from __future__ import annotations

import re

import pytest

from ops import cli_reference, docs
from photocall import metrics
from photocall.cli.commands import COMMANDS
from photocall.cli.parser import parser
from photocall.settings import table
from photocall_gateway.app import ROUTES
from photocall_gateway.openapi import document


def test_every_file_of_the_rooms_is_in_architecture_as_it_describes_itself() -> None:
    text = docs.ARCHITECTURE.read_text()
    assert text == docs.with_file_list(text), "run: make docs"


def test_every_folder_with_code_is_listed() -> None:
    with_code = {
        str(path.parent.relative_to(docs.ROOT))
        for room in ("shared", "services", "ops")
        for path in (docs.ROOT / room).rglob("*.py")
    }
    assert with_code <= set(docs.FOLDERS)


def test_the_settings_table_is_the_code_s() -> None:
    text = docs.SETTINGS.read_text()
    assert text == docs.with_generated(text, table()), "run: make docs"


def test_the_tables_of_metrics_are_the_code_s() -> None:
    text = docs.METRICS.read_text()
    assert text == docs.with_generated(text, metrics.table()), "run: make docs"


def test_the_reference_of_the_command_is_its_parsers_and_complete() -> None:
    text = docs.CLI.read_text()
    assert text == docs.with_generated(text, cli_reference.reference()), "run: make docs"
    found = list(cli_reference.commands(parser()))
    assert {name for name, _, _ in found} >= {command.name for command in COMMANDS} | {"batch run", "jobs watch"}
    for name, each, _ in found:
        part = text.partition(f"# photocall {name}\n")[2].partition("\n## ")[0].partition("\n### ")[0]
        for action in filter(cli_reference.shown, each._actions):
            assert action.help, f"photocall {name} {action.dest} does not say what it is"
            assert all(f"`{flag}" in part or f", {flag}" in part for flag in action.option_strings), (name, action.dest)


def test_one_request_can_be_followed_through_at_most_twelve_files_of_the_engine() -> None:
    (sentence,) = re.findall(
        r"To follow a request through the engine, read: (.*?)\. ", docs.ARCHITECTURE.read_text(), re.DOTALL
    )
    names = re.findall(r"`([\w/]+)`", sentence)
    assert 0 < len(names) <= 12
    for name in names:
        assert (docs.ROOT / "services" / "photocall_engine" / f"{name}.py").exists()


def test_every_page_is_in_the_navigation_once() -> None:
    named = re.findall(r"^ +- ([\w-]+\.md)$", (docs.ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [path.name for path in (docs.ROOT / "docs").glob("*.md")]
    assert sorted(named) == sorted(pages), "name each page of docs/ under `nav` in mkdocs.yml"


def test_files_named_in_the_prose_exist() -> None:
    prose = docs.ARCHITECTURE.read_text().partition(docs.BEGIN)[0]
    sources = {
        path.name for room in ("shared", "services", "ops") for path in (docs.ROOT / room).rglob("*") if path.is_file()
    }
    named = {name.rpartition("/")[2] for name in re.findall(r"`([\w/]+\.(?:py|lua))`", prose)}
    assert len(named) > 15
    assert named <= sources


def test_a_file_that_says_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="has no"):
        docs.with_generated("no marks here", "x")


def test_the_api_reference_is_the_routes_and_complete() -> None:
    text = docs.API.read_text()
    assert text == docs.api(), "run: make docs"
    described = document(ROUTES)
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            part = text.partition(f"### {method.upper()} {path}\n")[2].partition("\n### ")[0]
            assert part, path
            assert all(f"`{status}`" in part for status in operation["responses"]), path
    for name, schema in described["components"]["schemas"].items():
        part = text.partition(f"### {name}\n")[2].partition("\n### ")[0]
        assert all(f"`{field}`" in part for field in schema.get("properties", {})), name
