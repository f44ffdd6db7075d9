"""A file system of its own, so small that it fills up."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(disk: Path, size: str) -> Iterator[Path]:
    """A new directory with so much room ("8m"). Skips the test where nobody may mount."""
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a file system of its own needs root")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)
