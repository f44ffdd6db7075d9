"""Compressed request bodies: taken, bounded, refused."""

from __future__ import annotations

import gzip

import pytest
import zstandard

from photocall.errors import CodedError
from photocall_gateway.compression import decompress

DATA = bytes(range(256)) * 64
LIMIT = 1 << 20


def zstd(data: bytes, level: int = 3) -> bytes:
    return zstandard.ZstdCompressor(level=level).compress(data)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("", DATA),
        ("identity", DATA),
        ("gzip", gzip.compress(DATA)),
        ("X-GZIP", gzip.compress(DATA)),
        ("gzip", gzip.compress(DATA[:100]) + gzip.compress(DATA[100:])),
        ("zstd", zstd(DATA)),
        (" zstd ", zstd(DATA, 19)),
        ("zstd", zstd(DATA[:100]) + zstd(DATA[100:])),
        ("zstd", zstandard.ZstdCompressor(write_content_size=False).compress(DATA)),
    ],
)
def test_every_encoding_gives_the_same_bytes(encoding: str, body: bytes) -> None:
    assert decompress(body, encoding, LIMIT) == DATA


def test_the_bound_itself_is_taken() -> None:
    assert len(decompress(zstd(b"x" * LIMIT), "zstd", LIMIT)) == LIMIT
    assert len(decompress(gzip.compress(b"x" * LIMIT), "gzip", LIMIT)) == LIMIT


@pytest.mark.parametrize(
    ("encoding", "body", "code"),
    [
        ("gzip", gzip.compress(b"x" * (LIMIT + 1)), "body_too_large"),
        ("zstd", zstd(b"x" * (LIMIT + 1)), "body_too_large"),
        ("zstd", zstd(b"\0" * (1 << 28)), "body_too_large"),
        ("gzip", gzip.compress(b"\0" * (1 << 26)), "body_too_large"),
        ("gzip", gzip.compress(DATA)[:-9], "malformed"),
        ("gzip", b"not gzip", "malformed"),
        ("gzip", gzip.compress(DATA) + b"tail", "malformed"),
        ("gzip", gzip.compress(b"") * 1000, "malformed"),
        ("zstd", b"not zstd", "malformed"),
        ("zstd", zstd(DATA)[:-5], "malformed"),
        ("zstd", zstd(DATA)[:9], "malformed"),
        ("zstd", zstd(DATA) + b"tail", "malformed"),
        ("br", DATA, "unsupported_type"),
        ("gzip, zstd", DATA, "unsupported_type"),
    ],
)
def test_bombs_and_damage_are_refused(encoding: str, body: bytes, code: str) -> None:
    with pytest.raises(CodedError) as caught:
        decompress(body, encoding, LIMIT)
    assert caught.value.code == code


def test_a_zstd_window_of_gigabytes_is_not_allocated() -> None:
    # A frame that asks for a 2 GiB window: magic, descriptor without content size, window descriptor 0xA8 (2**31).
    frame = b"\x28\xb5\x2f\xfd" + b"\x00" + b"\xa8" + b"\x01\x00\x00"
    with pytest.raises(CodedError) as caught:
        decompress(frame, "zstd", LIMIT)
    assert caught.value.code == "malformed"
