"""`.venv`: made once, stamped with what it was made from, made anew when that changed, when it moved or is half made.

Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / "photocall-stamp.json"
DEFAULT_TORCH = "torch==2.13.0"
DISK_NEEDED = 4 << 30


class PreconditionError(Exception):
    """A precondition does not hold; the message says what to do. The command exits with 2."""


class Stamp(NamedTuple):
    """What a finished `.venv` was made from."""

    key: str
    extras: list[str]


def set_up(extras: str) -> None:
    """Make `.venv` with `extras` installed, unless its stamp says that this is so already."""
    check_machine()
    wanted = stamp_for(extras)
    held = read_stamp()
    if held is not None and held.key == wanted.key and ("dev" in held.extras or held.extras == wanted.extras):
        return  # dev contains the other extras
    if held is None or held.key != wanted.key:
        make_venv()
    STAMP.unlink(missing_ok=True)  # an install that is interrupted must not look finished
    install(extras)
    STAMP.write_text(json.dumps(wanted._asdict()))


def check_machine() -> None:
    """Python, a way to make a virtual environment, and room on the disk."""
    if sys.version_info < (3, 11):  # noqa: UP036  this file is what an older Python is told by
        raise PreconditionError(f"Python 3.11 or newer is needed; {sys.executable} is {sys.version.split()[0]}")
    if not VENV.exists() and shutil.disk_usage(ROOT).free < DISK_NEEDED:
        raise PreconditionError(
            f"4 GB of free disk are needed in {ROOT}; {shutil.disk_usage(ROOT).free / 1e9:.1f} GB are free"
        )


def stamp_for(extras: str) -> Stamp:
    """What an environment must have been made from: pyproject, this Python, this place, the torch asked for."""
    parts = [(ROOT / "pyproject.toml").read_bytes(), sys.version.encode(), str(VENV).encode(), torch_spec().encode()]
    return Stamp(hashlib.sha256(b"\0".join(parts)).hexdigest(), extras.split(","))


def read_stamp() -> Stamp | None:
    try:
        held = json.loads(STAMP.read_text())
        return Stamp(held["key"], held["extras"]) if venv_python().exists() else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def make_venv() -> None:
    """A fresh `.venv` by venv, or by virtualenv where Debian's ensurepip is missing."""
    say("making .venv")
    shutil.rmtree(VENV, ignore_errors=True)
    if importlib.util.find_spec("ensurepip") is not None:
        run([sys.executable, "-m", "venv", str(VENV)])
    elif importlib.util.find_spec("virtualenv") is not None:
        run([sys.executable, "-m", "virtualenv", "--quiet", str(VENV)])
    else:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        raise PreconditionError(
            f"this Python cannot make virtual environments; run: apt-get install python{version}-venv"
        )


def install(extras: str) -> None:
    """torch first, so that its build is the one that was asked for; then the project with its extras."""
    pip = [str(venv_python()), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    if subprocess.run([str(venv_python()), "-c", "import torch"], capture_output=True, check=False).returncode:
        say(f"installing {torch_spec()} ({download_size(torch_spec())})")
        run([*pip, torch_spec()])
    say(f"installing photocall[{extras}]")
    run([*pip, "--editable", f"{ROOT}[{extras}]"])


def torch_spec() -> str:
    """The requirement torch is installed by: `PHOTOCALL_TORCH`, or the default."""
    return os.environ.get("PHOTOCALL_TORCH") or DEFAULT_TORCH


def download_size(requirement: str) -> str:
    """How much pip would fetch for one requirement, for the eyes of whoever waits; never an error."""
    command = [str(venv_python()), "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps", "--report", "-"]
    found = subprocess.run([*command, requirement], capture_output=True, text=True, check=False)
    try:
        url = json.loads(found.stdout)["install"][0]["download_info"]["url"]
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=10) as answer:
            size = int(answer.headers["Content-Length"])
        return f"{size / 1e6:.0f} MB " + ("from this machine's disk" if url.startswith("file:") else "to download")
    except (ValueError, KeyError, IndexError, TypeError, OSError):
        return "size unknown"


def venv_python() -> Path:
    return VENV / "bin" / "python"


def run_in_venv(arguments: list[str]) -> int:
    return subprocess.run([str(venv_python()), *arguments], cwd=ROOT, env=venv_environment(), check=False).returncode


def venv_environment() -> dict[str, str]:
    return os.environ | {"PATH": f"{VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}


def run(command: list[str]) -> None:
    if subprocess.run(command, check=False).returncode:
        raise PreconditionError(f"failed: {' '.join(command)}")


def say(text: str) -> None:
    print(f"photocall: {text}", flush=True)
