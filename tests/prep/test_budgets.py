"""What `auto` makes of pictures: by size, then by what smaller grids would lose."""

from __future__ import annotations

import pytest
from PIL import Image, ImageDraw, ImageFont

from ops.photographs import Shot, photograph
from photocall.grid import BUDGETS
from photocall_prep.budgets import candidates, choose
from photocall_prep.prepare import ImagePrep
from tests.prep.pictures import TestLimits, encoded


def page(width: int, height: int, size: int) -> Image.Image:
    """Print of `size` pixels."""
    image = Image.new("RGB", (width, height), "white")
    pen, font = ImageDraw.Draw(image), ImageFont.load_default(size)
    for y in range(10, height - size, round(1.4 * size)):
        pen.text((10, y), "the quick brown fox jumps over the lazy dog " * (width // size // 12), "black", font)
    return image


def auto(image: Image.Image, allowed: tuple[int, ...] = BUDGETS) -> int:
    return choose(image, image.size, candidates(image.size, allowed)).budget


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((100, 100), (70,)),
        ((400, 400), (70,)),  # 161,280 pixels fill 70 soft tokens
        ((420, 400), (70, 140)),
        ((800, 600), (70, 140, 280)),
        ((2000, 1500), (70, 140, 280, 560, 1120)),
    ],
)
def test_a_picture_is_given_no_more_than_it_can_fill(size: tuple[int, int], expected: tuple[int, ...]) -> None:
    assert candidates(size, BUDGETS) == expected
    assert candidates(size, (280,)) == (280,)


def test_detail_costs_and_emptiness_does_not() -> None:
    assert auto(Image.new("RGB", (2000, 1500), "red")) == 70
    assert auto(photograph("coffee.png").resize((1800, 1200), Image.Resampling.LANCZOS)) == 140
    assert auto(photograph("china.jpg").resize((1920, 1281), Image.Resampling.LANCZOS)) == 280
    assert auto(page(1240, 1754, 20)) == 1120
    assert auto(page(640, 480, 12)) == 140, "there is no more to see than it has pixels"
    assert auto(page(1240, 1754, 20), (70, 140, 280)) == 280


def test_one_line_of_print_on_a_smooth_picture_counts() -> None:
    image = photograph("coffee.png").resize((1800, 1200), Image.Resampling.LANCZOS)
    image.paste(page(300, 100, 16), (1300, 100))
    assert auto(image) >= 560, "without it, 140"


def test_the_choice_is_the_same_upright_and_turned_and_is_explained() -> None:
    prep = ImagePrep(TestLimits(max_pixels=16_000_000))
    upright = prep.prepare(Shot("coffee.png", (1800, 1200)).data(), "auto")
    turned = prep.prepare(Shot("coffee.png", (1800, 1200), orientation=6).data(), "auto")
    assert upright.budget == turned.budget == 140
    assert (upright.grid.height, upright.grid.width) == (turned.grid.width, turned.grid.height)
    assert upright.why.startswith("1120 is what 1800x1200 pixels can fill; 70 loses ")
    small = prep.prepare(encoded(page(100, 100, 10), "PNG"), "auto")
    assert (small.budget, small.why) == (70, "100x100 pixels fill no more")


def test_auto_prepares_what_asking_for_its_choice_does() -> None:
    for fidelity in ("fast", "exact"):
        prep = ImagePrep(TestLimits(max_pixels=16_000_000), "exact" if fidelity == "exact" else "fast")
        data = encoded(page(1240, 1754, 20), "PNG")
        assert prep.prepare(data, "auto").patches == prep.prepare(data, 1120).patches
