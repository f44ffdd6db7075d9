"""Which picture format some bytes are, by their first bytes only: a cheap early look, prep decides in the end."""

from __future__ import annotations

_STARTS = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"BM", "bmp"),
    (b"II*\x00", "tiff"),
    (b"MM\x00*", "tiff"),
    (b"II+\x00", "tiff"),
    (b"MM\x00+", "tiff"),
    (b"%PDF-", "pdf"),
)
_HEIF_BRANDS = frozenset({b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"})
_AVIF_BRANDS = frozenset({b"avif", b"avis"})


def picture_format(data: bytes) -> str | None:
    """A short name, or None for bytes that no supported picture starts with."""
    for start, name in _STARTS:
        if data.startswith(start):
            return name
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    if data[4:8] == b"ftyp":
        brand = data[8:12]
        return "avif" if brand in _AVIF_BRANDS else "heif" if brand in _HEIF_BRANDS else None
    return None
