"""ops/dev.py: what it refuses, with which words, and when it makes the environment anew. Nothing is installed here."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ops import background, dev, environment


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """dev.py pointed at an empty tree, with its subprocess calls recorded instead of run."""
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    for name, path in {"ROOT": ".", "VENV": ".venv", "STAMP": ".venv/photocall-stamp.json"}.items():
        monkeypatch.setattr(environment, name, tmp_path / path)
    for name, path in {"STATE": ".photocall", "PID_FILE": ".photocall/up.pid", "LOG_FILE": ".photocall/up.log"}.items():
        monkeypatch.setattr(background, name, tmp_path / path)
    calls: list[list[str]] = []

    def record(command: list[str]) -> None:
        calls.append(command)
        if "venv" in command:
            (tmp_path / ".venv" / "bin").mkdir(parents=True)
            (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)

    monkeypatch.setattr(environment, "run", record)
    monkeypatch.setattr(environment, "download_size", lambda requirement: "size unknown")
    return calls


def test_the_environment_is_made_once(tree: list[list[str]]) -> None:
    environment.set_up("client")
    assert [call[-1] for call in tree if "--editable" in call] == [f"{environment.ROOT}[client]"]
    tree.clear()
    environment.set_up("client")
    assert tree == []


def test_dev_contains_the_other_extras_but_not_the_other_way_round(tree: list[list[str]]) -> None:
    environment.set_up("client")
    environment.set_up("dev")
    assert sum("venv" in call for call in tree) == 1, "an upgrade keeps the environment"
    tree.clear()
    environment.set_up("client")
    assert tree == []


def test_a_changed_pyproject_makes_it_anew(tree: list[list[str]]) -> None:
    environment.set_up("client")
    (environment.ROOT / "pyproject.toml").write_text("[project]\nname = 'other'\n")
    tree.clear()
    environment.set_up("client")
    assert any("venv" in call for call in tree)


def test_an_interrupted_install_is_not_taken_for_a_finished_one(
    tree: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.set_up("client")

    def interrupted(extras: str) -> None:
        raise environment.PreconditionError("pip was killed")

    monkeypatch.setattr(environment, "install", interrupted)
    with pytest.raises(environment.PreconditionError):
        environment.set_up("dev")
    assert environment.read_stamp() is None


@pytest.mark.parametrize("stamp", ["", "[]", "{}", '{"key": 1}'])
def test_a_broken_stamp_counts_as_none(tree: list[list[str]], stamp: str) -> None:
    environment.set_up("client")
    environment.STAMP.write_text(stamp)
    assert environment.read_stamp() is None


def test_without_ensurepip_and_virtualenv_the_apt_line_is_printed(
    tree: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert dev.main(["up"]) == 2
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"apt-get install python{version}-venv" in capsys.readouterr().err


def test_too_little_disk_is_said_with_the_number(
    tree: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage: Any = type("Usage", (), {"free": 1_500_000_000})
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    assert dev.main(["demo"]) == 2
    assert "1.5 GB are free" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["http", "", "0", "65536", "-1"])
def test_a_bad_port_names_the_variable_and_the_value(
    tree: list[list[str]], port: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PHOTOCALL_PORT", port)
    assert dev.main(["up"]) == 2
    assert f"PHOTOCALL_PORT={port!r}" in capsys.readouterr().err


def test_a_taken_port_names_its_owner(
    tree: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("PHOTOCALL_PORT", str(server.getsockname()[1]))
        assert dev.main(["up"]) == 2
    assert f"(pid {os.getpid()})" in capsys.readouterr().err
    assert tree == [], "nothing is installed before the port is known to be free"


def test_down_ends_only_what_up_started(tree: list[list[str]]) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        background.STATE.mkdir()
        background.PID_FILE.write_text(str(stranger.pid))  # a reused pid
        assert dev.main(["down"]) == 0
        assert stranger.poll() is None
        assert not background.PID_FILE.exists()
    finally:
        stranger.kill()
        stranger.wait()


def test_unknown_commands_list_the_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert dev.main(["stop"]) == 2
    assert "demo,up,down" in capsys.readouterr().err


def test_every_make_target_is_a_command() -> None:
    makefile = (Path(dev.__file__).parent.parent / "Makefile").read_text()
    called = {line.split("ops/dev.py ")[1] for line in makefile.splitlines() if line.startswith("\t@$(PYTHON)")}
    assert called == set(dev.COMMANDS)


def test_make_help_prints_every_target() -> None:
    root = Path(dev.__file__).parent.parent
    # A make that runs the suite hands MAKELEVEL down, and a nested make then names the directories it enters.
    alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    printed = subprocess.run(["make", "help"], capture_output=True, text=True, check=True, cwd=root, env=alone).stdout
    assert {line.split()[1] for line in printed.splitlines()} == {"help", *dev.COMMANDS}


def test_the_stamp_is_json(tree: list[list[str]]) -> None:
    environment.set_up("client")
    assert json.loads(environment.STAMP.read_text())["extras"] == ["client"]
