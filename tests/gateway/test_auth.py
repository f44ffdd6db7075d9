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
from photocall_gateway import key_ring
from photocall_gateway.auth import Gatekeeper, check_bind, host_name
from photocall_gateway.caller import CALLER, Caller
from photocall_gateway.key_ring import KeyRing

NONE = KeyRing(None)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Keys of two callers; the second one's is for batches only."""
    file = tmp_path / "keys"
    digests = [hashlib.sha256(key).hexdigest() for key in (b"secret-1", b"secret-2")]
    file.write_text(f"# people\nann:{digests[0].upper()}  # note\n\nbob:{digests[1]}:batch\n")
    return file


class Counted:
    """A turnstile that lets everybody in."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    async def enter(self, caller: Caller, scope: Scope) -> None:
        self.ids.append(caller.id)


def owner(keys: KeyRing, method: str = "GET", path: str = "/v1/jobs", **headers: str) -> Any:
    """The owner that the gatekeeper notes for a request."""
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope[CALLER].id)

    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "path": path, "headers": raw}
    asyncio.run(Gatekeeper(app, keys, ["photos.lan"], Counted())(scope, None, None))  # type: ignore[arg-type]
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


def test_metrics_are_read_by_address_too_but_by_no_strangers_name() -> None:
    """A scrape of a container has its address in the Host header; a page that rebinds a name has the name."""
    for host in ("10.0.0.1:8080", "[fd00::1]:8080", "localhost"):
        assert owner(NONE, path="/metrics", host=host) == "local"
    for host in ("evil.example", "10.0.0.1.evil.example:8080", ""):
        with pytest.raises(CodedError):
            owner(NONE, path="/metrics", host=host)


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
    for path in ("/metrics", "/", "/console/main.js"):
        assert owner(keys, path=path) == "local"
    for path in ("/console", "/consoles/main.js", "//"):
        with pytest.raises(CodedError):
            owner(keys, path=path)


# What a key of one scope may call; the table in test_strangers.py has every route, this one the edges.
OPEN = {
    "ask": ["GET /v1/jobs", "POST /v1/systemone", "POST /v1/sessions/s/turns", "POST /v1/jobs/job_1/cancel", "GET /x"],
    "batch": ["POST /v1/files", "GET /v1/batches/batch_1", "DELETE /v1/batches/batch_1", "POST /v1/batches/b/cancel"],
    "admin": ["GET /v1/jobs", "GET /v1/jobs/job_1", "GET /v1/jobs/job_1/events", "POST /v1/jobs/job_1/cancel",
              "GET /v1/batches", "GET /v1/batches/b/events", "POST /v1/batches/b/cancel", "GET /v1/keys"],
}  # fmt: skip
ANYBODY = ["GET /v1/models", "GET /v1/status", "GET /v1/webhooks/secret", "GET /v1/channels"]
SHUT = {
    "ask": ["GET /v1/files", "GET /v1/batches/b", "POST /v1/batches/b/cancel", "GET /v1/keys", "GET /v1/keys/x"],
    "batch": ["POST /v1/jobs", "GET /v1/jobs/job_1", "GET /v1/images/x/seen.png", "GET /x", "GET /v1/batchesx",
              "GET /v1/filesystem", "GET /v1/keys"],
    "admin": ["POST /v1/jobs", "DELETE /v1/jobs/job_1", "POST /v1/systemone", "GET /v1/sessions/s", "POST /v1/batches",
              "DELETE /v1/batches/b", "POST /v1/batches/b/retry-failed", "GET /v1/files", "GET /v1/images/x/report",
              "DELETE /v1/jobs/cancel", "GET /v1/jobsx"],
}  # fmt: skip


@pytest.mark.parametrize("scope", ["ask", "batch", "admin"])
def test_a_key_is_for_its_scopes(tmp_path: Path, scope: str) -> None:
    made = KeyFile(tmp_path / "keys").create("eve", [scope])
    keys = KeyRing(tmp_path / "keys")
    for call in OPEN[scope] + ANYBODY:
        method, path = call.split()
        assert owner(keys, method, path, authorization=f"Bearer {made}") == "eve", call
    for call in SHUT[scope]:
        method, path = call.split()
        with pytest.raises(CodedError) as caught:
            owner(keys, method, path, authorization=f"Bearer {made}")
        assert caught.value.code == "missing_scope", call
        assert caught.value.data["scope"] != scope, call


def test_keys_come_and_go_without_a_restart(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_ring, "LOOK_S", 0.0)
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


def test_who_is_gone_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Revoked, or with other scopes; other limits, and another's revocation, end nothing."""
    monkeypatch.setattr(key_ring, "LOOK_S", 0.0)
    keys, told = KeyRing(file), []

    async def scenario() -> None:
        watching = asyncio.create_task(keys.watch(revoked=lambda: told.append(True)))
        await asyncio.sleep(0)
        ann, bob = keys.find("secret-1"), keys.find("secret-2")
        assert ann is not None
        assert bob is not None
        lines = file.read_text().replace(":batch", ":batch:rate=5/min")
        file.write_text(lines)
        assert keys.find("secret-2") is bob
        assert keys.limits_of("bob").rate is not None
        file.write_text(lines.replace(":batch:", ":ask,batch:"))
        while not told:
            await asyncio.sleep(0)  # nobody calls: the watch notices
        assert (ann.revoked, bob.revoked) == (False, True)
        changed = keys.find("secret-2")
        assert changed is not None
        assert changed.scopes == {"ask", "batch"}
        file.write_text(lines.replace("ann", "# ann"))
        assert keys.find("secret-1") is None
        assert ann.revoked
        watching.cancel()

    asyncio.run(scenario())


def test_a_revocation_that_could_not_be_read_at_once_is_read_later(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_ring, "LOOK_S", 0.0)
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
    "content",
    [
        "", "# nobody\n", "ann:abc\n", "x" * 64, f"ann:{'g' * 64}", f"ann:{'a' * 64}:root", f"ann:{'a' * 64}:ask:",
        f"ann:{'a' * 64}:ask:rate=10", f"ann:{'a' * 64}:ask:burst=3", f"ann:{'a' * 64}:ask:rate=0/s",
        f"ann:{'a' * 64}:ask:rate=1/s,rate=2/s", f"ann:{'a' * 64}:ask:concurrency=0",
        f"ann:{'a' * 64}:ask:rate=1/s\nann:{'b' * 64}:ask:rate=2/s",
    ],
)  # fmt: skip
def test_a_bad_key_file_stops_the_start(tmp_path: Path, content: str) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(SettingsError, match="PHOTOCALL_API_KEYS"):
        KeyRing(file)
    with pytest.raises(SettingsError, match="readable"):
        KeyRing(tmp_path / "none")
