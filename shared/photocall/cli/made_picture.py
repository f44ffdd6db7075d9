"""Pictures for `photocall bench`: one drawn here, and any number that look the same but are different files.

The server keeps what it knows of a picture under the hash of its bytes, so that the same file twice measures its memory
and not its work.
"""

from __future__ import annotations

import struct
import zlib

PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
PNG_HEAD = len(PNG) + 25  # the signature and the IHDR chunk
WIDTH, HEIGHT = 800, 600


def drawn(width: int = WIDTH, height: int = HEIGHT) -> bytes:
    """A PNG: coloured blocks on a slope of grey, which compresses about as a simple drawing does."""
    colours = ((214, 32, 32), (31, 156, 58), (32, 64, 208), (242, 210, 27))
    lines = []
    for y in range(height):
        line = bytearray()
        for column in range(8):
            grey = 90 + 150 * y // height
            solid = (column + 5 * y // height) % 2 == 0
            line += bytes(colours[(column + y // 100) % 4] if solid else (grey, grey, grey)) * (width // 8)
        lines.append(b"\0" + bytes(line) + bytes(3 * (width - width // 8 * 8)))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return PNG + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(b"".join(lines), 6)) + _chunk(b"IEND", b"")


def renamed(picture: bytes, number: int) -> bytes | None:
    """The same picture as another file: with a comment, where its format has comments that we can write; else None."""
    comment = f"photocall bench {number}".encode()
    if picture.startswith(PNG):
        return picture[:PNG_HEAD] + _chunk(b"tEXt", b"Comment\0" + comment) + picture[PNG_HEAD:]
    if picture.startswith(JPEG):
        return picture[:2] + b"\xff\xfe" + struct.pack(">H", len(comment) + 2) + comment + picture[2:]
    return None


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
