"""Who may call: loopback names and origins without keys, keys where there are some."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from photocall.errors import CodedError
from photocall.settings import GatewaySettings, SettingsError
from photocall_gateway.auth import OWNER, Gatekeeper, check_bind, host_name, load_keys

KEYS = {hashlib.sha256(b"secret-1").hexdigest(): "ann", hashlib.sha256(b"secret-2").hexdigest(): "bob"}


def owner(keys: dict[str, str], method: str = "GET", path: str = "/v1/jobs", **headers: str) -> Any:
    """The owner that the gatekeeper notes for a request."""
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope[OWNER])

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": raw}
    asyncio.run(Gatekeeper(app, keys, ["photos.lan"])(scope, None, None))  # type: ignore[arg-type]
    return seen[0]


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8080", "localhost", "LOCALHOST:80", "[::1]:8080", "127.8.9.1", "photos.lan:8080", "Photos.LAN"]
)
def test_local_names_may_call(host: str) -> None:
    assert owner({}, host=host) == "local"
    assert owner({}, method="POST", host=host, origin=f"http://{host}") == "local"


@pytest.mark.parametrize(
    "host", ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1"]
)
def test_an_unknown_host_is_refused(host: str) -> None:
    with pytest.raises(CodedError) as caught:
        owner({}, host=host)
    assert caught.value.code == "unknown_host"
    assert owner({}, path="/healthz", host=host) == "local"


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:9999", "http://localhost:8080.evil"]
)
@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
def test_a_write_from_another_origin_is_refused(method: str, origin: str) -> None:
    with pytest.raises(CodedError) as caught:
        owner({}, method=method, host="localhost:8080", origin=origin)
    assert caught.value.code == "foreign_origin"
    assert owner({}, method="GET", host="localhost:8080", origin=origin) == "local"


def test_keys_decide_alone() -> None:
    assert owner(KEYS, host="anything", authorization="Bearer secret-1") == "ann"
    assert owner(KEYS, host="anything", authorization="bearer  secret-2 ") == "bob"
    assert owner(KEYS, path="/metrics") == "local"


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ({}, "missing_key"),
        ({"authorization": ""}, "missing_key"),
        ({"authorization": "Bearer "}, "missing_key"),
        ({"authorization": "Basic secret-1"}, "missing_key"),
        ({"authorization": "Bearer secret"}, "bad_key"),
        ({"authorization": "Bearer secret-1x"}, "bad_key"),
    ],
)
def test_a_missing_or_wrong_key(header: dict[str, str], code: str) -> None:
    with pytest.raises(CodedError) as caught:
        owner(KEYS, host="localhost", **header)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("host", "name"), [("a:80", "a"), ("[::1]:80", "::1"), ("[::1]", "::1"), ("::1", "::1"), ("A.b", "a.b")]
)
def test_host_names(host: str, name: str) -> None:
    assert host_name(host) == name


def test_listening_beyond_loopback_needs_a_key_or_the_word_of_the_operator(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"PHOTOCALL_HOST='0\.0\.0\.0'"):
        check_bind(GatewaySettings(host="0.0.0.0"))
    check_bind(GatewaySettings(host="127.0.0.1"))
    check_bind(GatewaySettings(host="::1"))
    check_bind(GatewaySettings(host="0.0.0.0", behind_loopback=True))
    check_bind(GatewaySettings(host="0.0.0.0", api_keys=tmp_path / "keys"))


def test_the_key_file(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    lines = [f"{name}:{digest.upper()}" for digest, name in KEYS.items()]
    file.write_text("# people\n" + "\n".join(lines) + "  # note\n\n")
    assert load_keys(file) == KEYS
    assert load_keys(None) == {}


@pytest.mark.parametrize("content", ["", "# nobody\n", "ann:abc\n", "x" * 64, "ann:" + "g" * 64])
def test_a_bad_key_file_stops_the_start(tmp_path: Path, content: str) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(SettingsError, match="PHOTOCALL_API_KEYS"):
        load_keys(file)
    with pytest.raises(SettingsError, match="readable"):
        load_keys(tmp_path / "none")
