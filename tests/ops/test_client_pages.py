"""The code of the pages for clients is run as it stands there, page by page, against one photocall on models/mini."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ops.docs import ROOT
from ops.running import running

BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HERE = {"photocall": [sys.executable, "-m", "photocall.cli"]}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running({"PHOTOCALL_PREP_WORKERS": "1"}) as where:
        yield where


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A directory to run in: the samples where they are in a checkout, and `photocall` on PATH."""
    (tmp_path / "ops").mkdir()
    (tmp_path / "ops" / "samples").symlink_to(ROOT / "ops" / "samples")
    (tmp_path / "bin").mkdir()
    for name, command in HERE.items():
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@"\n')
        script.chmod(0o755)
    return tmp_path


def ran(page: str, address: str, checkout: Path) -> str:
    """What the blocks of a page print, each kind in one process for each run of blocks of that kind."""
    blocks = [(kind, text) for kind, text in BLOCK.findall((ROOT / "docs" / page).read_text()) if "make " not in text]
    assert blocks
    merged: list[tuple[str, str]] = []
    for kind, text in blocks:
        if merged and merged[-1][0] == kind:
            merged[-1] = (kind, merged[-1][1] + text)
        else:
            merged.append((kind, text))
    paths = f"{checkout / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    given = {name: value for name, value in os.environ.items() if not name.startswith("PHOTOCALL_")}
    given |= {"PATH": paths, "PYTHONPATH": os.pathsep.join(sys.path), "NO_PROXY": "127.0.0.1", "PHOTOCALL_URL": address}
    said = []
    for kind, text in merged:
        text = text.replace("http://127.0.0.1:8080", address)
        command = ["bash", "-euo", "pipefail", "-c", text] if kind == "sh" else [sys.executable, "-c", text]
        done = subprocess.run(
            command, cwd=checkout, env=given, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, f"{page}\n{text}\n{done.stdout}\n{done.stderr}"
        said.append(done.stdout + done.stderr)
    return "\n".join(said)


def shown(page: str) -> list[Any]:
    """The JSON that a page shows, block by block."""
    text = (ROOT / "docs" / page).read_text()
    return [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def assert_shown(part: Any, whole: Any) -> None:
    """What a page shows of an answer is in it. Numbers are rounded to four decimals there."""
    if isinstance(part, dict):
        for name, value in part.items():
            assert_shown(value, whole[name])
    else:
        assert part == (pytest.approx(whole, abs=1e-4) if isinstance(whole, float) else whole)


def test_five_minutes(address: str, checkout: Path) -> None:
    assert_shown(shown("start.md")[1], json.loads(ran("start.md", address, checkout)))


def test_its_make_commands_are_the_readme_s_which_are_run_too() -> None:
    page, readme = ((ROOT / name).read_text() for name in ("docs/start.md", "README.md"))
    commands = {line for _, text in BLOCK.findall(page) for line in text.splitlines() if line.startswith("make ")}
    run = {line for _, text in BLOCK.findall(readme) for line in text.splitlines()}
    assert {"make demo", "make up", "make status", "make down"} == commands
    assert commands <= run


def test_the_request_that_is_shown_is_the_sample() -> None:
    assert shown("start.md")[0] == json.loads((ROOT / "ops/samples/request.json").read_text())


def test_curl(address: str, checkout: Path) -> None:
    said = ran("curl.md", address, checkout)
    assert '"number":1' in said  # by hash
    assert "event: result" in said
    assert '"status":"succeeded"' in said
    assert re.search(r"204$", said, re.MULTILINE)  # deleted
    assert '"code":"invalid_field"' in said
    assert (checkout / "seen.png").read_bytes().startswith(b"\x89PNG")


def test_typesafe_sdk(address: str, checkout: Path) -> None:
    said = ran("typesafe-sdk.md", address, checkout)
    assert said.startswith("red {'blue': ")
    assert "\nrefused: " in said
    assert "no picture of a supported format" in said


def test_openai(address: str, checkout: Path) -> None:
    said = ran("openai.md", address, checkout)
    assert " red " in said.splitlines()[0]
    assert {line.split()[0] for line in said.splitlines()[1:]} == {"row-1", "row-2", "row-3"}


def test_label_studio(address: str, checkout: Path) -> None:
    ran("label-studio.md", address, checkout)
    assert '"predictions"' in (checkout / "tasks.json").read_text()
    assert (checkout / "labeling.xml").read_text().startswith("<View")


def test_calibration(address: str, checkout: Path) -> None:
    said = ran("calibration.md", address, checkout)
    figures = re.search(r"^0: damaged .*$", (ROOT / "docs/calibration.md").read_text(), re.MULTILINE)
    assert figures is not None
    assert figures[0] in said
    assert '"probabilities_raw"' in said
    assert (checkout / "diagrams" / "0.svg").is_file()
