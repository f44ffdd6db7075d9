"""PDFs that claim much or draw much: their bytes. `tests/bombs.py` says what each may cost."""

from __future__ import annotations

import zlib

from tests.prep.files import document

MIB = 1 << 20
SMALL = b"[0 0 96 48]"


def huge_page() -> bytes:
    """A page of seven kilometres."""
    return _document(_stream(b"0 0 9 9 re f"), box=b"[0 0 20000000 20000000]")


def claimed_pages() -> bytes:
    """Two thousand million pages, of which one is there."""
    return _document(_stream(b"q Q"), count=0x7FFFFFFF)


def claimed_image() -> bytes:
    """A picture of 60000 x 60000 that has a thousand bytes."""
    image = b"/Type /XObject /Subtype /Image /Width 60000 /Height 60000 /ColorSpace /DeviceRGB /BitsPerComponent 8"
    return _document(_stream(b"96 0 0 48 0 0 cm /I Do"), b"/XObject << /I 5 0 R >>", _stream(bytes(1000), image))


def wide_image() -> bytes:
    """A picture of 9000 x 9000, all of it there, in a few hundred kilobytes."""
    image = b"/Type /XObject /Subtype /Image /Width 9000 /Height 9000 /ColorSpace /DeviceRGB /BitsPerComponent 8"
    pixels = _stream(bytes(3 * 9000 * 9000), image)
    return _document(_stream(b"96 0 0 48 0 0 cm /I Do"), b"/XObject << /I 5 0 R >>", pixels)


def much_content() -> bytes:
    """Sixteen million operators that draw nothing."""
    return _document(_stream(b"q Q " * (8 * MIB)))


def twice_packed() -> bytes:
    """A quarter of a gigabyte, compressed, and that compressed."""
    data = zlib.compress(zlib.compress(bytes(256 * MIB), 9), 9)
    return _document(b"<< /Length %d /Filter [/FlateDecode /FlateDecode] >>\nstream\n%b\nendstream" % (len(data), data))


def deep() -> bytes:
    """An array in an array, 300,000 times."""
    nested = b"[" * 300_000 + b"]" * 300_000
    return document(
        b"<< /Type /Catalog /Pages 2 0 R /A %b >>" % nested,
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 96 48] >>",
    )


def laughs() -> bytes:
    """A form that draws another ten times, which draws another ten times, nine deep."""
    forms = [_form(b"/F Do " * 10, b"/F %d 0 R" % (6 + number)) for number in range(8)]
    return _document(_stream(b"/F Do " * 10), b"/XObject << /F 5 0 R >>", *forms, _form(b"0 0 9 9 re f", b""))


def _document(
    content: bytes, resources: bytes = b"", *more: bytes, box: bytes = b"[0 0 96 48]", count: int = 1
) -> bytes:
    return document(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count %d >>" % count,
        b"<< /Type /Page /Parent 2 0 R /MediaBox %b /Contents 4 0 R /Resources << %b >> >>" % (box, resources),
        content,
        *more,
    )


def _stream(data: bytes, more: bytes = b"") -> bytes:
    packed = zlib.compress(data, 9)
    return b"<< /Length %d /Filter /FlateDecode %b >>\nstream\n%b\nendstream" % (len(packed), more, packed)


def _form(data: bytes, names: bytes) -> bytes:
    return _stream(data, b"/Type /XObject /Subtype /Form /BBox [0 0 96 48] /Resources << /XObject << %b >> >>" % names)
