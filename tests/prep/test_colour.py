"""Golden values of every kind of pixel: what each stored colour becomes."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, TiffImagePlugin

from photocall_prep.refusal import ImageRefused
from tests.prep.pictures import decoded, encoded, pixels


def one(image: Image.Image, name: str = "PNG", **options: object) -> tuple[int, ...]:
    """The RGB of a flat picture's top left pixel."""
    value = decoded(encoded(image, name, **options)).rgb.getpixel((0, 0))
    assert isinstance(value, tuple)
    return value


def test_grey() -> None:
    assert one(Image.new("L", (8, 8), 77)) == (77, 77, 77)


def test_bilevel() -> None:
    assert one(Image.new("1", (8, 8), 1)) == (255, 255, 255)
    assert one(Image.new("1", (8, 8), 0)) == (0, 0, 0)


def test_palette() -> None:
    image = Image.new("P", (8, 8), 3)
    image.putpalette([0, 0, 0, 1, 1, 1, 2, 2, 2, 10, 120, 230])
    for name in ("PNG", "GIF", "BMP", "TIFF"):
        assert one(image, name) == (10, 120, 230), name


@pytest.mark.parametrize(("alpha", "expected"), [(255, (200, 40, 0)), (0, (255, 255, 255)), (128, (227, 147, 127))])
def test_alpha_lies_over_white(alpha: int, expected: tuple[int, int, int]) -> None:
    """c * a + 255 * (255 - a), over 255, to the nearest."""
    image = Image.new("RGBA", (8, 8), (200, 40, 0, alpha))
    assert one(image) == expected
    assert one(image, "TIFF") == expected
    assert one(image, "WEBP", lossless=True, exact=True) == expected


def test_grey_alpha_lies_over_white() -> None:
    assert one(Image.new("LA", (8, 8), (100, 0))) == (255, 255, 255)
    assert one(Image.new("LA", (8, 8), (100, 51))) == (224, 224, 224)


def test_a_transparent_palette_entry_is_white() -> None:
    image = Image.new("P", (8, 8), 1)
    image.putpalette([0, 0, 0, 9, 9, 9])
    assert one(image) == (9, 9, 9)
    for name in ("PNG", "GIF"):
        assert one(image, name, transparency=1) == (255, 255, 255), name


def test_half_transparent_palette_entries() -> None:
    image = Image.new("P", (8, 8), 1)
    image.putpalette([0, 0, 0, 0, 0, 0])
    assert one(image, transparency=bytes([255, 102])) == (153, 153, 153)


def test_a_colour_key_is_white() -> None:
    image = Image.new("RGB", (8, 8), (1, 2, 3))
    assert one(image, transparency=(1, 2, 3)) == (255, 255, 255)
    assert one(image, transparency=(1, 2, 4)) == (1, 2, 3)
    assert one(Image.new("L", (8, 8), 5), transparency=5) == (255, 255, 255)


def test_16_bit_grey_keeps_its_high_byte() -> None:
    grey = np.array([[0x0000, 0x00FF], [0x7F80, 0xFFFF]], dtype=np.uint16)
    for name in ("PNG", "TIFF"):
        assert pixels(encoded(Image.fromarray(grey), name))[:, :, 0].tolist() == [[0, 0], [0x7F, 255]], name


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png_16(colour_type: int, values: tuple[int, ...], key: bytes = b"") -> bytes:
    """A PNG of one pixel with 16 bits a channel, which Pillow reads but does not write."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 16, colour_type, 0, 0, 0))
    body = zlib.compress(b"\0" + struct.pack(f">{len(values)}H", *values))
    return (
        b"\x89PNG\r\n\x1a\n"
        + header
        + (chunk(b"tRNS", key) if key else b"")
        + chunk(b"IDAT", body)
        + chunk(b"IEND", b"")
    )


def test_16_bit_colour_keeps_its_high_byte() -> None:
    assert pixels(png_16(2, (0x01FF, 0x7F80, 0xFFFF))).tolist() == [[[0x01, 0x7F, 0xFF]]]
    assert pixels(png_16(6, (0x01FF, 0x7F80, 0xFFFF, 0x0000))).tolist() == [[[255, 255, 255]]]
    assert pixels(png_16(4, (0x01FF, 0xFFFF))).tolist() == [[[1, 1, 1]]]


def test_a_16_bit_grey_key_is_white() -> None:
    assert pixels(png_16(0, (0x1234,), key=struct.pack(">H", 0x1234))).tolist() == [[[255, 255, 255]]]
    assert pixels(png_16(0, (0x1234,), key=struct.pack(">H", 0x1235))).tolist() == [[[0x12, 0x12, 0x12]]]


def test_16_bit_grey_tiff_where_white_is_zero() -> None:
    tags = TiffImagePlugin.ImageFileDirectory_v2()
    tags[262] = 0
    data = encoded(Image.fromarray(np.full((2, 2), 0x1000, dtype=np.uint16)), "TIFF", tiffinfo=tags)
    stored = Image.open(io.BytesIO(data))
    assert isinstance(stored, TiffImagePlugin.TiffImageFile)
    assert stored.tag_v2[262] == 0, "the file must state it, or this test shows nothing"
    assert pixels(data)[0, 0].tolist() == [0xEF, 0xEF, 0xEF]


@pytest.mark.parametrize(
    ("cmyk", "rgb"),
    [
        ((0, 0, 0, 0), (255, 255, 255)),
        ((0, 255, 255, 0), (255, 0, 0)),
        ((0, 0, 0, 255), (0, 0, 0)),
        ((255, 0, 0, 0), (0, 255, 255)),
    ],
)
def test_cmyk(cmyk: tuple[int, int, int, int], rgb: tuple[int, int, int]) -> None:
    image = Image.new("CMYK", (16, 16), cmyk)
    assert one(image, "TIFF") == rgb
    jpeg = one(image, "JPEG", quality=100)
    assert max(abs(a - b) for a, b in zip(jpeg, rgb, strict=True)) <= 3, "JPEG rounds"


def test_an_adobe_jpeg_stores_cmyk_inverted_and_is_read_so() -> None:
    data = encoded(Image.new("CMYK", (16, 16), (0, 255, 255, 0)), "JPEG", quality=100)
    segment = b"\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"  # APP14, version 100, transform 0: plain CMYK
    marked = data if b"Adobe" in data else data[:2] + segment + data[2:]
    assert b"Adobe" in marked
    red, green, blue = pixels(marked)[0, 0].tolist()
    assert red > 250 > 5 > max(green, blue)


def test_ycbcr_tiff() -> None:
    image = Image.new("RGB", (16, 16), (200, 30, 30)).convert("YCbCr")
    value = one(image, "TIFF")
    assert max(abs(a - b) for a, b in zip(value, (200, 30, 30), strict=True)) <= 2, "YCbCr rounds"


@pytest.mark.parametrize(("mode", "what"), [("F", "floating-point"), ("I", "32-bit integer"), ("LAB", "Lab colours")])
def test_pixels_without_a_defined_brightness_are_refused(mode: str, what: str) -> None:
    with pytest.raises(ImageRefused, match=what) as refused:
        decoded(encoded(Image.new(mode, (8, 8)), "TIFF"))
    assert refused.value.code == "image_unsupported"
