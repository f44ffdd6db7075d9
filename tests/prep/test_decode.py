"""Every accepted format, every orientation, and every way a file can be refused."""

import os
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
from PIL import Image

from photocall_prep.refusal import ImageRefused
from tests.prep.pictures import TestLimits, decoded, encoded, noise, pixels, scene

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP")
LOSSLESS = [("PNG", {}), ("BMP", {}), ("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"}), ("WEBP", {"lossless": True})]


@pytest.mark.parametrize(("name", "options"), LOSSLESS)
def test_lossless_formats_come_back_to_the_byte(name: str, options: dict[str, object]) -> None:
    picture = noise(61, 47)
    result = decoded(encoded(picture, name, **options))
    assert result.facts.format == name
    assert result.rgb.mode == "RGB"
    assert result.rgb.tobytes() == picture.tobytes()


@pytest.mark.parametrize("name", ["JPEG", "WEBP"])
def test_lossy_formats_come_back_nearly(name: str) -> None:
    difference = np.abs(pixels(encoded(scene(), name, quality=95)) - np.asarray(scene()))
    assert difference.mean() < 2, "flat quarters at quality 95 keep their colour to 2 of 255"


def test_gif_comes_back_exactly_when_its_colours_fit_a_palette() -> None:
    assert (pixels(encoded(scene(), "GIF")) == np.asarray(scene())).all()


@pytest.mark.parametrize("name", ["GIF", "PNG", "WEBP", "TIFF"])
def test_of_several_frames_the_first_counts(name: str) -> None:
    first, second = Image.new("RGB", (32, 32), (255, 0, 0)), Image.new("RGB", (32, 32), (0, 0, 255))
    options = {"lossless": True} if name == "WEBP" else {}
    data = encoded(first, name, save_all=True, append_images=[second], **options)
    assert decoded(data).rgb.getpixel((16, 16)) == (255, 0, 0)


@pytest.mark.parametrize("name", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_orientation_ends_upright(name: str, orientation: int) -> None:
    upright = scene(64, 48)
    stored = {
        1: lambda image: image,
        2: lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
        3: lambda image: image.transpose(Image.Transpose.ROTATE_180),
        4: lambda image: image.transpose(Image.Transpose.FLIP_TOP_BOTTOM),
        5: lambda image: image.transpose(Image.Transpose.TRANSPOSE),
        6: lambda image: image.transpose(Image.Transpose.ROTATE_90),
        7: lambda image: image.transpose(Image.Transpose.TRANSVERSE),
        8: lambda image: image.transpose(Image.Transpose.ROTATE_270),
    }[orientation](upright)
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 95} if name in ("JPEG", "WEBP") else {}
    result = decoded(encoded(stored, name, exif=exif, **options))
    assert result.rgb.size == (64, 48)
    difference = np.abs(np.asarray(result.rgb).astype(int) - np.asarray(upright))
    assert np.median(difference) <= 2, "a wrong turn moves whole quarters; JPEG moves a value by 2"


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_orientation_outside_the_standard_is_upright(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert (pixels(encoded(scene(), "PNG", exif=exif)) == np.asarray(scene())).all()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_broken_exif_block_does_not_lose_the_picture() -> None:
    data = encoded(scene(), "JPEG", quality=95, exif=b"Exif\0\0II*\0\xff\xff\xff\xff rubbish")
    assert decoded(data).facts.orientation == 1


def test_the_format_is_found_in_the_bytes() -> None:
    for name in FORMATS:
        assert decoded(encoded(scene(), name)).facts.format == name


@pytest.mark.parametrize(
    "data",
    [
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 100 100\n",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"P6 1 1 255 \0\0\0",
        b"just text",
        b"\0" * 64,
    ],
)
def test_formats_outside_the_list_are_never_opened(data: bytes) -> None:
    with pytest.raises(ImageRefused, match=r"it is .*, not one of JPEG, PNG") as refused:
        decoded(data)
    assert refused.value.code == "image_unsupported"


def test_no_bytes() -> None:
    with pytest.raises(ImageRefused, match="the file is empty") as refused:
        decoded(b"")
    assert refused.value.code == "image_undecodable"


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9])
def test_a_truncated_file_is_an_error(name: str, share: float) -> None:
    data = encoded(noise(128, 96), name)
    with pytest.raises(ImageRefused) as refused:
        decoded(data[: max(12, int(len(data) * share))])
    assert refused.value.code == "image_undecodable"
    assert refused.value.reason.startswith(f"damaged {name}: ")
    assert " object at 0x" not in refused.value.reason, "Pillow named an object of its own to the caller"


@pytest.mark.parametrize("progressive", [False, True])
def test_half_a_jpeg_is_an_error(progressive: bool) -> None:
    data = encoded(noise(256, 256), "JPEG", progressive=progressive)
    with pytest.raises(ImageRefused, match="damaged JPEG"):
        decoded(data[: len(data) // 2])


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", FORMATS)
def test_random_damage_never_escapes_as_another_error(name: str) -> None:
    dice = np.random.default_rng(3)
    data = np.frombuffer(encoded(noise(40, 30), name), dtype=np.uint8)
    refusals = 0
    for _ in range(150):
        broken = data.copy()
        where = dice.integers(0, min(len(broken), 200), 4)
        broken[where] = dice.integers(0, 256, 4)
        try:
            decoded(broken.tobytes())
        except ImageRefused:
            refusals += 1
    assert refusals > 10, "damage in the first 200 bytes must often be noticed"


def test_too_many_bytes() -> None:
    with pytest.raises(ImageRefused, match=r"\d+ bytes; at most 1000 are accepted") as refused:
        decoded(encoded(noise(64, 64), "PNG"), TestLimits(max_image_bytes=1000))
    assert refused.value.code == "image_too_large"


def test_too_many_frames() -> None:
    frames = [Image.new("RGB", (8, 8), (10 * step, 0, 0)) for step in range(1, 24)]
    for name in ("PNG", "WEBP"):
        with pytest.raises(ImageRefused, match="24 frames; at most 20"):
            decoded(encoded(Image.new("RGB", (8, 8)), name, save_all=True, append_images=frames))


def png_header(width: int, height: int) -> bytes:
    """A PNG that claims a size and holds next to nothing."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


def test_pixels_are_counted_on_the_header() -> None:
    with pytest.raises(ImageRefused, match="9000x9000 = 81000000 pixels; at most 4000000 are accepted") as refused:
        decoded(png_header(9000, 9000))
    assert refused.value.code == "image_too_large"


def test_a_jpeg_of_thousands_of_scans_is_refused() -> None:
    """Each scan costs a pass over all pixels: a small file could take minutes."""
    data = encoded(noise(512, 512), "JPEG", progressive=True)
    assert data.count(b"\xff\xda") > 5
    assert decoded(data).rgb.size == (512, 512)
    last = data.rindex(b"\xff\xda")
    many = data[:last] + data[last:-2] * 400 + data[-2:]
    with pytest.raises(ImageRefused, match=r"4\d\d scans of 512x512 pixels"):
        decoded(many)


def tiled_tiff(tile_side: int) -> bytes:
    """A TIFF of 16 x 16 grey pixels in one deflated tile of another size."""
    tile = zlib.compress(b"\0" * 256)
    tags = {256: 16, 257: 16, 258: 8, 259: 8, 262: 1, 277: 1, 322: tile_side, 323: tile_side, 324: 8, 325: len(tile)}
    entries = b"".join(struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags.items())
    start = 8 + len(tile)
    return b"II*\0" + struct.pack("<I", start) + tile + struct.pack("<H", len(tags)) + entries + b"\0\0\0\0"


def test_a_large_tiff_tile_is_refused_in_a_small_picture() -> None:
    assert decoded(tiled_tiff(16)).rgb.size == (16, 16)
    with pytest.raises(ImageRefused, match="tiles of 30000x30000 pixels"):
        decoded(tiled_tiff(30_000))


BOMB = """
import io, resource, sys
from PIL import Image
from photocall.settings import PrepSettings
from photocall_prep.decode import open_picture
from photocall_prep.refusal import ImageRefused
out = io.BytesIO(sys.stdin.buffer.read())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    open_picture(out.getvalue(), PrepSettings()).load()
except ImageRefused as refused:
    print(refused.code, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.parametrize("name", ["PNG", "WEBP", "GIF", "TIFF"])
def test_a_bomb_costs_no_memory(name: str) -> None:
    """9000 x 9000 pixels in a small file pass Pillow's own check and cost 362 MB there."""
    options = {"compression": "tiff_adobe_deflate"} if name == "TIFF" else {}
    bomb = encoded(Image.new("L", (9000, 9000)), name, **options)
    assert len(bomb) < 500_000
    command = [sys.executable, "-c", BOMB]
    done = subprocess.run(command, input=bomb, capture_output=True, env=dict(os.environ), check=True, timeout=60)
    code, grown_mib = done.stdout.split()
    assert code == b"image_too_large"
    assert int(grown_mib) < 40, "one decoded plane alone would be 81 MB"
