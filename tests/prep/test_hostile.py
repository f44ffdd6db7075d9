"""Files of the newer formats that lie, are cut short, or are damaged: refused, at no cost, and never another error.

`test_decode.py` has the same for the older ones.
"""

from __future__ import annotations

import struct
import tracemalloc

import numpy as np
import pytest
from PIL import Image

from photocall.views import PLAIN, View
from photocall_prep.decode import open_picture
from photocall_prep.refusal import ImageRefused
from tests.prep.files import pdf
from tests.prep.pictures import TestLimits, decoded, encoded, noise, scene

DRAWN = "1 0 0 rg 0 0 48 48 re f " * 40
FILES = {
    "HEIF": encoded(noise(96, 64), "HEIF", quality=80),
    "AVIF": encoded(noise(96, 64), "AVIF", quality=80),
    "ICO": encoded(noise(64, 64), "ICO", sizes=[(64, 64)], bitmap_format="bmp"),
    "PDF": pdf(DRAWN, DRAWN),
    "MPO": encoded(noise(64, 64), "MPO", save_all=True, append_images=[noise(64, 64)]),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", FILES)
def test_random_damage_never_escapes_as_another_error(name: str) -> None:
    dice = np.random.default_rng(5)
    whole = np.frombuffer(FILES[name], dtype=np.uint8)
    reasons = []
    for turn in range(120):
        broken = whole.copy()
        where = dice.integers(0, min(len(broken), 600), 4)
        broken[where] = dice.integers(0, 256, 4)
        view = View(frame=1) if name in ("PDF", "MPO") and turn % 2 else PLAIN
        try:
            decoded(broken.tobytes(), view=view)
        except ImageRefused as refused:
            reasons.append(refused.reason)
    assert len(reasons) > 3, "damage in the first bytes must be noticed at times"
    assert not [reason for reason in reasons if " object at 0x" in reason]


@pytest.mark.parametrize("name", ["HEIF", "AVIF", "ICO"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9])
def test_a_truncated_file_is_an_error(name: str, share: float) -> None:
    data = FILES[name][: max(14, int(len(FILES[name]) * share))]
    with pytest.raises(ImageRefused) as refused:
        decoded(data)
    assert refused.value.code == "image_undecodable"


@pytest.mark.parametrize("data", [b"%PDF-1.7\n", b"%PDF-1.7\n" + b"1 0 obj" * 50, FILES["PDF"][:120]])
def test_a_pdf_without_a_page_is_an_error(data: bytes) -> None:
    with pytest.raises(ImageRefused) as refused:
        decoded(data)
    assert refused.value.code in ("image_undecodable", "image_view_unsupported")


@pytest.mark.parametrize("name", ["HEIF", "AVIF"])
def test_a_container_that_states_many_pixels_costs_none(name: str) -> None:
    """`ispe` says 30000 x 30000 of a picture of 96 x 64."""
    data = bytearray(FILES[name])
    at = data.index(b"ispe") + 8
    data[at : at + 8] = struct.pack(">II", 30_000, 30_000)
    tracemalloc.start()
    try:
        with pytest.raises(ImageRefused) as refused:
            decoded(bytes(data))
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert refused.value.code in ("image_too_large", "image_undecodable")


def icon(*entries: bytes) -> bytes:
    """An icon of whole pictures, each said to be 16 x 16."""
    start = 6 + 16 * len(entries)
    directory, body = struct.pack("<HHH", 0, 1, len(entries)), b""
    for entry in entries:
        directory += struct.pack("<BBBBHHII", 16, 16, 0, 0, 1, 32, len(entry), start + len(body))
        body += entry
    return directory + body


def test_a_png_in_an_icon_is_held_to_the_limits_of_its_own_header() -> None:
    bomb = encoded(Image.new("L", (3000, 2000)), "PNG")
    assert len(bomb) < 20_000
    with pytest.raises(ImageRefused, match="3000x2000 = 6000000 pixels; at most 4000000"):
        decoded(icon(bomb))
    honest = encoded(scene(), "PNG")
    assert decoded(icon(honest, bomb), view=View(frame=0)).rgb.size == (64, 48), "the other one is not touched"


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\1\0\0\0",
        b"\0\0\1\0\1\0",
        icon(b"x" * 5),
        icon(b"\x89PNG\r\n\x1a\n" + b"rest of it"),
        icon(b"x" * 200),
        icon(encoded(scene(), "PNG"))[:-400],
        b"\0\0\1\0\xff\xff" + bytes(70_000),
    ],
)
def test_icons_that_are_none(data: bytes) -> None:
    with pytest.raises(ImageRefused):
        decoded(data)


def five(name: str) -> bytes:
    frames = [Image.new("RGB", (16, 16), (n, 0, 0)) for n in range(5)]
    return encoded(frames[0], name, save_all=True, append_images=frames[1:])


def test_pages_and_frames_are_counted_by_the_limits() -> None:
    limits = TestLimits(max_frames=3)
    for name in ("AVIF", "HEIF", "MPO"):
        with pytest.raises(ImageRefused, match="5 frames; at most 3 are accepted"):
            open_picture(five(name), limits)
    with pytest.raises(ImageRefused, match="4 frames; at most 3"):
        decoded(icon(*[encoded(scene(16, 16), "PNG")] * 4), limits)
    for name in ("TIFF", "GIF"):
        data = five(name)
        assert decoded(data, limits).facts.frame == 0, "the first is read without a look at the others"
        with pytest.raises(ImageRefused, match="frame 3; at most 3 frames are accepted"):
            decoded(data, limits, view=View(frame=3))


def test_a_later_page_is_held_to_the_limits_too() -> None:
    """The first one is small; it was the only one that was looked at."""
    data = encoded(scene(16, 16), "TIFF", save_all=True, append_images=[Image.new("L", (3000, 2000))])
    assert decoded(data).rgb.size == (16, 16)
    with pytest.raises(ImageRefused, match="3000x2000 = 6000000 pixels"):
        decoded(data, view=View(frame=1))


def test_a_locked_pdf_says_so() -> None:
    """Standard security handler, revision 3, with a user password that nobody has told us."""
    locked = pdf(DRAWN).decode("ascii")
    encryption = f"/Encrypt << /Filter /Standard /V 2 /R 3 /Length 128 /P -44 /O <{'ab' * 32}> /U <{'cd' * 32}> >> "
    locked = locked.replace("/Root 1 0 R", f"/Root 1 0 R {encryption}/ID [<{'01' * 16}> <{'01' * 16}>]")
    with pytest.raises(ImageRefused, match="it needs a password"):
        decoded(locked.encode("ascii"))
