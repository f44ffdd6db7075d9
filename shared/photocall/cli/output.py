"""What commands print: results on standard output, as JSON lines or a table; progress on a terminal's error output."""

from __future__ import annotations

import json
import sys
from argparse import _ActionsContainer
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

_CLEAR = "\r\x1b[K"


def add_json(parser: _ActionsContainer, what: str = "one JSON object a line, instead of a table") -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help=what)


def print_json(found: Mapping[str, Any]) -> None:
    """One object on one line, at once: whoever reads a pipe gets it as it comes."""
    sys.stdout.write(json.dumps(found, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Columns as wide as what stands in them."""
    lines = [list(heads), *([shown(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def shown(cell: Any) -> str:
    """A cell in one line. What could move a terminal's cursor is replaced: names and answers are others' words."""
    if cell is None or cell == "":
        return "-"
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(cell))


def moment(at: float | None) -> str:
    """A time of the server's, to the second."""
    return "" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%SZ}"


class Progress:
    """One line that changes in place on standard error; nothing at all where that is no terminal."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()
        self._showing = False

    def show(self, text: str) -> None:
        """In place of what was shown before."""
        if self._on:
            sys.stderr.write(_CLEAR + shown(text))
            sys.stderr.flush()
            self._showing = True

    def clear(self) -> None:
        """Before anything else is written."""
        if self._showing:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._showing = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.clear()
