"""The fast way to a size: the same verdict as Pillow's, and the same bytes with any number of threads."""

from __future__ import annotations

import io
import random
import zlib

import numpy as np
import pytest
from PIL import Image

from ops.photographs import Shot, photograph
from photocall_prep import smaller, streaming
from photocall_prep.prepare import ImagePrep
from photocall_prep.refusal import ImageRefused
from photocall_prep.streaming import spread, streamed
from photocall_prep.turning import upright, upright_pixels
from tests.prep.pictures import TestLimits, encoded

LIMITS = TestLimits(max_pixels=16_000_000)
SMALL = photograph("chelsea.png").resize((300, 200))
FILES = {
    "JPEG": encoded(SMALL, "JPEG", quality=85),
    "progressive": encoded(SMALL, "JPEG", progressive=True),
    "grey": encoded(SMALL.convert("L"), "JPEG"),
    "restarts": encoded(SMALL, "JPEG", restart_marker_blocks=4),
    "PNG": encoded(SMALL, "PNG"),
    "stored": encoded(SMALL, "PNG", compress_level=0),
}


def test_both_libraries_are_there() -> None:
    """The other tests of the fast way would compare Pillow with itself."""
    assert smaller.available()
    for data, kind in ((FILES["JPEG"], "JPEG"), (FILES["PNG"], "PNG")):
        assert streamed(data, kind, "RGB", (300, 200), (96, 48)) is not None


def damaged(data: bytes, rng: random.Random) -> bytes:
    broken = bytearray(data)
    way = rng.randrange(4)
    if way == 0:
        return data[: rng.randrange(20, len(data))]
    if way == 1:
        at = rng.randrange(len(data))
        del broken[at : at + rng.randrange(1, 50)]
    elif way == 2:
        broken[rng.randrange(min(len(data), 700))] = rng.randrange(256)
    else:
        for _ in range(3):
            broken[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(broken)


def outcome(prep: ImagePrep, data: bytes) -> tuple[str, bytes]:
    try:
        return "prepared", prep.prepare(data, 70).patches
    except ImageRefused as refused:
        return refused.code, b""


@pytest.mark.parametrize("name", FILES)
@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_a_damaged_file_has_the_same_end_either_way(name: str) -> None:
    """libvips and libjpeg-turbo would show half of a picture where Pillow refuses it."""
    rng = random.Random(name)
    fast, exact = (
        ImagePrep(TestLimits(max_pixels=1_000_000), "fast"),
        ImagePrep(TestLimits(max_pixels=1_000_000), "exact"),
    )
    ends = set()
    for _ in range(60):
        data = damaged(FILES[name], rng)
        (one, pixels), (other, exact_pixels) = outcome(fast, data), outcome(exact, data)
        assert one == other
        if pixels:
            apart = np.frombuffer(pixels, np.uint8).astype(int) - np.frombuffer(exact_pixels, np.uint8)
            assert np.abs(apart).mean() < 3  # the damage may be sharper than a photograph
        ends.add(one)
    assert "image_undecodable" in ends


@pytest.mark.parametrize(
    "shot", [Shot("china.jpg", (4000, 3000)), Shot("coffee.png", (1920, 1080), format="PNG")], ids=str
)
def test_threads_change_no_byte(shot: Shot) -> None:
    prep = ImagePrep(LIMITS)
    alone = prep.prepare(shot.data(), 280)
    with spread(4):
        assert prep.prepare(shot.data(), 280).patches == alone.patches


def test_a_side_that_the_transform_would_round_is_decoded_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounded up it would shift every pixel, by a part of one."""
    monkeypatch.setitem(streaming.WHOLE, "JPEG", 1_000_000)
    even, odd = (ImagePrep(LIMITS).prepare(Shot("china.jpg", size).data(), 70) for size in ((2000, 1500), (2001, 1501)))
    assert even.decoded_size == (1000, 750)
    assert odd.decoded_size == (2001, 1501)


@pytest.mark.parametrize("missing", ["pyvips", "simplejpeg", "cykooz_resizer"])
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_without_a_library_pillow_does_it(monkeypatch: pytest.MonkeyPatch, missing: str, form: str) -> None:
    data = Shot("rocket.jpg", (1300, 900), format=form).data()
    fast, exact = (ImagePrep(LIMITS, fidelity).prepare(data, 140) for fidelity in ("fast", "exact"))
    monkeypatch.setattr(smaller if missing == "cykooz_resizer" else streaming, missing, None)
    without = ImagePrep(LIMITS, "fast").prepare(data, 140)
    assert without.grid == fast.grid
    for pixels in (fast.patches, without.patches):
        apart = np.abs(np.frombuffer(pixels, np.uint8).astype(int) - np.frombuffer(exact.patches, np.uint8))
        assert apart.mean() <= 0.01
        assert apart.max() <= 2


def test_colours_are_converted_after_the_resize_too() -> None:
    """A PNG that states a gamma far from sRGB's."""
    out = io.BytesIO()
    photograph("coffee.png").resize((900, 600)).save(out, "PNG")
    gamma = b"gAMA" + (100_000).to_bytes(4, "big")
    chunk = (4).to_bytes(4, "big") + gamma + zlib.crc32(gamma).to_bytes(4, "big")
    data = out.getvalue()[:33] + chunk + out.getvalue()[33:]
    fast, exact = (ImagePrep(LIMITS, fidelity).prepare(data, 140) for fidelity in ("fast", "exact"))
    assert fast.colour == exact.colour != ()
    apart = np.abs(np.frombuffer(fast.patches, np.uint8).astype(int) - np.frombuffer(exact.patches, np.uint8))
    assert apart.mean() <= 1.0  # linear light: its dark levels are far apart


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("size", [(96, 48), (96, 144), (280, 140), (300, 48), (96, 200), (299, 199), (1, 1)])
def test_smaller_is_what_pillow_makes_of_the_upright_picture(size: tuple[int, int], mode: str, turned: bool) -> None:
    """Print, whose edges overshoot: in the other order of the passes ten levels lie between them."""
    rng = np.random.default_rng(3)
    letters = Image.fromarray((rng.random((200, 300)) > 0.5).astype(np.uint8) * 255).convert(mode)
    small = smaller.smaller(letters, size, turned)
    assert small is not None
    if turned:
        expected = letters.transpose(Image.Transpose.TRANSPOSE).resize(size[::-1], Image.Resampling.BICUBIC)
        expected = expected.transpose(Image.Transpose.TRANSPOSE)
    else:
        expected = letters.resize(size, Image.Resampling.BICUBIC)
    assert np.abs(np.asarray(small).astype(int) - np.asarray(expected)).max() <= 2


def test_what_is_pillows_business() -> None:
    for image, size in ((SMALL, (301, 100)), (SMALL, (100, 201)), (SMALL.convert("RGBA"), (30, 20))):
        assert smaller.smaller(image, size) is None
    assert smaller.smaller(SMALL, SMALL.size) is SMALL


def test_arrays_turn_as_pictures_do() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 3), dtype=np.uint8)
    for orientation in range(1, 9):
        expected = np.asarray(upright(Image.fromarray(pixels), orientation))
        assert np.array_equal(upright_pixels(pixels, orientation), expected)
