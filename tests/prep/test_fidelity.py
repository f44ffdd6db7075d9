"""How far prepared pictures are from those of the reference processor, on photographs.

The reference gets what Pillow makes of the whole file, upright. `exact` may round one level apart; `fast` is held to a
mean of 0.01 and a maximum of two levels of 255 a picture where all its pixels are decoded, else to 0.5 and 28. Grids
are always the same.
"""

from __future__ import annotations

import io

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps
from transformers import Gemma4ImageProcessorPil

from ops.photographs import NAMES, Shot
from photocall.grid import Grid
from photocall_prep import streaming
from photocall_prep.matrix_profile import SRGB, coded_profile, gamma_profile
from photocall_prep.prepare import ImagePrep
from tests.prep.pictures import TestLimits, encoded

LIMITS = TestLimits(max_pixels=16_000_000)
FAST_MEAN, FAST_MAX = 0.01, 2
REDUCED_MEAN, REDUCED_MAX = 0.5, 28  # of what is decoded with fewer pixels: large, or of costly colours

SIZES = ((640, 427), (1280, 720), (1080, 1920), (1500, 1500), (2400, 1000), (500, 1700), (97, 61))
SHOTS = [
    *(Shot(name, SIZES[i % len(SIZES)]) for i, name in enumerate(NAMES)),
    *(Shot(name, (2000, 1500), quality=70 + 2 * i) for i, name in enumerate(NAMES[::2])),
    *(Shot("coffee.png", (1500, 1100), orientation=n) for n in (3, 5, 6, 8)),
    *(Shot("china.jpg", (400, 300), orientation=n) for n in (6, 7, 8)),  # two of them are enlarged
    Shot("china.jpg", (4000, 3000)),
    Shot("retina.jpg", (1800, 2400), progressive=True, subsampling=0),
    Shot("flower.jpg", (1920, 1080), subsampling=1, quality=95),
    Shot("rocket.jpg", (1921, 1083), quality=40),
    Shot("astronaut.png", (1920, 1080), format="PNG"),
    Shot("motorcycle_left.png", (1920, 1080), format="WEBP"),
    Shot("chelsea.png", (1280, 960), format="AVIF", quality=70),
]


def reference(data: bytes, budget: int) -> tuple[Grid, NDArray[np.float64]]:
    """What transformers makes of a file: its grid, and patches in levels of 255."""
    with Image.open(io.BytesIO(data)) as image:
        whole = ImageOps.exif_transpose(image).convert("RGB")
    made = Gemma4ImageProcessorPil(max_soft_tokens=budget)(whole, return_tensors="np")
    num_patches = 9 * int(made["num_soft_tokens_per_image"][0])
    columns, rows = made["image_position_ids"][0][:num_patches].max(axis=0) + 1
    return Grid(int(rows), int(columns)), made["pixel_values"][0][:num_patches].astype(np.float64) * 255


@pytest.mark.parametrize(("shot", "budget"), [(shot, (70, 280, 140)[i % 3]) for i, shot in enumerate(SHOTS)], ids=str)
def test_grids_are_the_references_and_pixels_as_near_as_promised(shot: Shot, budget: int) -> None:
    data = shot.data()
    grid, expected = reference(data, budget)
    for fidelity, mean, most in (("exact", 1.0, 1.0), ("fast", FAST_MEAN, FAST_MAX)):
        ours = ImagePrep(LIMITS, "exact" if fidelity == "exact" else "fast").prepare(data, budget)
        assert ours.grid == grid
        apart = np.abs(np.frombuffer(ours.patches, np.uint8).reshape(expected.shape) - expected)
        if ours.decoded_size != ours.facts.size:
            mean, most = REDUCED_MEAN, REDUCED_MAX
        assert apart.mean() <= mean, fidelity
        assert apart.max() <= most + 1e-3, fidelity


P3, REC_2020, LINEAR = coded_profile(12, 13), coded_profile(9, 13), gamma_profile(SRGB, 1.0)


@pytest.mark.parametrize(("format_name", "profile"), [("JPEG", P3), ("JPEG", REC_2020), ("PNG", P3), ("PNG", LINEAR)])
@pytest.mark.parametrize("name", ["coffee.png", "china.jpg"])
def test_a_profile_costs_no_fidelity(name: str, format_name: str, profile: bytes) -> None:
    """Converted after the resize, the largest difference was 52 levels, in linear light the mean 2.0.

    A JPEG of linear light is no promise: its transform reduces it before its shadows are spread.
    """
    with Image.open(io.BytesIO(Shot(name, (2000, 1500)).data())) as image:
        data = encoded(image, format_name, icc_profile=profile, **({"quality": 90} if format_name == "JPEG" else {}))
    fast, exact = (ImagePrep(LIMITS, fidelity).prepare(data, 70) for fidelity in ("fast", "exact"))
    assert fast.colour == exact.colour == ("an unnamed profile to sRGB",)
    apart = np.frombuffer(fast.patches, np.uint8).astype(int) - np.frombuffer(exact.patches, np.uint8)
    assert np.abs(apart).mean() <= REDUCED_MEAN
    assert np.abs(apart).max() <= REDUCED_MAX


def test_a_large_picture_is_reduced_while_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is as near as promised for it."""
    monkeypatch.setitem(streaming.WHOLE, "PNG", 10_000_000)
    for file, decoded in (("JPEG", (2000, 1500)), ("PNG", (4000, 3000))):
        data = Shot("china.jpg", (4000, 3000), file).data()
        fast, exact = (ImagePrep(LIMITS, fidelity).prepare(data, 280) for fidelity in ("fast", "exact"))
        assert fast.grid.pixels == (672, 912)
        assert (fast.decoded_size, exact.decoded_size) == (decoded, (4000, 3000))
        apart = np.abs(np.frombuffer(fast.patches, np.uint8).astype(int) - np.frombuffer(exact.patches, np.uint8))
        assert 0 < apart.max() <= REDUCED_MAX
        assert apart.mean() <= REDUCED_MEAN
