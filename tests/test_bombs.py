"""Every bomb is refused, or answered, within its limits of CPU and memory (tests/bombs.py has them all)."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.bombs import BOMBS


@pytest.fixture(scope="module")
def reports() -> dict[str, dict[str, Any]]:
    """What came of each, in processes of their own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bombs"], capture_output=True, text=True, timeout=280, check=True
    )
    return {report["name"]: report for report in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("name", BOMBS)
def test_bomb(reports: dict[str, dict[str, Any]], name: str) -> None:
    bomb, report = BOMBS[name], reports[name]
    assert bomb.says in report["what"]
    assert report["what"] == "answered" or report["what"].split()[0].rstrip(":") in (
        "CodedError", "InvalidField", "ImageRefused", "InputRefused", "BadFrame", "MalformedMessage",
    ), "a refusal is one of the project's own"  # fmt: skip
    assert report["cpu_s"] < bomb.cpu_s
    assert report["mib"] < bomb.mib
