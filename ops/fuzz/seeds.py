"""Seeds: small inputs of each target, in `seeds/` beside this file. Nothing of the project is imported here."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).with_name("seeds")


def directory(target: str) -> Path:
    """Where a target's seeds are."""
    return ROOT / target


def kept(target: str) -> list[Path]:
    """The seeds of a target."""
    return sorted(path for path in directory(target).iterdir() if path.is_file())
