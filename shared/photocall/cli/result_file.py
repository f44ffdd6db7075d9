"""ResultFile: lines of results behind those that are on the disk already, whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from photocall.cli.errors import Unable
from photocall.cli.run_state import Place


class ResultFile:
    """A file that is cut off behind `place` and grows from there. There is none while there is no line."""

    def __init__(self, path: Path, place: Place) -> None:
        """Raises Unable for a file that is shorter than it was, and OSError."""
        self.path = path
        self.place = place
        self._waiting: list[bytes] = []
        size = path.stat().st_size if path.exists() else 0
        if size < place.bytes:
            raise Unable(f"{path} has lost lines since this run wrote them: put it back, or name another output")
        if size > place.bytes:  # lines that were written, but not counted: they come again
            os.truncate(path, place.bytes)
        if path.exists() and not place.bytes:
            path.unlink()

    @property
    def dirty(self) -> int:
        """Lines that are not on the disk."""
        return len(self._waiting)

    @property
    def lines(self) -> int:
        """Lines of this batch that were added, on the disk or not: whoever reads on reads behind these."""
        return self.place.lines + self.dirty

    def add(self, line: Mapping[str, Any]) -> None:
        """Keep a line until `commit`."""
        self._waiting.append(json.dumps(line, ensure_ascii=False).encode() + b"\n")

    def commit(self) -> Place:
        """Put what was added on the disk; how far it is written now. Raises OSError, which names the file."""
        if self._waiting:
            data = b"".join(self._waiting)
            try:
                with self.path.open("ab", buffering=0) as out:
                    left = memoryview(data)
                    while left:
                        left = left[out.write(left) :]
                    os.fsync(out.fileno())
            except OSError as error:
                error.filename = str(self.path)
                raise
            self.place = Place(self.place.lines + len(self._waiting), self.place.bytes + len(data))
            self._waiting = []
        return self.place
