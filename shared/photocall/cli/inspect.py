"""`photocall inspect FILE...`: what it takes; the prep room, which alone can read pictures, runs it."""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from pathlib import Path

from photocall.views import AUTO, Budget, parse_colour


def add_arguments(parser: ArgumentParser) -> None:
    """What may stand behind `photocall inspect`; `photocall_prep.inspect` reads the same."""
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help="a picture")
    parser.add_argument("--seen", metavar="OUT.png", type=Path, help="write it there; a folder for several files")
    parser.add_argument("--json", action="store_true", help="one object a line for each file")
    parser.add_argument("--budget", type=budget, metavar="N", help="soft tokens at most, or auto (PHOTOCALL_BUDGET)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--page", type=at_least(1), metavar="N", help="page of a document, from 1")
    which.add_argument("--frame", type=at_least(0), metavar="N", help="frame of an animation, from 0")
    parser.add_argument("--dpi", type=at_least(1), metavar="N", help="at which a page of a PDF is drawn")
    parser.add_argument("--background", type=colour, metavar="RRGGBB", help="behind what is transparent")
    parser.add_argument("--fidelity", choices=("fast", "exact"), help="PHOTOCALL_FIDELITY")


def run_inspect(options: Namespace) -> int:
    """The inspection's status: 0, 1 where a file cannot be prepared, 2 where settings cannot be used."""
    return subprocess.run([sys.executable, "-m", "photocall_prep", "inspect", *_line(options)], check=False).returncode


def _line(options: Namespace) -> list[str]:
    """The options as arguments again."""
    words = ["--json"] if options.json else []
    for name in ("seen", "budget", "page", "frame", "dpi", "background", "fidelity"):
        value = getattr(options, name)
        words += [] if value is None else [f"--{name}={value}"]
    return [*words, "--", *map(str, options.files)]


def budget(text: str) -> Budget:
    """Soft tokens, or `auto`."""
    return AUTO if text == AUTO else at_least(1)(text)


def at_least(least: int) -> Callable[[str], int]:
    """Whole numbers from `least` on."""

    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is no whole number") from None
        if number < least:
            raise ArgumentTypeError(f"{number} is less than {least}")
        return number

    return parse


def colour(text: str) -> str:
    """A colour as rrggbb."""
    found = parse_colour(text)
    if found is None:
        raise ArgumentTypeError(f"{text!r} is no colour as rrggbb")
    return found
