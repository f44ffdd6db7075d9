"""The central directory of a zip file, entry by entry: its length never matters to memory, as with `zipfile` it would.

Formats: PKWARE APPNOTE 6.3.9, sections 4.3.7, 4.3.12, 4.3.14-16 and 4.5.3.
"""

from __future__ import annotations

import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

STORED, DEFLATED = 0, 8
_END, _END64, _LOCATOR64 = struct.Struct("<4s4H2LH"), struct.Struct("<4sQ2H2L4Q"), struct.Struct("<4sLQL")
_ENTRY, _LOCAL = struct.Struct("<4s6H3L5H2L"), struct.Struct("<4s5H3L2H")
_MAX_COMMENT = 0xFFFF
_FULL32, _FULL16 = 0xFFFFFFFF, 0xFFFF


class NotZipError(Exception):
    """The bytes are no zip file, or one that is cut off."""


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """`offset` is that of its local header."""

    name: str
    offset: int
    compressed: int
    size: int
    method: int
    crc: int
    encrypted: bool
    link: bool


def entries(source: BinaryIO, length: int) -> Iterator[ZipEntry]:
    """In the order of the directory. Raises NotZipError."""
    count, at = _directory(source, length)
    for _ in range(count):
        source.seek(at)
        fields = _unpack(_ENTRY, source, b"PK\x01\x02")
        made_by, _, flags, method, _, _, crc, compressed, size, n_name, n_extra, n_comment, _, _, attr, offset = fields
        name, extra = source.read(n_name), source.read(n_extra)
        at += _ENTRY.size + n_name + n_extra + n_comment
        size, compressed, offset = _wide(extra, size, compressed, offset)
        if offset + compressed > length:
            raise NotZipError("an entry reaches past the end of the file")
        text = name.decode("utf-8", "replace") if flags & 0x800 else name.decode("cp437")
        link = made_by >> 8 == 3 and attr >> 16 != 0 and not _plain(attr >> 16)
        yield ZipEntry(text, offset, compressed, size, method, crc, bool(flags & 1), link)


def seek_data(source: BinaryIO, offset: int) -> None:
    """Go to the first byte of an entry, behind its local header. Raises NotZipError."""
    source.seek(offset)
    *_, n_name, n_extra = _unpack(_LOCAL, source, b"PK\x03\x04")
    source.seek(n_name + n_extra, 1)


def _directory(source: BinaryIO, length: int) -> tuple[int, int]:
    """How many entries there are, and where the first one is."""
    tail_at = max(0, length - _END.size - _MAX_COMMENT)
    source.seek(tail_at)
    tail = source.read()
    found = tail.rfind(b"PK\x05\x06")
    if found < 0 or len(tail) - found < _END.size:
        raise NotZipError("it has no end of central directory")
    _, _, _, _, count, size, at, _ = _END.unpack_from(tail, found)
    if _FULL16 in (count,) or _FULL32 in (size, at):
        _seek(source, tail_at + found - _LOCATOR64.size, length)
        _, end_at, _ = _unpack(_LOCATOR64, source, b"PK\x06\x07")
        _seek(source, end_at, length)
        *_, count, size, at = _unpack(_END64, source, b"PK\x06\x06")
    if at + size > length or count * _ENTRY.size > size:
        raise NotZipError("its central directory reaches past the end of the file")
    return count, at


def _wide(extra: bytes, size: int, compressed: int, offset: int) -> tuple[int, int, int]:
    """Sizes and offset with the 64-bit ones in place of those that did not fit."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == 1:
            told = extra[at + 4 : at + 4 + length]  # shorter than it says, in a damaged entry
            wide = list(struct.unpack(f"<{len(told) // 8}Q", told[: len(told) // 8 * 8]))
            try:
                size = wide.pop(0) if size == _FULL32 else size
                compressed = wide.pop(0) if compressed == _FULL32 else compressed
                offset = wide.pop(0) if offset == _FULL32 else offset
            except IndexError:
                raise NotZipError("an entry lacks its 64-bit sizes") from None
        at += 4 + length
    return size, compressed, offset


def _seek(source: BinaryIO, at: int, length: int) -> None:
    """Go to a place that the file names. One outside of it is no error of the disk."""
    if not 0 <= at <= length:
        raise NotZipError("its end points outside of the file")
    source.seek(at)


def _plain(mode: int) -> bool:
    return stat.S_IFMT(mode) in (0, stat.S_IFREG, stat.S_IFDIR)


def _unpack(form: struct.Struct, source: BinaryIO, signature: bytes) -> tuple[int, ...]:
    data = source.read(form.size)
    if len(data) < form.size or not data.startswith(signature):
        raise NotZipError(f"there is no {signature!r} where one should be")
    return tuple(form.unpack(data)[1:])
