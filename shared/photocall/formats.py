"""Which picture format some bytes are, by their first bytes only; and what else they may be, for a refusal.

A cheap early look, the same in every room: what the bytes hold, prep decides in the end. Names, types and extensions
that somebody gave the bytes are never looked at.
"""

from __future__ import annotations

FORMATS = ("jpeg", "png", "webp", "gif", "tiff", "bmp", "heif", "avif", "ico", "pdf")

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
    (b"\0\0\1\0", "ico"),
    (b"%PDF-", "pdf"),
)
_HEIF_BRANDS = frozenset({b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs"})
_AVIF_BRANDS = frozenset({b"avif", b"avis"})
_CONTAINER_BRANDS = frozenset({b"mif1", b"msf1"})  # says neither; one of the compatible brands does

_OTHERS = (
    (b"\x8aMNG", "MNG"),
    (b"\x8bJNG", "JNG"),
    (b"\0\0\2\0", "a Windows cursor"),
    (b"\0\0\0\x0cjP  \r\n", "JPEG 2000"),
    (b"\xff\x4f\xff\x51", "JPEG 2000"),
    (b"\xff\x0a", "JPEG XL"),
    (b"\0\0\0\x0cJXL \r\n", "JPEG XL"),
    (b"II\xbc\x01", "JPEG XR"),
    (b"8BPS", "a Photoshop document"),
    (b"%!PS", "PostScript"),
    (b"\xc5\xd0\xd3\xc6", "PostScript"),
    (b"v/1\x01", "OpenEXR"),
    (b"#?RADIANCE", "Radiance HDR"),
    (b"DDS ", "DirectDraw Surface"),
    (b"icns", "an Apple icon"),
    (b"SIMPLE  =", "FITS"),
    (b"qoif", "QOI"),
    (b"gimp xcf", "a GIMP document"),
    (b"AT&TFORM", "DjVu"),
    (b"FUJIFILMCCD-RAW", "a camera's raw file"),
    (b"IIRO", "a camera's raw file"),
    (b"IIU\0", "a camera's raw file"),
    (b"\x1aE\xdf\xa3", "a Matroska or WebM film"),
    (b"OggS", "an Ogg stream"),
    (b"ID3", "MP3 audio"),
    (b"PK\3\4", "a ZIP archive (or an Office document)"),
    (b"\x1f\x8b", "gzip data"),
    (b"\x28\xb5\x2f\xfd", "Zstandard data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!", "a RAR archive"),
    (b"\xd0\xcf\x11\xe0", "an old Office document"),
    (b"{\\rtf", "RTF text"),
    (b"\x7fELF", "a program"),
    (b"MZ", "a program"),
)
_TEXT_LOOK = 512  # bytes


def picture_format(data: bytes) -> str | None:
    """One of FORMATS, or None for bytes that no supported picture starts with."""
    for start, name in _STARTS:
        if data.startswith(start):
            return name
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    return _by_brand(data) if data[4:8] == b"ftyp" else None


def what_it_is(data: bytes) -> str:
    """What bytes that are no supported picture look like, for a person; "unknown bytes" where nothing is recognised."""
    if not data:
        return "no bytes"
    for start, name in _OTHERS:
        if data.startswith(start):
            return name
    if data[:4] == b"RIFF":
        return {b"AVI ": "an AVI film", b"WAVE": "WAV audio"}.get(data[8:12], "a RIFF container")
    if data[4:8] == b"ftyp":
        brand = data[8:12].decode("ascii", "replace").strip()
        return "a camera's raw file" if brand == "crx" else f"an MPEG-4 or QuickTime file (brand {brand!r})"
    if data[:1] == b"P" and data[1:2] in b"1234567" and data[2:3].isspace():
        return "Netpbm"
    return _text(data[:_TEXT_LOOK])


def _by_brand(data: bytes) -> str | None:
    end = min(int.from_bytes(data[:4], "big"), 256)
    brands = [data[8:12], *(data[at : at + 4] for at in range(16, end - 3, 4))]
    if brands[0] in _CONTAINER_BRANDS:
        return "avif" if _AVIF_BRANDS.intersection(brands) else "heif"
    return "avif" if brands[0] in _AVIF_BRANDS else "heif" if brands[0] in _HEIF_BRANDS else None


def _text(start: bytes) -> str:
    try:
        text = start.decode("utf-8", "strict" if len(start) < _TEXT_LOOK else "ignore").lstrip("\ufeff \t\r\n").lower()
    except UnicodeDecodeError:
        return "unknown bytes"
    if not text or any(ord(c) < 32 and c not in "\t\r\n\f" for c in text):
        return "unknown bytes"
    if "<svg" in text:
        return "SVG"
    if text.startswith(("<!doctype html", "<html")):
        return "an HTML page"
    return "XML" if text.startswith("<?xml") else "JSON" if text[0] in "{[" else "text"
