"""What files say about their colours: profiles, gamma, primaries, code points; and what sRGB pixels they must give.

The expected values are computed here from the definitions (CSS Color 4's matrices for Display P3 and Rec. 2020, IEC
61966-2-1's curve), not by the code that is tested.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms

from photocall_prep.matrix_profile import SRGB, coded_profile, gamma_profile, matrix_profile
from photocall_prep.profiles import ProfileIgnored, profile
from tests.prep.files import cmyk_profile, grey_profile, png
from tests.prep.pictures import decoded, encoded, pixels

Values = NDArray[np.float64]
P3_TO_SRGB = np.array([[1.2249, -0.2247, 0.0], [-0.0420, 1.0419, 0.0], [-0.0197, -0.0786, 1.0979]])
REC2020_TO_SRGB = np.array([[1.6605, -0.5876, -0.0728], [-0.1246, 1.1329, -0.0083], [-0.0182, -0.1006, 1.1187]])
COLOURS = [(200, 30, 30), (30, 180, 40), (30, 40, 200), (128, 128, 128), (250, 200, 100), (255, 255, 255), (0, 0, 0)]


def to_light(values: Values) -> Values:
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def to_srgb(light: Values) -> Values:
    light = np.clip(light, 0, 1)
    return 255 * np.where(light <= 0.0031308, light * 12.92, 1.055 * light ** (1 / 2.4) - 0.055)


def patches() -> Image.Image:
    return Image.fromarray(np.array([COLOURS], np.uint8))


def expected(curve: Callable[[Values], Values], matrix: Values) -> Values:
    return to_srgb(curve(np.array(COLOURS) / 255) @ matrix.T)


def near(data: bytes, wanted: Values, off: float = 2.0) -> None:
    assert np.abs(pixels(data)[0] - wanted).max() <= off


def png_with(*chunks: tuple[bytes, bytes]) -> bytes:
    return png(np.array([COLOURS]), 8, 2, chunks)


P3 = coded_profile(12, 13) or b""


@pytest.mark.parametrize(
    ("name", "options"),
    [("PNG", {}), ("TIFF", {}), ("WEBP", {"lossless": True}), ("JPEG", {"quality": 100, "subsampling": 0})],
)
def test_a_wide_gamut_profile_leads_to_srgb(name: str, options: dict[str, object]) -> None:
    image = patches().resize((8 * len(COLOURS), 8), Image.Resampling.NEAREST)
    data = encoded(image, name, icc_profile=P3, **options)
    found = pixels(data)[4, 4::8]
    assert np.abs(found - expected(to_light, P3_TO_SRGB)).max() <= (4 if name == "JPEG" else 2)
    assert decoded(data).colour == ("an unnamed profile to sRGB",)


def test_the_profile_of_srgb_itself_changes_nothing() -> None:
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    data = encoded(patches(), "PNG", icc_profile=srgb)
    assert pixels(data)[0].tolist() == [list(colour) for colour in COLOURS]
    assert decoded(data).colour == ()


@pytest.mark.parametrize("rubbish", [b"no profile", P3[:200], P3[:128] + b"\xff" * 200, b"\0" * 5_000_000])
def test_a_profile_that_cannot_be_used_is_ignored_and_said(rubbish: bytes) -> None:
    data = encoded(patches(), "TIFF", icc_profile=rubbish)
    found = decoded(data)
    assert np.asarray(found.rgb)[0].tolist() == [list(colour) for colour in COLOURS]
    assert len(found.colour) == 1
    assert found.colour[0].startswith("its profile ignored: it ")


def test_a_profile_for_other_pixels_is_ignored() -> None:
    found = decoded(encoded(patches(), "PNG", icc_profile=grey_profile(1.0)))
    assert np.asarray(found.rgb)[0].tolist() == [list(colour) for colour in COLOURS]
    assert found.colour == ("Grey ignored: it is for L",)


def test_grey_by_a_grey_and_by_a_colour_profile() -> None:
    grey = Image.fromarray(np.array([[0, 64, 128, 255]], np.uint8))
    linear = to_srgb(np.array([[0, 64, 128, 255]]) / 255)
    near(encoded(grey, "PNG", icc_profile=grey_profile(1.0)), linear[0][:, None])
    near(encoded(grey, "PNG", icc_profile=gamma_profile(SRGB, 1.0)), linear[0][:, None])
    assert pixels(encoded(grey, "PNG", icc_profile=P3))[0, :, 1].tolist() == [0, 64, 128, 255], "greys of P3 are sRGB's"


def test_alpha_is_laid_over_the_background_after_the_profile() -> None:
    image = patches().convert("RGBA")
    image.putalpha(128)
    wanted = expected(to_light, P3_TO_SRGB) * 128 / 255 + 255 * 127 / 255
    data = encoded(image, "PNG", icc_profile=P3)
    near(data, wanted)
    assert decoded(data).colour == ("an unnamed profile to sRGB", "alpha over white")


INKS = cmyk_profile({(1, 0, 0, 0): (55, -37, -50), (0, 1, 0, 0): (48, 74, -3), (0, 0, 0, 1): (12, 0, 0)})


@pytest.mark.parametrize(("name", "off"), [("TIFF", 0), ("JPEG", 5)])
def test_cmyk_goes_through_its_profile(name: str, off: int) -> None:
    """Lab of the inks as the profile has it, to sRGB by the definitions; black is compensated, so white stays white."""
    for ink, lab in (((255, 0, 0, 0), (55, -37, -50)), ((0, 255, 0, 0), (48, 74, -3)), ((0, 0, 0, 0), (100, 0, 0))):
        data = encoded(Image.new("CMYK", (16, 16), ink), name, icc_profile=INKS, **({"quality": 100} if off else {}))
        plain = pixels(encoded(Image.new("CMYK", (16, 16), ink), name))[8, 8]
        found = pixels(data)[8, 8]
        assert np.abs(found - srgb_of(lab)).max() <= 14 + off, (found, srgb_of(lab))
        assert decoded(data).colour == ("Four inks to sRGB",)
        if lab != (100, 0, 0):
            assert np.abs(found - plain).max() > 30, "not the formula"


def srgb_of(lab: tuple[float, float, float]) -> Values:
    """Lab under D50 as sRGB, clipped (CSS Color 4)."""
    fy = (lab[0] + 16) / 116
    f = np.array([fy + lab[1] / 500, fy, fy - lab[2] / 200])
    xyz = np.where(f > 6 / 29, f**3, 3 * (6 / 29) ** 2 * (f - 4 / 29)) * (0.9642, 1.0, 0.8249)
    from_d50 = np.array([[3.1341, -1.6174, -0.4907], [-0.9788, 1.9161, 0.0335], [0.0719, -0.2290, 1.4052]])
    return to_srgb(from_d50 @ xyz)


def gama(value: float) -> tuple[bytes, bytes]:
    return b"gAMA", struct.pack(">I", round(value * 100_000))


def chrm(*values: float) -> tuple[bytes, bytes]:
    return b"cHRM", struct.pack(">8I", *(round(value * 100_000) for value in values))


REC2020 = (0.3127, 0.3290, 0.708, 0.292, 0.170, 0.797, 0.131, 0.046)


def test_a_png_of_linear_light() -> None:
    data = png_with(gama(1.0))
    near(data, expected(lambda v: v, np.eye(3)))
    assert decoded(data).colour == ("gAMA 1 to sRGB",)


def test_a_png_with_another_gamma_and_other_primaries() -> None:
    near(png_with(gama(1 / 1.8)), expected(lambda v: v**1.8, np.eye(3)))
    near(png_with(gama(1 / 1.8), chrm(*REC2020)), expected(lambda v: v**1.8, REC2020_TO_SRGB))
    near(png_with(chrm(*REC2020)), expected(to_light, REC2020_TO_SRGB))


@pytest.mark.parametrize(
    "chunks",
    [
        (gama(0.45455),),
        (gama(0.45455), chrm(*SRGB)),
        (chrm(*SRGB),),
        (b"sRGB", b"\0"),
        (gama(0.0),),
        (gama(40.0),),
        (chrm(0.3127, 0.3290, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5),),
        (chrm(0, 0, 0, 0, 0, 0, 0, 0),),
    ],
)
def test_what_means_srgb_or_nothing_changes_nothing(chunks: tuple[tuple[bytes, bytes], ...]) -> None:
    data = png_with(*((chunks,) if isinstance(chunks[0], bytes) else chunks))
    assert pixels(data)[0].tolist() == [list(colour) for colour in COLOURS]
    assert decoded(data).colour == ()


def test_of_several_statements_the_strongest_counts() -> None:
    """PNG, third edition: cICP, then iCCP, then sRGB, then gAMA and cHRM."""
    import zlib

    iccp = (b"iCCP", b"p3\0\0" + zlib.compress(P3))
    near(png_with((b"sRGB", b"\0"), gama(1.0)), np.array(COLOURS), 0)
    near(png_with(gama(1.0), iccp), expected(to_light, P3_TO_SRGB))
    near(png_with((b"cICP", bytes((9, 13, 0, 1))), iccp, gama(1.0)), expected(to_light, REC2020_TO_SRGB))


def test_code_points_of_a_png() -> None:
    near(png_with((b"cICP", bytes((12, 13, 0, 1)))), expected(to_light, P3_TO_SRGB))
    near(png_with((b"cICP", bytes((1, 8, 0, 1)))), expected(lambda v: v, np.eye(3)))
    assert decoded(png_with((b"cICP", bytes((1, 13, 0, 1))))).colour == ()
    assert decoded(png_with((b"cICP", bytes((1, 1, 0, 1))))).colour == (), "television's curve is taken as sRGB's"
    assert decoded(png_with((b"cICP", bytes((9, 16, 0, 1))))).colour == ("cICP 9/16 to sRGB",)


def test_light_brighter_than_white_is_pressed_below_it() -> None:
    """PQ: 58 % is 203 candela, white. HLG: 75 % is. Both stay monotonous up to the top, and grey stays grey."""
    for transfer, white in ((16, 0.5806), (18, 0.7500)):
        codes = np.arange(256).reshape(1, 256, 1).repeat(3, axis=2)
        found = pixels(png(codes, 8, 2, [(b"cICP", bytes((1, transfer, 0, 1)))]))[0]
        assert (np.diff(found[:, 1]) >= 0).all()
        assert np.abs(found - found[:, 1:2]).max() <= 1
        assert found[0, 1] == 0
        assert found[-1, 1] >= 254
        at_white = found[round(255 * white), 1]
        assert 236 <= at_white <= 250, at_white  # 0.8 + 0.2 * (1 - 1/e) = 0.926 of the light


def test_code_points_of_heif_and_avif() -> None:
    image = patches().resize((16 * len(COLOURS), 16), Image.Resampling.NEAREST)
    heif = encoded(image, "HEIF", quality=95, chroma=444, color_primaries=12, transfer_characteristics=13)
    found = pixels(heif)[8, 8::16]
    assert decoded(heif).colour == ("nclx 12/13 to sRGB",)
    assert np.abs(found - expected(to_light, P3_TO_SRGB)).max() <= 8
    avif = bytearray(encoded(image, "AVIF", quality=95, subsampling="4:4:4"))
    at = avif.index(b"colrnclx") + 8
    avif[at : at + 4] = struct.pack(">HH", 12, 13)
    found = pixels(bytes(avif))[8, 8::16]
    assert decoded(bytes(avif)).colour == ("nclx 12/13 to sRGB",)
    assert np.abs(found - expected(to_light, P3_TO_SRGB)).max() <= 8


def test_an_exif_block_behind_the_pixels_turns_a_png() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    block = exif.tobytes().removeprefix(b"Exif\0\0")
    data = png(np.array([COLOURS]), 8, 2, behind=[(b"eXIf", block)])
    assert decoded(data).rgb.size == (1, len(COLOURS))


def test_profiles_are_checked_before_they_are_used() -> None:
    with pytest.raises(ProfileIgnored, match="5000000 bytes"):
        profile(b"\0" * 5_000_000)
    with pytest.raises(ValueError, match="no colours"):
        matrix_profile((0.3, 0.0, 0.6, 0.3, 0.3, 0.6, 0.1, 0.1), b"")
    assert profile(P3).mode == "RGB"
    assert not profile(P3).is_srgb
    assert profile(gamma_profile(SRGB, 2.2)).is_srgb is False, "a power law is not sRGB's curve in the shadows"
