"""Request bodies that arrive compressed: gzip and zstd, with a bound on what they may become.

A bomb costs at most the bound: output is produced in pieces and the first piece past the bound ends it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import zstandard

from photocall.errors import CodedError

_PIECE = 1 << 20
_MEMBERS = 16


def decompress(body: bytes, encoding: str, limit: int) -> bytes:
    """The body as the client had it. `encoding` is the Content-Encoding header; `limit` bounds the result in bytes.

    Raises CodedError: `unsupported_type`, `malformed` for a stream that is damaged or cut short, `body_too_large`.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return body
    if name not in ("gzip", "x-gzip", "zstd"):
        raise CodedError("unsupported_type", "Content-Encoding must be gzip, zstd or identity, and only one of them")
    pieces: list[bytes] = []
    size = 0
    try:
        for piece in _zstd(body, limit) if name == "zstd" else _gzip(body):
            size += len(piece)
            if size > limit:
                raise CodedError("body_too_large", f"Request body is over {limit} bytes when decompressed", limit=limit)
            pieces.append(piece)
    except (zlib.error, zstandard.ZstdError, EOFError) as error:
        raise CodedError("malformed", f"Request body is not valid {name}") from error
    return b"".join(pieces)


def _gzip(body: bytes) -> Iterator[bytes]:
    """Every member of a gzip stream, as the format allows several; each one copies the rest, so they are bounded."""
    rest = body
    for _ in range(_MEMBERS):
        if not rest:
            return
        member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        while not member.eof:
            piece = member.decompress(rest, _PIECE)
            rest = member.unconsumed_tail
            if not piece and not rest and not member.eof:
                raise EOFError
            yield piece
        rest = member.unused_data
    if rest:
        raise CodedError("malformed", f"A gzip body may have at most {_MEMBERS} members")


def _zstd(body: bytes, limit: int) -> Iterator[bytes]:
    """Every frame of a zstd stream; a frame may ask for no more window than its output may have.

    A frame cut short ends without an error of the library: where it says its size, that is one here.
    """
    window = max(1 << 23, 1 << (limit - 1).bit_length())
    missing = zstandard.frame_content_size(body) if body else 0
    with zstandard.ZstdDecompressor(max_window_size=window).stream_reader(body, read_across_frames=True) as reader:
        while piece := reader.read(_PIECE):
            missing -= len(piece)
            yield piece
    if missing > 0:
        raise EOFError
