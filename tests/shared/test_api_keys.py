"""The file of API keys, and the command that changes it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

from photocall.api_keys import ApiKey, KeyFile, KeyFileError, digest_of
from photocall.cli import main
from photocall.connections import connect_async
from photocall.key_limits import BadLimit, KeyLimits
from photocall.key_uses import KeyUses
from photocall.local import LocalStack, socket_url
from photocall.redis_server import RedisServer


def test_a_key_is_seen_once_and_kept_as_its_hash(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "state" / "keys")
    made = file.create("ann", ["ask"])
    other = file.create("bob")
    assert made != other
    assert made not in file.path.read_text()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert file.read() == (ApiKey("ann", digest_of(made), frozenset({"ask"})), ApiKey("bob", digest_of(other)))
    file.revoke("ann")
    assert [key.id for key in file.read()] == ["bob"]
    assert [path.name for path in file.path.parent.iterdir()] == ["keys"]


def test_what_people_wrote_stays(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    file.path.write_text(f"# people\nann:{'a' * 64}  # until May\n")
    file.create("bob")
    file.revoke("bob")
    assert file.path.read_text() == f"# people\nann:{'a' * 64}  # until May\n"


def test_who_could_read_the_file_can_read_it_still(tmp_path: Path) -> None:
    """Its mode stays, and a link to it stays a link."""
    there = tmp_path / "there"
    there.mkdir()
    (there / "keys").write_text(f"ann:{'a' * 64}\n")
    (there / "keys").chmod(0o640)
    (tmp_path / "keys").symlink_to(there / "keys")
    KeyFile(tmp_path / "keys").create("bob")
    assert (tmp_path / "keys").is_symlink()
    assert stat.S_IMODE((there / "keys").stat().st_mode) == 0o640
    assert [key.id for key in KeyFile(there / "keys").read()] == ["ann", "bob"]


@pytest.mark.parametrize(
    ("owner", "scopes"), [("", ["ask"]), ("a:b", ["ask"]), ("a b", ["ask"]), ("c", ["root"]), ("c", [])]
)
def test_what_cannot_be_made_changes_nothing(tmp_path: Path, owner: str, scopes: list[str]) -> None:
    file = KeyFile(tmp_path / "keys")
    with pytest.raises(KeyFileError):
        file.create(owner, scopes)
    assert not file.path.exists()


def test_an_id_has_one_key(tmp_path: Path) -> None:
    file = KeyFile(tmp_path / "keys")
    file.create("ann")
    with pytest.raises(KeyFileError, match="revoke it first"):
        file.create("ann")
    with pytest.raises(KeyFileError, match="no key 'bob'"):
        file.revoke("bob")


def test_changes_at_once_all_happen(tmp_path: Path) -> None:
    """Each wrote back what it had read: keys were lost, and one that was revoked was there again."""
    path = tmp_path / "keys"
    for i in range(8):
        KeyFile(path).create(f"old-{i}")
    with ThreadPoolExecutor(16) as pool:
        changes: list[Future[Any]] = [pool.submit(KeyFile(path).revoke, f"old-{i}") for i in range(8)]
        changes += [pool.submit(KeyFile(path).create, f"new-{i}") for i in range(8)]
        for change in changes:
            change.result()
    assert {key.id for key in KeyFile(path).read()} == {f"new-{i}" for i in range(8)}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("rate=10/s", "rate=10/s"),
        ("rate=10/s,burst=10", "rate=10/s"),
        ("concurrency=32,burst=20,rate=600/min", "rate=600/min,burst=20,concurrency=32"),
        ("rate=5000/h", "rate=5000/h"),
        ("", ""),
    ],
)
def test_limits_are_written_as_they_are_read(tmp_path: Path, text: str, shown: str) -> None:
    limits = KeyLimits.parse(text)
    assert limits.shown == shown
    assert KeyLimits.parse(limits.shown) == limits
    file = KeyFile(tmp_path / "keys")
    file.create("ann", ["ask", "admin"], limits)
    assert [(key.scopes, key.limits) for key in file.read()] == [(frozenset({"ask", "admin"}), limits)]


@pytest.mark.parametrize(
    "text",
    ["rate=10", "rate=10/d", "rate=0/s", "rate=-1/s", "rate=1.5/s", "rate=9999999/s", "burst=3", "concurrency=0",
     "concurrency=x", "rate=1/s,rate=2/s", "speed=3", "rate", "rate=1/s,burst=0"],
)  # fmt: skip
def test_a_limit_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadLimit):
        KeyLimits.parse(text)


@pytest.mark.parametrize("name", ["x" * 65, "a b", "a:b", "é", "-a"])
def test_a_line_written_by_hand_has_an_id_as_any_other(tmp_path: Path, name: str) -> None:
    """It becomes part of Redis keys: a colon in it would make it a part of another's."""
    file = KeyFile(tmp_path / "keys")
    file.path.write_text(f"# mine\n{name}:{'a' * 64}\n")
    with pytest.raises(KeyFileError, match="64 at most, in line 2"):
        file.read()


def test_a_line_without_scopes_is_no_admin_s(tmp_path: Path) -> None:
    """As such lines were written before there was one."""
    file = KeyFile(tmp_path / "keys")
    file.path.write_text(f"ann:{'a' * 64}\nbob:{'b' * 64}::rate=1/s\n")
    ann, bob = file.read()
    assert ann.scopes == bob.scopes == {"ask", "batch"}
    assert (ann.limits.shown, bob.limits.shown) == ("", "rate=1/s")


@pytest.fixture
def command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Runs `photocall keys ...` on a file of its own: status, output and errors."""
    for name in [name for name in os.environ if name.startswith("PHOTOCALL_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PHOTOCALL_API_KEYS", str(tmp_path / "keys"))
    monkeypatch.setenv("PHOTOCALL_REDIS_URL", "unix:///nonexistent/redis.sock")

    def run(*arguments: str) -> tuple[int, str, str]:
        status = main(["keys", *arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_the_command(command: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    status, made, _ = command("create", "ann", "--scopes", "batch")
    assert status == 0
    assert KeyFile(tmp_path / "keys").read()[0].digest == digest_of(made.strip())
    assert command("create", "root", "--scope", "admin", "--scope", "ask,batch")[0] == 0
    assert command("create", "bob", "--rate", "10/s", "--burst", "20", "--concurrency", "32")[0] == 0
    status, listed, errors = command("list")
    assert status == 0
    assert "Redis does not answer" in errors
    assert [line.split() for line in listed.splitlines()] == [
        ["ID", "SCOPES", "LIMITS", "LAST", "USED"],
        ["ann", "batch", "-", "?"],
        ["root", "ask,batch,admin", "-", "?"],
        ["bob", "ask,batch", "rate=10/s,burst=20,concurrency=32", "?"],
    ]
    status, told, _ = command("revoke", "ann", "--json")
    assert (status, json.loads(told)) == (0, {"id": "ann", "revoked": True})
    assert command("revoke", "ann", "--json")[:2] == (2, "")
    for bad in (["--rate", "fast"], ["--scope", "root"], ["--burst", "3"], ["--concurrency", "0"]):
        status, _, errors = command("create", "eve", *bad)
        assert status == 2
        assert str(tmp_path / "keys") in errors
    assert [key.id for key in KeyFile(tmp_path / "keys").read()] == ["root", "bob"]


def test_the_command_needs_a_file(
    command: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PHOTOCALL_API_KEYS")
    status, _, errors = command("list")
    assert status == 2
    assert "PHOTOCALL_API_KEYS" in errors


def test_settings_limit_new_keys(
    command: Callable[..., tuple[int, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHOTOCALL_KEY_RATE", "5/s")
    monkeypatch.setenv("PHOTOCALL_KEY_BURST", "15")
    monkeypatch.setenv("PHOTOCALL_KEY_CONCURRENCY", "8")
    command("create", "usual")
    command("create", "own", "--rate", "60/min", "--concurrency", "none")
    command("create", "free", "--rate", "none", "--concurrency", "none")
    assert [key.limits.shown for key in KeyFile(tmp_path / "keys").read()] == [
        "rate=5/s,burst=15,concurrency=8", "rate=60/min", "",
    ]  # fmt: skip
    monkeypatch.setenv("PHOTOCALL_KEY_RATE", "fast")
    status, _, errors = command("create", "eve")
    assert status == 2
    assert "PHOTOCALL_KEY_RATE='fast'" in errors


def test_the_list_says_when_a_key_was_last_used(
    command: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
    redis_server: RedisServer,
    redis_client: redis.Redis,
) -> None:
    monkeypatch.setenv("PHOTOCALL_REDIS_URL", redis_server.url)
    command("create", "ann")
    command("create", "bob")

    async def call_often() -> None:
        now = [1_800_000_000.0]
        client = connect_async(redis_server.url)
        uses = KeyUses(client, lambda: now[0])
        for _ in range(100):
            uses.note("ann")
            await uses.close()  # two writes at once, as no real minute has them, may arrive in either order
            now[0] += 1.0
        await client.aclose()

    redis_client.config_resetstat()
    asyncio.run(call_often())
    writes: Any = redis_client.info("commandstats")
    assert writes["cmdstat_set"]["calls"] == 2, "one a minute"
    _, listed, errors = command("list")
    assert not errors
    assert [line.split()[3:] for line in listed.splitlines()[1:]] == [["2027-01-15", "08:01Z"], ["never"]]


def test_the_redis_of_photocall_up_is_found(tmp_path: Path) -> None:
    assert socket_url(tmp_path) is None
    stack = LocalStack.plan({"PHOTOCALL_DATA": str(tmp_path), "PHOTOCALL_PORT": "0"})
    assert stack.run_dir is not None
    try:
        (stack.run_dir / "redis.sock").touch()
        assert socket_url(tmp_path) == stack.redis_url
    finally:
        shutil.rmtree(stack.run_dir)
