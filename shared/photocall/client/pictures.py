"""Pictures as a program has them, and as the server takes them: bytes, or what names a picture elsewhere.

Files go as they are. What is only pixels (numpy, Pillow) goes as a PNG, the same one each time, so that it is stored
once; for numpy it is written here, so that nobody needs Pillow for it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import os
import re
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote_to_bytes

Image: TypeAlias = Any
"""A path (Path or text), bytes, an image of Pillow, an array of numpy (height, width, 1 to 4 channels), an open file,
an https URL where the server fetches these, a data URL, the sha256 of a stored picture, or a Picture around one."""
Images: TypeAlias = Image | Sequence[Image] | Mapping[str, Image] | None
"""One; several, which texts call `[image 1]`, `[image 2]`, ...; several by the words that texts call them; or none."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_PNG_MODES = ("1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA")  # of Pillow: those that a PNG holds
_LEVEL = 1  # of compression: a picture is sent once, over a network that is faster than zlib


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture and how it is to be shown; None: as the server is set up. docs/images.md says what the fields mean."""

    image: Image
    page: int | None = None
    frame: int | None = None
    dpi: int | None = None
    background: str | None = None
    budget: int | Literal["auto"] | None = None

    def fields(self) -> dict[str, Any]:
        """Those that stand beside the picture in a request."""
        told: dict[str, Any] = {"page": self.page, "frame": self.frame, "dpi": self.dpi}
        told |= {"background": self.background, "budget": self.budget}
        return {name: value for name, value in told.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Loaded:
    """A picture that can be sent: its bytes, or a hash or URL that names it; and the fields beside it."""

    data: bytes | None
    name: str  # sha256 in hex, or a URL
    fields: Mapping[str, Any]

    def entry(self) -> dict[str, Any]:
        """As a request names it, once its bytes are stored."""
        return {"url" if ":" in self.name else "sha256": self.name, **self.fields}

    def entry_with_bytes(self) -> dict[str, Any]:
        """As a request holds it, its bytes included."""
        if self.data is None:
            return self.entry()
        return {"data_base64": base64.b64encode(self.data).decode(), **self.fields}


def load(image: Image) -> Loaded:
    """Read a picture. Raises OSError for a file that cannot be read, TypeError or ValueError for what is none."""
    if isinstance(image, Picture):
        inner = load(image.image)
        return Loaded(inner.data, inner.name, {**inner.fields, **image.fields()})
    if isinstance(image, str) and (_SHA256.fullmatch(image) or image.startswith(("http://", "https://"))):
        return Loaded(None, image, {})
    data = _data(image)
    if not data:
        raise ValueError("the picture has no bytes")
    return Loaded(data, hashlib.sha256(data).hexdigest(), {})


def path_of(image: Image) -> Path | None:
    """Where a picture lies, if it is a file that is named."""
    if isinstance(image, Picture):
        return path_of(image.image)
    if isinstance(image, str):
        return None if _SHA256.fullmatch(image) or image.startswith(("http:", "https:", "data:")) else Path(image)
    return Path(image) if isinstance(image, os.PathLike) else None


def by_name(images: Images) -> dict[str, Image]:
    """Each picture by what texts call it."""
    if images is None:
        return {}
    if isinstance(images, Mapping):
        return dict(images)
    several = images if isinstance(images, list | tuple) else [images]
    return {marker(i): image for i, image in enumerate(several, 1)}


def marker(number: int) -> str:
    """What texts call the picture of this place in a list, from 1."""
    return f"[image {number}]"


def _data(image: Image) -> bytes:
    if isinstance(image, bytes | bytearray | memoryview):
        return bytes(image)
    if isinstance(image, str) and image.startswith("data:"):
        return _of_data_url(image)
    if (path := path_of(image)) is not None:
        return path.expanduser().read_bytes()
    if hasattr(image, "save") and hasattr(image, "mode"):
        return _of_pillow(image)
    if hasattr(image, "__array_interface__"):
        return _of_array(image)
    if hasattr(image, "read"):
        found = image.read()
        if isinstance(found, bytes):
            return found
    expected = "a path, bytes, an image of Pillow, an array of numpy, an open binary file, a URL or a sha256"
    raise TypeError(f"{type(image).__module__}.{type(image).__qualname__} is no picture: expected {expected}")


def _of_data_url(url: str) -> bytes:
    head, _, body = url.partition(",")
    data = unquote_to_bytes(body)
    try:
        return base64.b64decode(data, validate=True) if head.endswith(";base64") else data
    except binascii.Error as error:
        raise ValueError(f"a data URL whose base64 is damaged: {error}") from None


def _of_pillow(image: Any) -> bytes:
    """What the image holds, its profile and orientation with it. Inks stay inks: TIFF has them, PNG has not."""
    out = io.BytesIO()
    if image.mode == "CMYK":
        image.save(out, "TIFF", compression="tiff_lzw")
        return out.getvalue()
    kept = image if image.mode in _PNG_MODES else image.convert("RGB")
    exif = image.getexif()
    kept.save(out, "PNG", compress_level=_LEVEL, **({"exif": exif} if exif else {}))
    return out.getvalue()


def _of_array(array: Any) -> bytes:
    shape = tuple(array.shape)
    channels = 1 if len(shape) == 2 else shape[2] if len(shape) == 3 else 0
    if channels not in (1, 2, 3, 4) or 0 in shape:
        raise ValueError(
            f"an array of shape {shape} is no picture: expected (height, width) or (height, width, 1 to 4)"
        )
    kind, depth = {"bool": ("uint8", 8), "uint8": ("uint8", 8), "uint16": (">u2", 16)}.get(str(array.dtype), ("", 0))
    if not depth:
        told = "expected uint8 (0 to 255), uint16 or bool"
        raise TypeError(
            f"an array of {array.dtype} is no picture: {told}; of floats from 0 to 1, (255 * x).astype('uint8')"
        )
    pixels = array.astype(kind) * 255 if str(array.dtype) == "bool" else array.astype(kind)
    height, width = shape[:2]
    raw = pixels.reshape(height, -1)
    lines = b"".join(b"\0" + raw[y].tobytes() for y in range(height))
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, _LEVEL)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
