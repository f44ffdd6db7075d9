"""The tower against transformers, and each of its features switched off in ours to see the parity fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from photocall_engine.model import vision
from photocall_engine.model.config import read_config
from photocall_engine.model.vision import Linear, VisionTower
from photocall_engine.runner import PatchImage
from photocall_engine.torch_runner import read_weights
from tests.engine.checkpoints import DENSE, VISION, Checkpoint, make_checkpoint, random_image

TOLERANCE = 1e-4  # float32 on both sides; two orders of summation
VISIBLE = 1e-2  # what switching off one feature must at least move
IMAGE_WIDE = random_image(1, 6, 9)
IMAGE_TALL = random_image(2, 12, 6)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make_checkpoint(tmp_path_factory.mktemp("tower"), DENSE, VISION)


@pytest.fixture
def tower(checkpoint: Checkpoint) -> VisionTower:
    return load_tower(checkpoint.directory)


def load_tower(directory: Path) -> VisionTower:
    config = read_config(directory)
    _, weights = read_weights(directory, config)
    assert config.vision is not None
    assert weights is not None
    return VisionTower(config.vision, weights)


def encode(tower: VisionTower, image: PatchImage) -> Any:
    with torch.inference_mode():
        return tower.encode(image.patches, image.grid_height, image.grid_width).numpy()


def difference(tower: VisionTower, checkpoint: Checkpoint) -> float:
    (theirs,) = checkpoint.soft_tokens([IMAGE_WIDE])
    return float(np.abs(encode(tower, IMAGE_WIDE) - theirs).max())


def test_soft_tokens_agree_for_several_grids(tower: VisionTower, checkpoint: Checkpoint) -> None:
    images = [IMAGE_WIDE, IMAGE_TALL, random_image(3, 3, 3), random_image(4, 3, 30)]
    for image, theirs in zip(images, checkpoint.soft_tokens(images), strict=True):
        ours = encode(tower, image)
        assert ours.shape == theirs.shape == (image.num_soft, 64)
        assert theirs.std() > 0.5
        assert np.abs(ours - theirs).max() <= TOLERANCE


@pytest.mark.parametrize("change", [{"use_clipped_linears": False}, {"standardize": False}, {"num_key_value_heads": 1}])
def test_other_towers_agree(tmp_path: Path, change: dict[str, Any]) -> None:
    checkpoint = make_checkpoint(tmp_path, DENSE, VISION | change)
    assert difference(load_tower(tmp_path), checkpoint) <= TOLERANCE


def test_a_picture_has_the_same_bits_every_time(tower: VisionTower) -> None:
    first = encode(tower, IMAGE_TALL)
    encode(tower, IMAGE_WIDE)
    assert np.array_equal(first, encode(tower, IMAGE_TALL))


def without_bounds(tower: VisionTower) -> None:
    for layer in tower.weights.layers:
        for linear in (layer.q, layer.k, layer.v, layer.o, layer.gate, layer.up, layer.down):
            linear.bounds = None


def without_input_bounds(tower: VisionTower, name: str) -> None:
    linear: Linear = getattr(tower.weights.layers[0], name)
    assert linear.bounds is not None
    linear.bounds[:2] = torch.tensor([-torch.inf, torch.inf])


def without_output_bounds(tower: VisionTower, name: str) -> None:
    linear: Linear = getattr(tower.weights.layers[0], name)
    assert linear.bounds is not None
    linear.bounds[2:] = torch.tensor([-torch.inf, torch.inf])


def unstandardized(tower: VisionTower) -> None:
    tower.weights.std_bias = None


def without_positions(tower: VisionTower) -> None:
    tower.weights.positions.zero_()


def y_before_x(tower: VisionTower) -> None:
    tower.weights.positions = tower.weights.positions.flip(0)


def without_rope(tower: VisionTower) -> None:
    tower._frequencies = torch.zeros_like(tower._frequencies)


@pytest.mark.parametrize(
    "mutate", [without_bounds, unstandardized, without_positions, y_before_x, without_rope], ids=lambda m: m.__name__
)
def test_each_feature_is_seen(
    tower: VisionTower, checkpoint: Checkpoint, mutate: Callable[[VisionTower], None]
) -> None:
    mutate(tower)
    assert difference(tower, checkpoint) >= VISIBLE


@pytest.mark.parametrize("name", ["q", "k", "v", "o", "gate", "up", "down"])
@pytest.mark.parametrize("side", [without_input_bounds, without_output_bounds], ids=["input", "output"])
def test_each_clip_is_seen(
    tower: VisionTower, checkpoint: Checkpoint, side: Callable[[VisionTower, str], None], name: str
) -> None:
    side(tower, name)
    assert difference(tower, checkpoint) >= VISIBLE


NORMS = ["input_norm", "q_norm", "k_norm", "post_attention_norm", "pre_feedforward_norm", "post_feedforward_norm"]


@pytest.mark.parametrize("name", [*NORMS, "v", "projection"])
def test_each_norm_is_seen(
    tower: VisionTower, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    original = vision.norm
    dimensions = {"v": 3, "projection": 2}

    def skip(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
        if name in NORMS:
            skipped = weight is getattr(tower.weights.layers[1], name)
        else:
            skipped = weight is None and x.ndim == dimensions[name]
        return x.clone() if skipped else original(x, weight, eps)

    monkeypatch.setattr(vision, "norm", skip)
    assert difference(tower, checkpoint) >= VISIBLE


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (PatchImage(np.zeros((10, 768), np.uint8), 3, 3), "do not fit"),
        (PatchImage(np.zeros((9, 767), np.uint8), 3, 3), "do not fit"),
        (PatchImage(np.zeros((12, 768), np.uint8), 3, 4), "not a multiple of 3"),
        (PatchImage(np.zeros((3 * 66, 768), np.uint8), 3, 66), "exceeds the tower's 64 positions"),
    ],
)
def test_grids_that_do_not_fit_are_refused(tower: VisionTower, image: PatchImage, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        encode(tower, image)
