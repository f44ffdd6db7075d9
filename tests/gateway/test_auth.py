"""Who may call: loopback names and origins without keys, keys where there are some."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from photocall.api_keys import KeyFile, KeyFileError
from photocall.errors import CodedError
from photocall.settings import GatewaySettings, SettingsError
from photocall_gateway import auth
from photocall_gateway.auth import OWNER, Gatekeeper, KeyRing, check_bind, host_name

NONE = KeyRing(None)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Keys of two callers; the second one's is for batches only."""
    file = tmp_path / "keys"
    digests = [hashlib.sha256(key).hexdigest() for key in (b"secret-1", b"secret-2")]
    file.write_text(f"# people\nann:{digests[0].upper()}  # note\n\nbob:{digests[1]}:batch\n")
    return file


def owner(keys: KeyRing, method: str = "GET", path: str = "/v1/jobs", **headers: str) -> Any:
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
    assert owner(NONE, host=host) == "local"
    assert owner(NONE, method="POST", host=host, origin=f"http://{host}") == "local"


@pytest.mark.parametrize(
    "host", ["", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1"]
)
def test_an_unknown_host_is_refused(host: str) -> None:
    with pytest.raises(CodedError) as caught:
        owner(NONE, host=host)
    assert caught.value.code == "unknown_host"
    assert owner(NONE, path="/healthz", host=host) == "local"


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:9999", "http://localhost:8080.evil"]
)
@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
def test_a_write_from_another_origin_is_refused(method: str, origin: str) -> None:
    with pytest.raises(CodedError) as caught:
        owner(NONE, method=method, host="localhost:8080", origin=origin)
    assert caught.value.code == "foreign_origin"
    assert owner(NONE, method="GET", host="localhost:8080", origin=origin) == "local"


def test_keys_decide_alone(file: Path) -> None:
    keys = KeyRing(file)
    assert owner(keys, host="anything", authorization="Bearer secret-1") == "ann"
    assert owner(keys, host="anything", path="/v1/batches", authorization="bearer  secret-2 ") == "bob"
    assert owner(keys, path="/metrics") == "local"


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/systemone", "/v1/channels", "/v1/sessions/ses_1", "/"])
def test_a_key_is_for_its_scopes(file: Path, path: str) -> None:
    keys = KeyRing(file)
    with pytest.raises(CodedError) as caught:
        owner(keys, path=path, authorization="Bearer secret-2")
    assert (caught.value.code, caught.value.data) == ("missing_scope", {"scope": "ask"})
    for open_to_it in ("/v1/files", "/v1/batches/batch_1", "/v1/models"):
        assert owner(keys, path=open_to_it, authorization="Bearer secret-2") == "bob"


def test_keys_come_and_go_without_a_restart(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "LOOK_S", 0.0)
    keys = KeyRing(file)
    made = KeyFile(file).create("eve", ["ask"])
    assert owner(keys, authorization=f"Bearer {made}") == "eve"
    file.write_text("broken\n")
    assert owner(keys, authorization=f"Bearer {made}") == "eve", "a file that cannot be read locks nobody out"
    file.write_text("")
    with pytest.raises(CodedError, match="Invalid API key"):
        owner(keys, authorization=f"Bearer {made}")
    with pytest.raises(CodedError, match="Missing API key"):
        owner(keys, host="localhost")


def test_a_revocation_that_could_not_be_read_at_once_is_read_later(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth, "LOOK_S", 0.0)
    keys = KeyRing(file)
    made = KeyFile(file).create("eve", ["ask"])
    owner(keys, authorization=f"Bearer {made}")
    KeyFile(file).revoke("eve")
    read = KeyFile.read
    monkeypatch.setattr(KeyFile, "read", lambda self: (_ for _ in ()).throw(KeyFileError("too many open files")))
    assert owner(keys, authorization=f"Bearer {made}") == "eve"
    monkeypatch.setattr(KeyFile, "read", read)
    with pytest.raises(CodedError, match="Invalid API key"):
        owner(keys, authorization=f"Bearer {made}")


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
def test_a_missing_or_wrong_key(file: Path, header: dict[str, str], code: str) -> None:
    with pytest.raises(CodedError) as caught:
        owner(KeyRing(file), host="localhost", **header)
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


@pytest.mark.parametrize(
    "content", ["", "# nobody\n", "ann:abc\n", "x" * 64, f"ann:{'g' * 64}", f"ann:{'a' * 64}:root"]
)
def test_a_bad_key_file_stops_the_start(tmp_path: Path, content: str) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(SettingsError, match="PHOTOCALL_API_KEYS"):
        KeyRing(file)
    with pytest.raises(SettingsError, match="readable"):
        KeyRing(tmp_path / "none")
