"""PngChunks: what Pillow does not tell of a PNG, or only once it has decoded it: bits, cICP, EXIF behind the pixels."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Self

_SIGNATURE = 8
_HEAD = struct.Struct(">I4s")
_CRC = 4
_DEPTH_AT = 24


@dataclass(frozen=True, slots=True)
class PngChunks:
    """None for what is not there. Checksums are not looked at: who decodes it does."""

    depth: int = 8  # bits of a sample
    cicp: tuple[int, int] | None = None  # primaries, transfer
    exif: bytes | None = None

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Walk from chunk to chunk; ends quietly where a file is broken."""
        depth = data[_DEPTH_AT] if len(data) > _DEPTH_AT else 8
        cicp: tuple[int, int] | None = None
        exif: bytes | None = None
        at, in_front = _SIGNATURE, True
        while at + _HEAD.size <= len(data):
            length, kind = _HEAD.unpack_from(data, at)
            start = at + _HEAD.size
            if kind == b"IEND" or start + length > len(data):
                break
            in_front = in_front and kind != b"IDAT"
            if kind == b"cICP" and in_front and length == 4:
                cicp = (data[start], data[start + 1])
            elif kind == b"eXIf" and exif is None:
                exif = data[start : start + length]
            at = start + length + _CRC
        return cls(depth, cicp, exif)
