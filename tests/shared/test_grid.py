"""The grid rule against the reference processor's own function, and the settings read from a checkpoint."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers.models.gemma4.image_processing_pil_gemma4 import get_aspect_ratio_preserving_size

from photocall.grid import BUDGETS, Grid, ProcessorConfig, ProcessorConfigError, grid_for, processor_hash

SIDES = st.integers(1, 20_000)


def reference(width: int, height: int, budget: int) -> tuple[int, int]:
    size: tuple[int, int] = get_aspect_ratio_preserving_size(height, width, 16, budget * 9, 3)
    return size


@given(SIDES, SIDES, st.sampled_from(BUDGETS))
def test_the_grid_is_the_references(width: int, height: int, budget: int) -> None:
    assert grid_for(width, height, budget).pixels == reference(width, height, budget)


def test_the_grid_is_the_references_over_all_scales() -> None:
    dice = random.Random(20261130)
    thin = 0
    for _ in range(20_000):
        width, height = (int(2 ** dice.uniform(0, 16)) for _ in range(2))
        budget = dice.choice(BUDGETS)
        grid = grid_for(width, height, budget)
        assert grid.pixels == reference(width, height, budget), (width, height, budget)
        assert 1 <= grid.num_soft <= budget
        thin += min(grid.height, grid.width) == 3 and min(width, height) * 50 < max(width, height)
    assert thin > 100, "the walk must meet pictures whose short side floors to nothing"


@pytest.mark.parametrize("side", [48, 96, 336, 480, 672, 768, 960, 1152, 1344])
@pytest.mark.parametrize("budget", BUDGETS)
def test_sides_on_exact_multiples_floor_as_the_reference_does(side: int, budget: int) -> None:
    for other in (48, 144, 480, 672, 960, 1344, 4032):
        assert grid_for(side, other, budget).pixels == reference(side, other, budget)


def test_a_known_grid() -> None:
    assert grid_for(960, 672, 280) == Grid(height=42, width=60)
    assert grid_for(960, 672, 280).num_soft == 280


@pytest.mark.parametrize(("width", "height", "budget"), [(0, 5, 70), (5, 0, 70), (5, 5, 0), (-1, 5, 70)])
def test_sizes_that_cannot_be(width: int, height: int, budget: int) -> None:
    with pytest.raises(ValueError, match="a picture needs"):
        grid_for(width, height, budget)


def checkpoint(folder: Path, image_processor: Any, rows: int | None = 840, name: str = "processor_config.json") -> Path:
    vision = {} if rows is None else {"position_embedding_size": rows}
    (folder / "config.json").write_text(json.dumps({"vision_config": vision}))
    (folder / name).write_text(json.dumps(image_processor))
    return folder


SAVED = {
    "do_convert_rgb": True,
    "do_normalize": False,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.0, 0.0, 0.0],
    "image_processor_type": "Gemma4ImageProcessor",
    "image_std": [1.0, 1.0, 1.0],
    "max_soft_tokens": 140,
    "patch_size": 16,
    "pooling_kernel_size": 3,
    "resample": 3,
    "rescale_factor": 1 / 255,
}


def test_both_file_layouts_are_read(tmp_path: Path) -> None:
    nested, flat = tmp_path / "nested", tmp_path / "flat"
    nested.mkdir()
    flat.mkdir()
    checkpoint(nested, {"processor_class": "Gemma4Processor", "image_processor": SAVED})
    checkpoint(flat, SAVED, name="preprocessor_config.json")
    assert ProcessorConfig.read(nested) == ProcessorConfig.read(flat) == ProcessorConfig(budget=140, max_budget=280)
    assert processor_hash(nested) == processor_hash(flat)


def test_the_references_own_save_is_read(tmp_path: Path) -> None:
    from transformers import Gemma4ImageProcessorPil

    Gemma4ImageProcessorPil(max_soft_tokens=560).save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"vision_config": {"position_embedding_size": 10240}}))
    assert ProcessorConfig.read(tmp_path) == ProcessorConfig(budget=560, max_budget=1120)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("patch_size", 14),
        ("pooling_kernel_size", 2),
        ("resample", 2),
        ("do_resize", False),
        ("do_normalize", True),
        ("max_soft_tokens", 100),
        ("max_soft_tokens", 560),  # over the position table of 840 rows
    ],
)
def test_other_settings_are_refused_by_name(tmp_path: Path, field: str, value: Any) -> None:
    checkpoint(tmp_path, {**SAVED, field: value})
    with pytest.raises(ProcessorConfigError, match=rf"processor_config.json: {field}={value}"):
        ProcessorConfig.read(tmp_path)


def test_a_model_without_a_tower_has_no_position_table_to_fit(tmp_path: Path) -> None:
    assert ProcessorConfig.read(checkpoint(tmp_path, SAVED, rows=None)).max_budget == 1120


def test_a_folder_without_settings_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProcessorConfigError, match=str(tmp_path)):
        ProcessorConfig.read(tmp_path)
    (tmp_path / "processor_config.json").write_text("[")
    with pytest.raises(ProcessorConfigError, match="not JSON"):
        ProcessorConfig.read(tmp_path)
