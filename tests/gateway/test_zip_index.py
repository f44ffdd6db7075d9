"""Zip files that point outside of themselves: found by hand after fuzzing came near, and among its seeds now.

A place beyond 2**63 was a ValueError and a negative one an OSError, which a batch takes for a disk that will recover.
"""

from __future__ import annotations

import io
import struct
import zipfile

import pytest

from photocall_gateway.batches.zip_index import NotZipError, entries

START = b"PK\x03\x04" + bytes(40)
FULL = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)


def located(at: int) -> bytes:
    """A file whose 64-bit end record is said to be there."""
    return START + struct.pack("<4sLQL", b"PK\x06\x07", 0, at, 1) + FULL


def cut_extra() -> bytes:
    """An entry whose 64-bit sizes are cut off."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        made.writestr("a.png", b"x")
    data = out.getvalue()
    at, end = data.index(b"PK\x01\x02"), data.index(b"PK\x05\x06")
    entry = data[at : at + 20] + b"\xff" * 8 + data[at + 28 : at + 30] + struct.pack("<H", 6) + data[at + 32 : end]
    entry += struct.pack("<2H", 1, 16) + b"\0\0"
    return data[:at] + entry + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(entry), at, 0)


@pytest.mark.parametrize("data", [FULL, located(2**63), located(2**64 - 1), located(10_000), cut_extra()])
def test_a_zip_that_points_outside_of_itself_is_no_readable_one(data: bytes) -> None:
    with pytest.raises(NotZipError):
        list(entries(io.BytesIO(data), len(data)))
