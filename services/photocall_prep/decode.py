"""From the bytes of one picture file to upright RGB pixels, or a refusal that says why.

The format is found in the content, never in a name, and only the formats below are ever opened. Limits are checked on
the header, before any pixel is decoded. Of a file with several frames or pages the first counts; the others are never
read. Knows nothing of grids, jobs or Redis.
"""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import dataclass
from typing import Protocol

from PIL import Image, UnidentifiedImageError

from photocall_prep.colour import ColourRefused, to_rgb, way

# The limit is ours and is checked on the header; Pillow's own would only warn about 9000 x 9000.
Image.MAX_IMAGE_PIXELS = None

_TIFF_TILE_SIDES = (322, 323)
_JPEG_SCAN = b"\xff\xda"  # cannot occur inside a scan: there 0xff is followed by 0x00 or a restart mark
_SCANS_OF_THE_LARGEST = 16  # progressive files have about ten; smaller pictures may have more
_EXIF_ORIENTATION = 0x0112
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}

# What Pillow's plugins raise on damaged files: the picture is refused, the process goes on.
_DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    EOFError,
    AttributeError,
    ArithmeticError,
    NotImplementedError,
    struct.error,
    zlib.error,
)


class Limits(Protocol):
    """What one picture may be; settings satisfy it."""

    @property
    def max_image_bytes(self) -> int: ...
    @property
    def max_pixels(self) -> int:
        """Width times height as stored."""

    @property
    def max_frames(self) -> int:
        """Of the formats whose header states a count: PNG and WebP."""


class ImageRefused(Exception):
    """A picture that is not prepared: a code of the error table, and the reason for a person."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


@dataclass(frozen=True, slots=True)
class DecodedImage:
    """Upright RGB pixels and what they were made from."""

    rgb: Image.Image
    format: str
    mode: str  # Pillow's name of the stored pixels
    stored_size: tuple[int, int]  # width, height as the decoder hands it over
    orientation: int  # EXIF, 1..8; 1 when absent or unreadable
    colour: str  # how the stored colours became RGB


def decode(data: bytes, limits: Limits) -> DecodedImage:
    """Decode the first frame of a picture file. Raises ImageRefused."""
    if not data:
        raise ImageRefused("image_undecodable", "the file is empty")
    if len(data) > limits.max_image_bytes:
        raise ImageRefused("image_too_large", f"{len(data)} bytes; at most {limits.max_image_bytes} are accepted")
    name = sniff(data)
    if name is None:
        raise ImageRefused("image_unsupported", f"not one of {', '.join(FORMATS)}")
    try:
        with Image.open(io.BytesIO(data), formats=(name,)) as image:
            _check_header(image, data, limits)
            mode, stored_size = image.mode, image.size
            image.load()
            orientation = _orientation(image)
            colour = way(image)
            rgb = to_rgb(image)
            if orientation in _UPRIGHT:
                rgb = rgb.transpose(_UPRIGHT[orientation])
            return DecodedImage(rgb, name, mode, stored_size, orientation, colour)
    except ColourRefused as error:
        raise ImageRefused("image_unsupported", str(error)) from error
    except _DAMAGE as error:
        raise ImageRefused("image_undecodable", f"damaged {name}: {_describe(error)}") from error


FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP")


def sniff(data: bytes) -> str | None:
    """The format that the first bytes state, by Pillow's name; None for anything not accepted."""
    if data.startswith(b"\xff\xd8\xff"):
        return "JPEG"
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "PNG"
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "GIF"
    if data.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")):
        return "TIFF"
    return "BMP" if data.startswith(b"BM") else None


def _check_header(image: Image.Image, data: bytes, limits: Limits) -> None:
    width, height = image.size
    if width < 1 or height < 1:
        raise ImageRefused("image_undecodable", f"its header says {width}x{height} pixels")
    if width * height > limits.max_pixels:
        reason = f"{width}x{height} = {width * height} pixels; at most {limits.max_pixels} are accepted"
        raise ImageRefused("image_too_large", reason)
    if image.format in ("PNG", "WEBP"):
        frames = getattr(image, "n_frames", 1)
        if frames > limits.max_frames:
            raise ImageRefused("image_too_large", f"{frames} frames; at most {limits.max_frames} are accepted")
    if image.format in ("JPEG", "MPO"):  # every scan passes over the whole picture, however few bytes it has
        scans = data.count(_JPEG_SCAN)
        if scans * width * height > _SCANS_OF_THE_LARGEST * limits.max_pixels:
            raise ImageRefused("image_too_large", f"{scans} scans of {width}x{height} pixels")
    if image.format == "TIFF":  # a whole tile is held in memory, however small the picture
        tile_width, tile_height = (_tag(image, tag, 1) for tag in _TIFF_TILE_SIDES)
        if tile_width * tile_height > limits.max_pixels:
            reason = f"tiles of {tile_width}x{tile_height} pixels; at most {limits.max_pixels} are accepted"
            raise ImageRefused("image_too_large", reason)


def _tag(image: Image.Image, tag: int, default: int) -> int:
    value = getattr(image, "tag_v2", {}).get(tag, default)
    return int(value[0] if isinstance(value, tuple) else value)


def _orientation(image: Image.Image) -> int:
    try:
        value = image.getexif().get(_EXIF_ORIENTATION, 1)
    except _DAMAGE:  # a broken EXIF block does not make the pixels unreadable
        return 1
    return value if isinstance(value, int) and value in _UPRIGHT else 1


def _describe(error: BaseException) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "its header cannot be read"  # Pillow names an object of this process instead
    return " ".join(str(error).split())[:200] or type(error).__name__
