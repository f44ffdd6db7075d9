"""Input: where a batch's rows come from, one row at a time, whatever the size of the whole."""

from __future__ import annotations

import base64
import json
import posixpath
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from photocall.errors import CodedError
from photocall_gateway.batches.batch import BatchError, Kind
from photocall_gateway.batches.ledger import Row

MAX_CUSTOM_ID_CHARS = 512
MIN_EXPANDED_BYTES, MAX_EXPANSION = 1 << 30, 20  # pictures hardly shrink; what expands more is a bomb
_CHUNK = 1 << 18


class InputRefused(Exception):
    """The input as a whole cannot be run."""

    def __init__(self, error: BatchError) -> None:
        super().__init__(error.message)
        self.error = error


class Input(ABC):
    """Blocking; a scan and reads may go on in different threads, as each opens the file for itself."""

    model: str | None = None  # that the rows ask for, once it is scanned

    @abstractmethod
    def scan(self) -> Iterator[Row | BatchError]:
        """The rows in order, numbered from 1, and what is wrong with others. Raises InputRefused."""

    @abstractmethod
    def body(self, row: Row) -> bytes:
        """The request body of a row, in JSON. Raises CodedError for a row that cannot be read."""


def kind_of(path: Path) -> Kind:
    """By content, not by name. A compressed tar is a tar."""
    with path.open("rb") as source:
        start = source.read(512)
    if start[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return "zip"
    return "tar" if start[257:262] == b"ustar" or start[:2] == b"\x1f\x8b" else "jsonl"


def with_picture(endpoint: str, template: dict[str, Any], picture: bytes) -> bytes:
    """The request about one picture: `[image 1]` in the template's text stands for it, else it comes first."""
    encoded = base64.b64encode(picture).decode()
    if endpoint != "/v1/decisions":
        return json.dumps({**template, "images": [encoded]}, ensure_ascii=False).encode()
    given = template.get("input", "")
    said = [{"role": "user", "content": given}] if isinstance(given, str) and given else given or []
    shown = {"type": "input_image", "image_url": f"data:;base64,{encoded}"}
    messages = [*said, {"role": "user", "content": [shown]}] if isinstance(said, list) else said
    return json.dumps({**template, "input": messages}, ensure_ascii=False).encode()


def member_name(name: str) -> str | None:
    """A member's path as a row's id; None for what is no picture of the caller's: directories, hidden files.

    Nothing is ever unpacked to a path. A name that would lead out of a folder is refused all the same: whoever reads
    the results may use it as one. Raises InputRefused.
    """
    path = name.replace("\\", "/")
    parts = path.split("/")
    if not path or path.startswith("/") or ".." in parts or "\0" in path or (len(path) > 1 and path[1] == ":"):
        shown = ascii(name[:80])
        raise InputRefused(BatchError("unsafe_path", f"Member {shown} leads out of the archive", "input_file_id"))
    if path.endswith("/") or any(part.startswith(".") and part != "." for part in parts) or "__MACOSX" in parts:
        return None
    if not path.isprintable() and any("\ud800" <= char <= "\udfff" for char in path):
        raise InputRefused(BatchError("unsafe_path", f"Member {name[:80]!a} has a name that is not UTF-8"))
    normal = posixpath.normpath(path)
    if len(normal) > MAX_CUSTOM_ID_CHARS:
        msg = f"Member {normal[:80]!a} has a name of over {MAX_CUSTOM_ID_CHARS} characters"
        raise InputRefused(BatchError("unsafe_path", msg, "input_file_id"))
    return normal


def unsafe_member(name: str, what: str) -> InputRefused:
    """Links, devices and what else is no plain file."""
    return InputRefused(BatchError("unsafe_member", f"Member {name[:80]!a} is {what}", "input_file_id"))


def expansion_limit(archive_bytes: int) -> int:
    """How much may come out of an archive in all."""
    return max(MIN_EXPANDED_BYTES, MAX_EXPANSION * archive_bytes)


def bomb(limit: int) -> InputRefused:
    """More comes out of it than pictures could be."""
    return InputRefused(BatchError("archive_too_large", f"The archive expands to over {limit} bytes", "input_file_id"))


def read_bounded(source: BinaryIO, length: int, size: int, deflated: bool) -> bytes:
    """`size` bytes from `length` stored ones, never more of either. Raises CodedError `image_undecodable`."""
    unpacker = zlib.decompressobj(-15) if deflated else None
    found = bytearray()
    left = length
    try:
        while left and len(found) < size:
            piece = source.read(min(_CHUNK, left))
            if not piece:
                break
            left -= len(piece)
            if unpacker is None:
                found += piece
            else:
                while piece and len(found) < size:
                    found += unpacker.decompress(piece, size - len(found))
                    piece = unpacker.unconsumed_tail
    except zlib.error as error:
        raise damaged() from error
    if len(found) != size:
        raise damaged()
    return bytes(found)


def damaged() -> CodedError:
    """Its bytes in the archive are not what the archive says they are."""
    return CodedError("image_undecodable", "The picture is damaged in the archive")


def too_large(size: int, limit: int) -> CodedError:
    """One picture over the limit fails its row."""
    return CodedError("image_too_large", f"The picture has {size} bytes, limit {limit}", bytes=size, limit=limit)
