"""Receives a file: a multipart/form-data body of any size, straight to the disk."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from photocall.errors import CodedError
from photocall_gateway.batches.files import disk_error
from photocall_gateway.reading import too_large

STALL_S = 60.0  # a piece of the body arrives in this time
MAX_FIELD_BYTES = 1024  # of a field that is no file
MAX_FIELDS = 16
GATHER_BYTES = 1 << 20  # written at once


@dataclass(slots=True)
class Uploaded:
    """What the form said; the bytes are where they were to go, fsynced."""

    filename: str
    fields: dict[str, str] = field(default_factory=dict)


async def receive(pieces: AsyncIterator[bytes], content_type: str, target: Path, limit: int) -> Uploaded:
    """Read a form with one part named `file`, which is written to `target`.

    Raises CodedError `malformed`, `unsupported_type`, `body_too_large`, `body_slow` or `disk_full`, and whatever the
    pieces raise; then nothing stays at `target`.
    """
    kind, options = parse_options_header(content_type)
    boundary = options.get(b"boundary")
    if kind != b"multipart/form-data" or not boundary:
        raise CodedError("unsupported_type", "Content-Type must be multipart/form-data with a boundary")
    try:
        with target.open("xb") as out:
            form = _Form(out, limit)
            parser = MultipartParser(boundary, form.callbacks())  # type: ignore[arg-type]
            await _feed(pieces, parser, form)
            if not form.ended:
                raise CodedError("malformed", "The multipart/form-data body ends before its last boundary")
            await asyncio.to_thread(_sync, out)
        if form.filename is None:
            raise CodedError("malformed", "The form has no part named 'file'")
    except BaseException as error:
        target.unlink(missing_ok=True)
        if isinstance(error, FormParserError):
            raise CodedError("malformed", f"The body is not valid multipart/form-data: {error}") from error
        if isinstance(error, OSError):
            raise disk_error(error) from error
        raise
    return Uploaded(form.filename, form.fields)


async def _feed(pieces: AsyncIterator[bytes], parser: MultipartParser, form: _Form) -> None:
    gathered = bytearray()
    source = aiter(pieces)
    while True:
        try:
            async with asyncio.timeout(STALL_S):
                piece = await anext(source)
        except StopAsyncIteration:
            break
        except TimeoutError as error:
            raise CodedError("body_slow", f"No byte of the body arrived within {STALL_S:g} s") from error
        gathered += piece
        if len(gathered) >= GATHER_BYTES:
            await asyncio.to_thread(parser.write, bytes(gathered))
            gathered.clear()
    await asyncio.to_thread(parser.write, bytes(gathered))
    parser.finalize()


def _sync(out: BinaryIO) -> None:
    out.flush()
    os.fsync(out.fileno())


class _Form:
    """The parser's callbacks: fields are kept, the file is written."""

    def __init__(self, out: BinaryIO, limit: int) -> None:
        self.fields: dict[str, str] = {}
        self.filename: str | None = None
        self.ended = False
        self._out, self._limit, self._size = out, limit, 0
        self._header, self._value = bytearray(), bytearray()
        self._disposition = b""
        self._name = ""
        self._data = bytearray()

    def callbacks(self) -> dict[str, object]:
        return {
            "on_part_begin": self._begin,
            "on_header_field": lambda data, start, end: self._header.extend(data[start:end]),
            "on_header_value": lambda data, start, end: self._value.extend(data[start:end]),
            "on_header_end": self._header_end,
            "on_headers_finished": self._named,
            "on_part_data": self._part_data,
            "on_part_end": self._part_end,
            "on_end": self._end,
        }

    def _begin(self) -> None:
        if len(self.fields) == MAX_FIELDS:
            raise CodedError("malformed", f"The form has more than {MAX_FIELDS} fields")
        self._disposition, self._name = b"", ""
        self._data.clear()

    def _header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            self._disposition = bytes(self._value)
        self._header.clear()
        self._value.clear()

    def _named(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._name = options.get(b"name", b"").decode(errors="replace")
        if self._name == "file":
            if self.filename is not None:
                raise CodedError("malformed", "The form has two parts named 'file'")
            self.filename = options.get(b"filename", b"upload").decode(errors="replace")[:255]
        elif not self._name or self._name in self.fields:
            raise CodedError("malformed", "Each part of the form has a name of its own")

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._name == "file":
            self._size += end - start
            if self._size > self._limit:
                raise too_large(self._limit)
            self._out.write(memoryview(data)[start:end])
        else:
            self._data += data[start:end]
            if len(self._data) > MAX_FIELD_BYTES:
                raise CodedError("malformed", f"Field {self._name[:40]!r} has over {MAX_FIELD_BYTES} bytes")

    def _part_end(self) -> None:
        if self._name != "file":
            self.fields[self._name] = self._data.decode(errors="replace")

    def _end(self) -> None:
        self.ended = True
