"""Every kind of file, large enough to be reduced on its way: `fast` shows the colours of `exact` at the same places.

`test_fidelity.py` compares photographs with the reference; here it is what files say that must not get lost in a
shortcut: colour spaces, profiles, gamma, transparency, turns, frames.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from photocall.views import PLAIN, View
from photocall_prep import streaming
from photocall_prep.matrix_profile import coded_profile
from photocall_prep.prepare import ImagePrep
from tests.prep.files import cmyk_profile, grey_profile, pdf, png
from tests.prep.pictures import TestLimits, encoded, scene

SIZE = (880, 660)
LARGE = (1760, 1360)  # of a JPEG, so that it is decoded at half of it
OFF = 4  # levels in the middle of a flat quarter: two decoders round differently, and profiles go through tables
P3 = coded_profile(12, 13) or b""
INKS = cmyk_profile({(1, 0, 0, 0): (55, -37, -50), (0, 1, 0, 0): (48, 74, -3), (0, 0, 0, 1): (12, 0, 0)})
ADOBE = b"Adobe\x00\x64\x00\x00\x00\x00"


def cmyk(size: tuple[int, int] = LARGE) -> Image.Image:
    return Image.merge("CMYK", [*scene(*size).point(lambda v: 255 - v).split(), Image.new("L", size, 20)])


def without_adobes_mark() -> bytes:
    data = encoded(cmyk(), "JPEG", quality=92)
    at = data.index(ADOBE) - 4
    return data[:at] + data[at + 2 + int.from_bytes(data[at + 2 : at + 4], "big") :]


def ycck() -> bytes:
    planes = [*scene(*LARGE).convert("YCbCr").split(), Image.new("L", LARGE, 0)]
    data = encoded(Image.merge("CMYK", planes), "JPEG", quality=92)
    at = data.index(ADOBE) + len(ADOBE)
    return data[:at] + b"\x02" + data[at + 1 :]


def clear(mode: str = "RGBA") -> Image.Image:
    image = scene(*SIZE).convert(mode)
    image.putalpha(Image.linear_gradient("L").resize(SIZE))
    return image


def turned(name: str, orientation: int) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encoded(
        scene(*(LARGE if name == "JPEG" else SIZE)),
        name,
        exif=exif.tobytes(),
        **({"quality": 92} if name == "JPEG" else {}),
    )


def wide_png(*chunks: tuple[bytes, bytes]) -> bytes:
    return png(np.asarray(scene(*SIZE)).astype(int), 8, 2, chunks)


def sixteen() -> bytes:
    return encoded(Image.fromarray(np.asarray(scene(*SIZE).convert("L")).astype(np.uint16) * 257), "PNG")


FILES: dict[str, Callable[[], bytes]] = {
    "jpeg": lambda: encoded(scene(*LARGE), "JPEG", quality=92),
    "jpeg-progressive": lambda: encoded(scene(*LARGE), "JPEG", quality=92, progressive=True),
    "jpeg-rgb": lambda: encoded(scene(*LARGE), "JPEG", quality=92, keep_rgb=True),
    "jpeg-grey": lambda: encoded(scene(*LARGE).convert("L"), "JPEG", quality=92),
    "jpeg-cmyk": lambda: encoded(cmyk(), "JPEG", quality=92),
    "jpeg-cmyk-unmarked": without_adobes_mark,
    "jpeg-ycck": ycck,
    "jpeg-cmyk-profile": lambda: encoded(cmyk(), "JPEG", quality=92, icc_profile=INKS),
    "jpeg-wide-gamut": lambda: encoded(scene(*LARGE), "JPEG", quality=92, icc_profile=P3),
    "jpeg-grey-profile": lambda: encoded(scene(*LARGE).convert("L"), "JPEG", quality=92, icc_profile=grey_profile(1.0)),
    "jpeg-bad-profile": lambda: encoded(scene(*LARGE), "JPEG", quality=92, icc_profile=b"no profile at all"),
    "mpo": lambda: encoded(scene(*LARGE), "MPO", quality=92, save_all=True, append_images=[scene(640, 480)]),
    **{f"jpeg-turned-{n}": (lambda n=n: turned("JPEG", n)) for n in range(2, 9)},  # type: ignore[misc]
    "png-turned": lambda: turned("PNG", 6),
    "tiff-turned": lambda: turned("TIFF", 8),
    "webp-turned": lambda: turned("WEBP", 5),
    "heif-turned": lambda: turned("HEIF", 7),
    "avif-turned": lambda: turned("AVIF", 3),
    "png-alpha": lambda: encoded(clear(), "PNG"),
    "png-grey-alpha": lambda: encoded(clear("LA"), "PNG"),
    "png-palette": lambda: encoded(scene(*SIZE).quantize(16), "PNG"),
    "png-16": sixteen,
    "png-linear": lambda: wide_png((b"gAMA", (100_000).to_bytes(4, "big"))),
    "png-code-points": lambda: wide_png((b"cICP", bytes((9, 13, 0, 1)))),
    "png-profile": lambda: encoded(scene(*SIZE), "PNG", icc_profile=P3),
    "webp-alpha": lambda: encoded(clear(), "WEBP", quality=92),
    "webp-profile": lambda: encoded(scene(*SIZE), "WEBP", quality=92, icc_profile=P3),
    "tiff-cmyk": lambda: encoded(cmyk(SIZE), "TIFF", compression="tiff_lzw"),
    "tiff-profile": lambda: encoded(scene(*SIZE), "TIFF", icc_profile=P3),
    "gif": lambda: encoded(scene(*SIZE), "GIF"),
    "bmp": lambda: encoded(scene(*SIZE), "BMP"),
    "heif": lambda: encoded(scene(*SIZE), "HEIF", quality=92),
    "avif": lambda: encoded(scene(*SIZE), "AVIF", quality=92),
    "pdf": lambda: pdf("1 0 0 rg 0 0 300 400 re f", size=(600, 400)),
}


def both(data: bytes, view: View = PLAIN) -> None:
    fast, exact = (ImagePrep(TestLimits(), fidelity).prepare(data, 70, view) for fidelity in ("fast", "exact"))
    assert fast.grid == exact.grid
    assert fast.facts == exact.facts
    assert fast.colour == exact.colour
    if fast.facts.format in ("JPEG", "MPO") and streaming.reducing("JPEG", fast.facts.size):
        assert fast.decoded_size != exact.decoded_size, "nothing is shown by comparing exact with itself"
    height, width = fast.grid.height // 4, fast.grid.width // 4
    for row in (height, 3 * height):
        for column in (width, 3 * width):
            place = (row * fast.grid.width + column) * 768
            seen = [np.frombuffer(p.patches, np.uint8)[place : place + 768].astype(int) for p in (fast, exact)]
            assert np.abs(seen[0] - seen[1]).max() <= OFF, (row, column, seen[0][:3], seen[1][:3])


@pytest.mark.parametrize("name", FILES)
def test_fast_shows_what_exact_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoded whole, and as a picture that is too large for that."""
    data = FILES[name]()
    both(data)
    for kind in streaming.WHOLE:
        monkeypatch.setitem(streaming.WHOLE, kind, 0)
    both(data)


def test_on_another_background_and_in_a_later_frame() -> None:
    both(encoded(clear(), "PNG"), View(background="103080"))
    for name in ("GIF", "TIFF", "MPO", "WEBP", "PNG"):
        pages = [scene(*SIZE), Image.new("RGB", SIZE, (90, 20, 160))]
        data = encoded(scene(*SIZE).transpose(Image.Transpose.ROTATE_180), name, save_all=True, append_images=pages)
        both(data, View(frame=1))
        both(data, View(frame=2))
