"""What a batch is made of, as a file to upload: a JSONL, zip or tar as it is, a folder as a zip, requests as JSONL."""

from __future__ import annotations

import json
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

Source: TypeAlias = Path | Iterable[tuple[str, Mapping[str, Any]]]
"""A file, a folder of pictures, or each row's id and request body."""


@contextmanager
def packed(source: Source, endpoint: str) -> Iterator[Path]:
    """The file, while it is needed. Nothing of it is held in memory. Raises OSError, and ValueError for no picture."""
    if isinstance(source, Path) and not source.is_dir():
        yield source
        return
    with tempfile.TemporaryDirectory(prefix="photocall-") as directory:
        if isinstance(source, Path):
            file = Path(directory) / f"{source.resolve().name}.zip"
            _zip(source, file)
        else:
            file = Path(directory) / "rows.jsonl"
            with file.open("w", encoding="utf-8") as out:
                for custom_id, body in source:
                    line = {"custom_id": custom_id, "method": "POST", "url": endpoint, "body": body}
                    out.write(json.dumps(line, ensure_ascii=False) + "\n")
        yield file


def _zip(folder: Path, file: Path) -> None:
    """Pictures hardly shrink, so they are only put together. Hidden files and links are left out."""
    found = 0
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if path.is_file() and not path.is_symlink() and not any(part.startswith(".") for part in name.parts):
                archive.write(path, name.as_posix())
                found += 1
    if not found:
        raise ValueError(f"{folder}: there is no file in this folder")
