"""The whole preparation against the reference processor: the same grid, and pixels within 1."""

import numpy as np
import pytest
from PIL import Image
from transformers import Gemma4ImageProcessorPil

from photocall.grid import BUDGETS
from photocall_prep.patches import patchify
from photocall_prep.prepare import ImagePrep
from photocall_prep.resize import to_grid
from tests.prep.pictures import TestLimits, encoded, noise, scene

PREP = ImagePrep(TestLimits())
SIZES = [(64, 48), (48, 48), (1, 1), (1, 900), (1500, 2), (5000, 11), (640, 480), (333, 777), (960, 672), (1200, 1600)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("budget", [70, 140, 280])
def test_grid_and_pixels_are_the_references(size: tuple[int, int], budget: int) -> None:
    picture = noise(*size)
    ours = ImagePrep(TestLimits(), "exact").prepare(encoded(picture, "PNG"), budget)
    reference = Gemma4ImageProcessorPil(max_soft_tokens=budget)(
        picture, return_tensors="np", input_data_format="channels_last"
    )
    positions = reference["image_position_ids"][0][: ours.grid.num_patches]
    assert positions.max(axis=0).tolist() == [ours.grid.width - 1, ours.grid.height - 1]
    assert reference["num_soft_tokens_per_image"][0] == ours.grid.num_soft
    expected = reference["pixel_values"][0][: ours.grid.num_patches] * 255
    patches = np.frombuffer(ours.patches, dtype=np.uint8).reshape(ours.grid.num_patches, 768)
    assert np.abs(patches - expected).max() <= 1, "two bicubic implementations may round one level apart"


@pytest.mark.parametrize("budget", BUDGETS)
def test_every_budget_is_used_and_kept(budget: int) -> None:
    prepared = PREP.prepare(encoded(scene(640, 480), "PNG"), budget)
    assert 0.8 * budget <= prepared.grid.num_soft <= budget
    assert len(prepared.patches) == prepared.grid.num_patches * 768


def test_patches_are_row_major_with_their_pixels_inside() -> None:
    pixels = np.arange(96 * 144 * 3, dtype=np.uint32).reshape(96, 144, 3).astype(np.uint8)
    patches = patchify(pixels)
    assert patches.shape == (6 * 9, 768)
    for row, column in ((0, 0), (0, 8), (3, 5), (5, 8)):
        tile = pixels[row * 16 : row * 16 + 16, column * 16 : column * 16 + 16]
        assert (patches[row * 9 + column] == tile.reshape(-1)).all()


def test_a_picture_of_the_grids_size_keeps_its_bytes() -> None:
    prepared = PREP.prepare(encoded(noise(960, 672), "PNG"), 280)
    assert prepared.grid.pixels == (672, 960)
    assert prepared.patches == patchify(np.asarray(noise(960, 672))).tobytes()


def test_the_same_bytes_make_the_same_blob() -> None:
    data = encoded(noise(300, 200), "JPEG", quality=80)
    assert PREP.prepare(data, 140).patches == PREP.prepare(data, 140).patches


@pytest.mark.parametrize("size", [(800, 200), (1600, 1400), (300, 900)])
def test_a_turned_picture_is_the_upright_one(size: tuple[int, int]) -> None:
    """Enlarged, made smaller, and both: turned before or after the resize, its passes round alike."""
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = encoded(noise(*size).transpose(Image.Transpose.ROTATE_90), "PNG", exif=exif)
    upright = encoded(noise(*size), "PNG")
    for prep in (PREP, ImagePrep(TestLimits(), "exact")):
        one, other = prep.prepare(turned, 140), prep.prepare(upright, 140)
        assert (one.grid, one.patches) == (other.grid, other.patches)


def test_fitting_makes_the_asked_size() -> None:
    grid = PREP.prepare(encoded(scene(100, 200), "PNG"), 70).grid
    for exact in (False, True):
        for turn, picture in ((1, scene(100, 200)), (6, scene(200, 100))):
            assert to_grid(picture, turn, grid, exact=exact).shape == (*grid.pixels, 3)
