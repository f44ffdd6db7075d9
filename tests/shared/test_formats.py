"""The cheap look at a picture's first bytes."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from photocall.formats import picture_format


@pytest.mark.parametrize("name", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"])
def test_what_pillow_writes_is_known(name: str) -> None:
    out = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(out, name)
    assert picture_format(out.getvalue()) == name.lower()


def test_heif_pdf_and_big_endian_tiff() -> None:
    assert picture_format(b"\0\0\0\x18ftypheic\0\0\0\0") == "heif"
    assert picture_format(b"%PDF-1.7\n") == "pdf"
    assert picture_format(b"MM\x00*rest") == "tiff"


@pytest.mark.parametrize("data", [b"", b"\x89PN", b"RIFF1234WAVE", b"\0\0\0\x18ftypmp42", b"<svg/>", b"%!PS-Adobe-3.0"])
def test_other_bytes_are_not(data: bytes) -> None:
    assert picture_format(data) is None
