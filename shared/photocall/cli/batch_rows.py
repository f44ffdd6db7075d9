"""The rows of `photocall batch run`: a file or folder as it is, or lines that name pictures for what -q asks."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from photocall.cli.asked import marker
from photocall.cli.errors import Unable

_ARCHIVES = (b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b")


def rows_of(source: Path, request: Mapping[str, Any] | None) -> Path | Iterator[tuple[str, dict[str, Any]]]:
    """What a batch is made of. `request`: what is asked of each picture; None where the rows say so themselves."""
    return pictured(source, request) if request is not None and is_lines(source) else source


def is_lines(source: Path) -> bool:
    """A JSONL file: nothing that holds pictures. Raises OSError."""
    if source.is_dir():
        return False
    with source.open("rb") as read:
        start = read.read(262)
    return not start.startswith(_ARCHIVES) and start[257:262] != b"ustar"


def pictured(source: Path, request: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Lines of {"image": a path from the file on, a sha256 or a URL, "id", "state"} as requests.

    `id` is the image unless said, `state` the request's. Raises Unable, which names the line, and OSError.
    """
    with source.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _pictured(line, f"{source}, line {number}", source.parent, request)


def _pictured(line: str, where: str, folder: Path, request: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise Unable(f"{where} is no JSON ({error}): correct it") from None
    image = row.get("image") if isinstance(row, dict) else None
    if not isinstance(image, str) or not image:
        raise Unable(f'{where} names no picture: expected {{"image": PATH}}, or leave -q out where rows ask themselves')
    body = dict(request)
    if row.get("state"):
        mark = marker(1)
        body["state"] = row["state"] if mark in str(row["state"]) else f"{mark}\n{row['state']}"
    body["assets"] = {marker(1): {"type": "image", **_picture(image, folder, where)}}
    return str(row.get("id") or row.get("custom_id") or image), body


def _picture(image: str, folder: Path, where: str) -> dict[str, str]:
    if image.startswith("https://"):
        return {"url": image}
    if len(image) == 64 and all(char in "0123456789abcdef" for char in image):
        return {"sha256": image}
    try:
        data = (folder / image).read_bytes()
    except OSError as error:
        raise Unable(f"{where}: {image}: {error.strerror}: correct the path, which begins at {folder}") from None
    return {"data_base64": base64.b64encode(data).decode()}


def spool_file(output: Path) -> Path:
    """Where rows of standard input are, beside the output, until a batch has begun with them."""
    return output.with_name(f"{output.name}.input")


def spooled(output: Path) -> str:
    """Put standard input into the spool file, in place of what is there; its sha256. Raises Unable and OSError."""
    file = spool_file(output)
    partial = file.with_name(f"{file.name}.new")
    found, size = hashlib.sha256(), 0
    with partial.open("wb") as out:
        for chunk in _standard_input():
            found.update(chunk)
            size += out.write(chunk)
    if not size:
        partial.unlink()
        raise Unable("there are no rows on standard input: pipe them in, or name a file with -i")
    partial.replace(file)
    return found.hexdigest()


def given_again() -> str | None:
    """The sha256 of what is on standard input; None where nothing is, or somebody would have to type it."""
    if sys.stdin is None or sys.stdin.isatty():
        return None
    found, size = hashlib.sha256(), 0
    for chunk in _standard_input():
        found.update(chunk)
        size += len(chunk)
    return found.hexdigest() if size else None


def _standard_input() -> Iterator[bytes]:
    if sys.stdin is not None:  # it is None where whoever began this has closed it
        while chunk := sys.stdin.buffer.read(1 << 20):
            yield chunk
