"""What a check of `photocall doctor` finds, and what it looks at: this machine, which a test may replace by another."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

State: TypeAlias = Literal["ok", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`fail`: photocall cannot work so; `warn`: it can, but somebody should know. `remedy`: what to do about it."""

    state: State
    what: str
    remedy: str = ""


def ok(what: str) -> Finding:
    return Finding("ok", what)


def warning(what: str, remedy: str) -> Finding:
    return Finding("warn", what, remedy)


def failure(what: str, remedy: str) -> Finding:
    return Finding("fail", what, remedy)


def gpu_of_torch() -> tuple[bool, str]:
    """Whether torch can use a GPU, and what it says of itself; in a process of its own, since importing it is slow."""
    script = "import torch; print(torch.cuda.is_available(), torch.__version__)"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    usable, _, version = found.stdout.strip().partition(" ")
    return usable == "True", f"torch {version}" if version else "torch cannot be imported"


@dataclass(frozen=True, slots=True)
class Machine:
    """Where the checks look."""

    environ: Mapping[str, str]
    cpuinfo: Path = Path("/proc/cpuinfo")
    meminfo: Path = Path("/proc/meminfo")
    shared_memory: Path = Path("/dev/shm")
    gpu: Path = Path("/dev/nvidiactl")
    torch: Callable[[], tuple[bool, str]] = gpu_of_torch
    installed: Callable[[str], object] = find_spec


Check: TypeAlias = Callable[[Machine], Finding]
"""Raises SettingsError where a setting that it needs is bad, which is a finding of its own."""


def nearest(path: Path) -> Path:
    """The path, or what there is of it."""
    found = path.absolute()
    while not found.exists():
        found = found.parent
    return found


def mib(count: float) -> str:
    """A number of bytes for a person."""
    return f"{count / (1 << 20):,.0f} MiB"
