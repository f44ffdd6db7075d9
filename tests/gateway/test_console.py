"""The console's files: served to anybody, whole, under a policy that lets nothing else in. What a user does with them:
tests/stack/test_console.py.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from photocall.settings import GatewaySettings, SettingsError
from photocall_gateway.app import create_app
from photocall_gateway.console_files import FOLDER, ConsoleFiles
from tests.gateway.conftest import POLICY
from tests.gateway.key_helper import keyed

SCRIPTS = sorted(FOLDER.glob("*.js"))
# Ways of making markup or code out of text. The policy of the page refuses them too, in browsers that know it.
FROM_TEXT = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "srcdoc",
             "createContextualFragment", "DOMParser", "setAttribute('style'", "javascript:")  # fmt: skip


def test_the_page_needs_no_key_and_its_data_does(settings: GatewaySettings) -> None:
    with TestClient(create_app(keyed(settings, ann="ask"), POLICY), base_url="http://x") as http:
        page = http.get("/")
        assert page.status_code == 200
        assert page.headers["content-type"].startswith("text/html")
        named = re.findall(r'(?:src|href)="/console/([^"]+)"', page.text)
        assert "main.js" in named
        for name in named:
            assert http.get(f"/console/{name}").status_code == 200, name
        for path in ("/v1/status", "/v1/jobs", "/v1/batches", "/console"):
            assert http.get(path).status_code == 401, path


def test_the_policy_lets_in_nothing_but_the_server_s_own_files(client: TestClient) -> None:
    for path in ("/", "/console/main.js"):
        headers = client.get(path).headers
        policy = dict(part.strip().partition(" ")[::2] for part in headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["img-src"] == "'self' blob:"
        assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_an_unchanged_file_is_not_sent_again(client: TestClient) -> None:
    first = client.get("/console/main.js")
    again = client.get("/console/main.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("name", ["none.js", "..%2Fapp.py", "%2e%2e%2f__init__.py", "a/b.js"])
def test_there_is_nothing_else_to_be_had(client: TestClient, name: str) -> None:
    assert client.get(f"/console/{name}").status_code == 404


def test_it_can_be_switched_off(settings: GatewaySettings) -> None:
    off = replace(settings, console=False)
    with TestClient(create_app(off, POLICY), base_url="http://127.0.0.1") as http:
        assert http.get("/").status_code == http.get("/console/main.js").status_code == 404
        assert "PHOTOCALL_CONSOLE" in http.get("/").json()["detail"]
        assert http.get("/v1/status").status_code == 200
    assert GatewaySettings.from_env({"PHOTOCALL_CONSOLE": "0"}).console is False
    with pytest.raises(SettingsError, match="PHOTOCALL_CONSOLE"):
        GatewaySettings.from_env({"PHOTOCALL_CONSOLE": "maybe"})


def test_a_foreign_name_gets_no_page_from_an_open_server(client: TestClient) -> None:
    assert client.get("/", headers={"host": "evil.example"}).status_code == 421


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_no_script_makes_markup_or_code_of_text(script: Path) -> None:
    text = script.read_text()
    assert [word for word in FROM_TEXT if word in text] == []
    assert text.startswith("// "), "the first line says what the file is"


def test_nothing_is_asked_of_anybody_else_and_every_import_is_there() -> None:
    files = ConsoleFiles()
    assert {path.name for path in FOLDER.iterdir()} == set(files.names)
    for path in FOLDER.iterdir():
        text = path.read_text()
        outside = set(re.findall(r"(?:https?:)?//[a-z0-9-]+\.[a-z]+[^\s\"'`)]*", text)) - {"http://www.w3.org/2000/svg"}
        assert outside == set(), path.name
        assert "@import" not in text
        for name in re.findall(r'from "\./([^"]+)"', text):
            assert name in files.names, f"{path.name} imports {name}"


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    page = (FOLDER / "index.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\ssrc=)", page)
