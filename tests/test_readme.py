"""Every command block of the README is run, in order, against the tree it stands in."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops import background, environment
from photocall.local import free_port

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# `make clean` deletes the environment this test runs in: it is run on a copy of the tree.
ON_A_COPY = {"make clean\n"}


def blocks() -> list[tuple[str, str]]:
    found = [(kind, text) for kind, text in BLOCK.findall((ROOT / "README.md").read_text())]
    assert len(found) == (ROOT / "README.md").read_text().count("```") // 2, "a block is neither sh nor python"
    return found


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    if (held := environment.read_stamp()) is None or held.key != environment.stamp_for("dev").key:
        pytest.skip("`make test` sets up the environment that the README's commands use")
    if background.running_pid() is not None:
        pytest.skip("`make up` runs in this tree, and the README's commands would stop it")
    number = free_port("127.0.0.1")
    yield number
    subprocess.run(["make", "down"], cwd=ROOT, env=clean_environment(number), check=True, capture_output=True)


def clean_environment(port: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PHOTOCALL_")}
    python = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return kept | {"PHOTOCALL_PORT": str(port), "PATH": python}


@pytest.mark.timeout(600)
def test_every_block_runs(port: int, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(
        ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "models", "wheels", ".photocall", ".*_cache")
    )
    (copy / ".venv").mkdir()
    seen = []
    for kind, text in blocks():
        text = text.replace(":8080", f":{port}")
        command = ["bash", "-euc", text] if kind == "sh" else [sys.executable, "-c", text]
        where = copy if text in ON_A_COPY else ROOT
        done = subprocess.run(
            command,
            cwd=where,
            env=clean_environment(port),
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        seen.append(done.stdout)
    assert not (copy / ".venv").exists()
    everything = "\n".join(seen)
    assert " right (" in everything  # the demo's last line
    assert f"http://127.0.0.1:{port}, ready" in everything
    assert everything.count('"choice":"red"') == 2  # asked at once, and as a job
    assert '"status":"succeeded"' in everything
    assert "{'blue': " in everything  # from Python
