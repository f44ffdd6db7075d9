"""Golden pictures: one scene of four quarters in every format and variant, and what its pixels must be.

Made here by Pillow, tifffile, pillow-heif, or by hand, but for the two in arithmetic coding (tests/prep/data: the
scene, recoded by jpegtran). The quarters' middles are compared; lossy formats may be a few levels off.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pillow_heif
import pytest
import tifffile
from PIL import Image

from photocall.views import PLAIN, View
from photocall_prep.refusal import ImageRefused
from tests.prep.files import pdf, png
from tests.prep.pictures import TestLimits, decoded, encoded, noise, pixels, scene

DATA = Path(__file__).parent / "data"
QUARTERS = {(16, 12): (200, 30, 30), (48, 12): (30, 180, 40), (16, 36): (30, 40, 200), (48, 36): (250, 250, 250)}
GREYS = {(16, 12): 20, (48, 12): 90, (16, 36): 160, (48, 36): 250}


def assert_scene(data: bytes, format_name: str, off: int = 0, view: View = PLAIN) -> None:
    """The four quarters are there, to `off` levels."""
    found = decoded(data, view=view)
    assert found.facts.format == format_name
    assert found.rgb.size == (64, 48)
    for place, expected in QUARTERS.items():
        got = found.rgb.getpixel(place)
        assert isinstance(got, tuple)
        assert max(abs(a - b) for a, b in zip(got, expected, strict=True)) <= off, (place, got)


def grey_scene() -> Image.Image:
    image = Image.new("L", (64, 48), 250)
    for (x, y), value in GREYS.items():
        image.paste(value, (x - 16, y - 12, x + 16, y + 12))
    return image


def assert_greys(data: bytes, off: int = 0) -> None:
    found = decoded(data).rgb
    for place, expected in GREYS.items():
        got = found.getpixel(place)
        assert isinstance(got, tuple)
        assert max(abs(value - expected) for value in got) <= off, (place, got)


JPEGS: list[tuple[dict[str, Any], int]] = [
    ({"quality": 92}, 3),
    ({"quality": 92, "progressive": True}, 3),
    ({"quality": 92, "subsampling": 0}, 3),
    ({"quality": 92, "subsampling": 1, "optimize": True}, 3),
    ({"quality": 92, "keep_rgb": True}, 3),
    ({"quality": 92, "restart_marker_blocks": 2}, 3),
    ({"quality": 20}, 12),
]


@pytest.mark.parametrize(("options", "off"), JPEGS)
def test_jpeg(options: dict[str, Any], off: int) -> None:
    assert_scene(encoded(scene(), "JPEG", **options), "JPEG", off)


@pytest.mark.parametrize("name", ["arithmetic.jpg", "arithmetic-progressive.jpg"])
def test_jpeg_in_arithmetic_coding(name: str) -> None:
    assert_scene((DATA / name).read_bytes(), "JPEG", 3)


def test_grey_jpeg() -> None:
    assert_greys(encoded(grey_scene(), "JPEG", quality=92), 3)


ADOBE = b"Adobe\x00\x64\x00\x00\x00\x00"


def cmyk_scene() -> Image.Image:
    """Inks of which the formula makes the scene: no black, each colour what is missing to white."""
    return Image.merge("CMYK", [*scene().point(lambda v: 255 - v).split(), Image.new("L", (64, 48), 0)])


def test_cmyk_jpeg_is_stored_inverted_with_or_without_adobes_mark() -> None:
    marked = encoded(cmyk_scene(), "JPEG", quality=95)
    at = marked.index(ADOBE) - 4
    assert marked[at : at + 2] == b"\xff\xee"
    length = int.from_bytes(marked[at + 2 : at + 4], "big")
    unmarked = marked[:at] + marked[at + 2 + length :]
    assert b"Adobe" not in unmarked
    for data in (marked, unmarked):
        assert_scene(data, "JPEG", 4)


def test_ycck_jpeg() -> None:
    """Adobe's transform 2: the inks C, M and Y in YCbCr, as if they were R, G and B; made by hand."""
    ycc = scene().point(lambda v: 255 - v).convert("YCbCr")
    planes = [plane.point(lambda v: 255 - v) for plane in ycc.split()]  # Pillow inverts what it writes
    planes.append(Image.new("L", (64, 48), 0))
    data = encoded(Image.merge("CMYK", planes), "JPEG", quality=95)
    at = data.index(ADOBE) + len(ADOBE)
    assert data[at] == 0
    assert_scene(data[:at] + b"\x02" + data[at + 1 :], "JPEG", 6)


def test_black_ink_counts_by_the_formula() -> None:
    """(255 - C)(255 - K) / 255, to the nearest."""
    for cmyk in ((10, 20, 30, 40), (200, 100, 0, 128), (255, 1, 128, 3)):
        got = pixels(encoded(Image.new("CMYK", (8, 8), cmyk), "TIFF"))[0, 0].tolist()
        expected = [(255 - ink) * (255 - cmyk[3]) / 255 for ink in cmyk[:3]]
        assert max(abs(a - b) for a, b in zip(got, expected, strict=True)) <= 0.51, (cmyk, got)


def test_mpo_gives_any_of_its_pictures() -> None:
    data = encoded(scene(), "MPO", save_all=True, append_images=[Image.new("RGB", (32, 20), (9, 90, 200))], quality=92)
    assert_scene(data, "MPO", 3)
    second = decoded(data, view=View(frame=1))
    assert (second.rgb.size, second.facts.frame, second.facts.frames) == ((32, 20), 1, 2)
    assert np.abs(np.asarray(second.rgb).astype(int) - (9, 90, 200)).max() <= 3


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
def test_grey_png_of_every_depth(depth: int, interlaced: bool) -> None:
    top = 2**depth - 1
    stored = np.asarray(noise(13, 11))[:, :, :1].astype(np.int64) * top // 255
    expected = stored >> 8 if depth == 16 else stored * 255 // top
    assert (pixels(png(stored, depth, 0, interlaced=interlaced)) == expected).all()


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("depth", [8, 16])
def test_colour_png_of_every_depth(depth: int, interlaced: bool) -> None:
    stored = np.asarray(noise(13, 11)).astype(np.int64) * (257 if depth == 16 else 1)
    assert (pixels(png(stored, depth, 2, interlaced=interlaced)) == np.asarray(noise(13, 11))).all()


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_palette_png_of_every_depth(depth: int) -> None:
    palette = np.asarray(noise(2**depth, 1))[0]
    stored = np.arange(40).reshape(5, 8, 1) % 2**depth
    data = png(stored, depth, 3, [(b"PLTE", palette.tobytes())])
    assert (pixels(data) == palette[stored[:, :, 0]]).all()


@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_the_colour_key_of_a_grey_png_of_every_depth(depth: int) -> None:
    """Keys were compared with scaled pixels as they are stored: between 1 and 8 bits none was ever found."""
    top = 2**depth - 1
    stored = np.arange(top + 1).reshape(1, -1, 1)
    for key in {0, top // 2, top - 1}:
        expected = np.arange(top + 1) * 255 // top
        expected[key] = 255
        assert pixels(png(stored, depth, 0, [(b"tRNS", key.to_bytes(2, "big"))]))[0, :, 1].tolist() == expected.tolist()


def test_the_colour_key_of_a_16_bit_png_counts_by_its_high_bytes() -> None:
    stored = np.array([[[0x1234, 0x5678, 0x9ABC], [0x1334, 0x5678, 0x9ABC]]])
    key = b"\x12\x34\x56\x78\x9a\xbc"
    assert pixels(png(stored, 16, 2, [(b"tRNS", key)])).tolist() == [[[255, 255, 255], [0x13, 0x56, 0x9A]]]


def test_ten_bits_of_a_heif_are_scaled() -> None:
    stored = np.full((64, 64, 3), (0x8000, 0x4000, 0xFFFF), np.uint16)
    out = io.BytesIO()
    pillow_heif.from_bytes("RGB;16", (64, 64), stored.tobytes()).save(out, quality=95)
    assert np.abs(pixels(out.getvalue()) - (0x80, 0x40, 0xFF)).max() <= 2


def test_16_bits_are_scaled_and_not_clipped() -> None:
    ramp = np.arange(0, 65536, 257, dtype=np.uint16).reshape(16, 16)
    expected = np.arange(256).reshape(16, 16)
    colours = np.stack([ramp, ramp.T, ramp[::-1]], axis=-1)
    for data in (png(ramp[:, :, None].astype(int), 16, 0), encoded(Image.fromarray(ramp), "TIFF")):
        assert (pixels(data)[:, :, 1] == expected).all()
    for data in (png(colours.astype(int), 16, 2), tiff(colours)):
        assert (pixels(data) == np.stack([expected, expected.T, expected[::-1]], axis=-1)).all()


def tiff(*pages: Any, **options: Any) -> bytes:
    """By tifffile, which writes what Pillow does not."""
    out = io.BytesIO()
    with tifffile.TiffWriter(
        out, bigtiff=options.pop("bigtiff", False), byteorder=options.pop("byteorder", "<")
    ) as writer:
        for page in pages:
            writer.write(page, **{"photometric": "rgb" if page.ndim == 3 else "minisblack", **options})
    return out.getvalue()


@pytest.mark.parametrize(
    ("options", "off"),
    [
        ({}, 0),
        ({"compression": "tiff_lzw"}, 0),
        ({"compression": "tiff_adobe_deflate"}, 0),
        ({"compression": "tiff_deflate"}, 0),
        ({"compression": "packbits"}, 0),
        ({"compression": "tiff_lzw", "tiffinfo": {317: 2}}, 0),  # with a predictor
        ({"compression": "jpeg", "quality": 92}, 4),
    ],
)
def test_tiff(options: dict[str, Any], off: int) -> None:
    assert_scene(encoded(scene(), "TIFF", **options), "TIFF", off)


@pytest.mark.parametrize(
    "options",
    [{"byteorder": ">"}, {"bigtiff": True}, {"tile": (16, 16)}, {"rowsperstrip": 5}, {"planarconfig": "separate"}],
)
def test_tiff_in_other_layouts(options: dict[str, Any]) -> None:
    stored = np.asarray(scene())
    if options.get("planarconfig") == "separate":
        stored = stored.transpose(2, 0, 1)
    assert_scene(tiff(stored, **options), "TIFF")


def test_cmyk_tiff() -> None:
    for options in ({}, {"compression": "tiff_lzw"}, {"compression": "tiff_adobe_deflate"}):
        assert_scene(encoded(cmyk_scene(), "TIFF", **options), "TIFF", 1)


def test_grey_and_bilevel_tiff() -> None:
    assert_greys(encoded(grey_scene(), "TIFF"))
    fax = decoded(encoded(grey_scene().point(lambda v: 255 * (v > 128), "1"), "TIFF", compression="group4")).rgb
    assert [fax.getpixel(place) for place in GREYS] == [(0, 0, 0), (0, 0, 0), (255, 255, 255), (255, 255, 255)]


def test_any_page_of_a_tiff() -> None:
    pages = [np.full((20, 30, 3), (10 * n, 5, 100), np.uint8) for n in range(1, 5)]
    data = tiff(*pages, np.asarray(scene()))
    for n in range(4):
        found = decoded(data, view=View(frame=n))
        assert (found.rgb.getpixel((3, 3)), found.rgb.size, found.facts.frame) == ((10 * n + 10, 5, 100), (30, 20), n)
    assert_scene(data, "TIFF", view=View(frame=4))
    with pytest.raises(ImageRefused, match="page 6 was asked for; the file ends before it") as refused:
        decoded(data, view=View(frame=5))
    assert refused.value.code == "image_view_unsupported"


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int32, np.uint32, np.float16, np.complex64])
def test_a_tiff_of_other_numbers_is_refused(kind: Any) -> None:
    with pytest.raises(ImageRefused) as refused:
        decoded(tiff(np.ones((8, 8), kind)))
    expected = "image_unsupported" if kind in (np.float32, np.int32) else None  # Pillow does not open the others
    assert refused.value.code in {expected or "image_undecodable", "image_unsupported"}
    if kind == np.float32:
        assert "floating-point samples cannot be shown" in refused.value.reason


@pytest.mark.parametrize("name", ["GIF", "PNG", "WEBP"])
def test_any_frame_of_an_animation(name: str) -> None:
    frames = [Image.new("RGB", (40, 30), (60 * n, 255 - 60 * n, 30)) for n in range(4)]
    frames[2].paste((255, 255, 255), (10, 10, 20, 20))
    options: dict[str, Any] = {"lossless": True} if name == "WEBP" else {}
    data = encoded(frames[0], name, save_all=True, append_images=frames[1:], duration=40, **options)
    for n, frame in enumerate(frames):
        found = decoded(data, view=View(frame=n))
        assert (np.asarray(found.rgb) == np.asarray(frame)).all(), n
        assert found.facts.frame == n
    there = "ends before it" if name == "GIF" else "has 4"
    with pytest.raises(ImageRefused, match=rf"frame 4 \(from 0\) .*; the file {there}"):
        decoded(data, view=View(frame=4))


def test_any_frame_of_an_avif() -> None:
    frames = [Image.new("RGB", (64, 64), (60 * n, 255 - 60 * n, 30)) for n in range(3)]
    data = encoded(frames[0], "AVIF", save_all=True, append_images=frames[1:], quality=95)
    for n, frame in enumerate(frames):
        found = decoded(data, view=View(frame=n))
        assert np.abs(np.asarray(found.rgb).astype(int) - np.asarray(frame)).mean() <= 3
        assert found.facts.frames == 3


def test_gif_interlaced_and_webp_and_bmp() -> None:
    assert_scene(encoded(scene(), "GIF", interlace=True), "GIF")
    assert_scene(encoded(scene(), "WEBP", lossless=True), "WEBP")
    assert_scene(encoded(scene(), "WEBP", quality=92), "WEBP", 4)
    assert_scene(encoded(scene(), "BMP"), "BMP")
    assert_greys(encoded(grey_scene(), "BMP"))


def test_bmp_with_five_and_six_bits_and_run_lengths() -> None:
    """By hand: 565 bit fields from the top down, and RLE8."""
    import struct

    green = struct.pack("<HH", 0b0000011111100000, 0b1111100000011111)
    fields = struct.pack("<III", 0xF800, 0x07E0, 0x001F)
    header = struct.pack("<IiiHHIIiiII", 40, 2, -1, 1, 16, 3, 4, 0, 0, 0, 0) + fields
    data = b"BM" + struct.pack("<IHHI", 14 + len(header) + 4, 0, 0, 14 + len(header)) + header + green
    assert pixels(data).tolist() == [[[0, 255, 0], [255, 0, 255]]]
    palette = bytes((9, 8, 7, 0, 30, 20, 10, 0))
    runs = bytes((3, 1, 1, 0, 0, 0, 4, 1, 0, 1))
    header = struct.pack("<IiiHHIIiiII", 40, 4, 2, 1, 8, 1, len(runs), 0, 0, 2, 0) + palette
    data = b"BM" + struct.pack("<IHHI", 14 + len(header) + len(runs), 0, 0, 14 + len(header)) + header + runs
    a, b = [7, 8, 9], [10, 20, 30]
    assert pixels(data).tolist() == [[b, b, b, b], [b, b, b, a]]


def test_heif_and_avif() -> None:
    assert_scene(encoded(scene(), "HEIF", quality=90), "HEIF", 4)
    assert_scene(encoded(scene(), "AVIF", quality=90), "AVIF", 4)
    assert_greys(encoded(grey_scene(), "HEIF", quality=90), 4)


@pytest.mark.parametrize("name", ["HEIF", "AVIF"])
def test_transparent_heif_and_avif(name: str) -> None:
    image = scene().convert("RGBA")
    image.putalpha(Image.new("L", image.size, 0))
    data = encoded(image, name, quality=90)
    assert (pixels(data) == 255).all()
    assert decoded(data, view=View(background="102030")).rgb.getpixel((5, 5)) == (16, 32, 48)


@pytest.mark.parametrize("name", ["HEIF", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_heif_and_avif_end_upright(name: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    as_jpeg = decoded(encoded(scene(), "JPEG", quality=95, exif=exif)).rgb
    data = encoded(scene(), name, quality=90, exif=exif.tobytes())  # the encoders make it the container's turn
    found = decoded(data)
    assert found.rgb.size == as_jpeg.size == found.facts.upright_size
    assert found.facts.orientation == orientation
    assert np.median(np.abs(np.asarray(found.rgb).astype(int) - np.asarray(as_jpeg))) <= 3


def test_icons() -> None:
    """The largest counts, whichever way it is stored; any other can be asked for."""
    small = scene().resize((16, 16))
    for stored in ("png", "bmp"):
        data = encoded(scene(), "ICO", sizes=[(64, 48)], bitmap_format=stored)
        assert_scene(data, "ICO")
        both = encoded(scene(64, 64), "ICO", sizes=[(16, 16), (64, 64)], append_images=[small], bitmap_format=stored)
        assert decoded(both).rgb.size == (64, 64)
        first = decoded(both, view=View(frame=0))
        assert (first.rgb.size, first.facts.frames) == ((16, 16), 2)
    with pytest.raises(ImageRefused, match=r"frame 2 .*; the file has 2"):
        decoded(both, view=View(frame=2))


def test_an_icon_that_lies_about_its_size_is_refused() -> None:
    data = bytearray(encoded(scene(), "ICO", sizes=[(64, 48)], bitmap_format="bmp"))
    data[6 + 16 + 4 : 6 + 16 + 8] = (30_000).to_bytes(4, "little")
    with pytest.raises(ImageRefused, match="another size than its picture"):
        decoded(bytes(data))


RED_LEFT = "1 0 0 rg 0 0 48 48 re f"
BLUE_TOP = "0 0 1 rg 0 24 96 24 re f"


def test_pages_of_a_pdf() -> None:
    """96 x 48 points: 200 x 100 pixels at the 150 dpi that nobody has to ask for."""
    data = pdf(RED_LEFT, BLUE_TOP)
    found = decoded(data)
    assert (found.facts.format, found.rgb.size, found.facts.frames) == ("PDF", (200, 100), 2)
    assert [found.rgb.getpixel(place) for place in ((50, 50), (150, 50))] == [(255, 0, 0), (255, 255, 255)]
    second = decoded(data, view=View(frame=1, dpi=75, background="204060"))
    assert second.rgb.size == (100, 50)
    assert [second.rgb.getpixel(place) for place in ((50, 10), (50, 40))] == [(0, 0, 255), (32, 64, 96)]
    assert decoded(pdf(RED_LEFT, rotate=90)).rgb.size == (100, 200)
    with pytest.raises(ImageRefused, match="page 3 was asked for; the file has 2") as refused:
        decoded(data, view=View(frame=2))
    assert refused.value.code == "image_view_unsupported"


def test_a_page_is_held_to_the_limits_before_it_is_drawn() -> None:
    with pytest.raises(ImageRefused, match="3000x1500 pixels at 150 dpi; at most 4000000") as refused:
        decoded(pdf(RED_LEFT, size=(1440, 720)))
    assert refused.value.code == "image_too_large"
    with pytest.raises(ImageRefused, match="5000 dpi; 18 to 1200 are drawn"):
        decoded(pdf(RED_LEFT), view=View(dpi=5000))


def test_only_a_page_has_a_resolution() -> None:
    with pytest.raises(ImageRefused, match="dpi is for pages of a PDF") as refused:
        decoded(encoded(scene(), "PNG"), view=View(dpi=150))
    assert refused.value.code == "image_view_unsupported"


def test_a_frame_too_far_away_is_refused() -> None:
    """Each frame before it is decoded on the way."""
    frames = [Image.new("RGB", (1000, 1000), (n, 0, 0)) for n in range(20)]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert decoded(data, view=View(frame=15)).facts.frame == 15
    with pytest.raises(ImageRefused, match="17 frames of 1000x1000 pixels must be decoded; at most 16000000"):
        decoded(data, TestLimits(max_pixels=1_000_000), view=View(frame=16))
    with pytest.raises(ImageRefused, match="frame 20; at most 20 frames"):
        decoded(data, view=View(frame=20))
