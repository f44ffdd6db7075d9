"""The tower against transformers, and each of its features switched off in ours to see the parity fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from photocall_engine.kernels import vision_reference
from photocall_engine.kernels.reference import ReferenceKernels
from photocall_engine.kernels.vision_reference import ReferenceVision
from photocall_engine.model.checkpoint import read_weights
from photocall_engine.model.config import VisionConfig, read_config
from photocall_engine.model.pictures import PassShape, PictureBuffers, Pictures
from photocall_engine.model.vision import VisionEncoder, VisionTower
from photocall_engine.model.vision_weights import Stacked, VisionWeights
from photocall_engine.runner import PatchImage
from photocall_engine.words import Words
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
    config = read_config(directory).vision
    assert isinstance(config, VisionConfig)
    _, weights = read_weights(directory, read_config(directory), torch.device("cpu"), torch.float32)
    assert isinstance(weights, VisionWeights)
    kernels = ReferenceKernels.for_model(weights.linears(), set())
    return VisionTower(config, weights, kernels, ReferenceVision(kernels.row_tile))


def again(tower: VisionTower) -> VisionTower:
    """The tower as its weights are now: bounds are read when it is made."""
    made = VisionTower(tower.config, tower.weights, tower.kernels, tower.ops)
    made.turns = tower.turns
    return made


@torch.inference_mode()
def encode(encoder: VisionEncoder, *images: PatchImage) -> list[Any]:
    """Soft tokens of each picture, all from one pass."""
    for image in images:
        encoder.check(image)
    counts = [image.num_soft for image in images]
    pictures = packed(encoder, images, [0] * len(images))
    soft = encoder.encode(pictures)
    return [part.numpy() for part in torch.split(soft[: pictures.num_soft], counts)]


def packed(
    encoder: VisionEncoder, images: Sequence[PatchImage], bases: list[int], shape: PassShape | None = None
) -> Pictures:
    buffers = PictureBuffers(Words(torch.device("cpu"), 1 << 10), encoder.tile, spare=99)
    return buffers.fill(images, bases, shape or PassShape.exact(images, encoder.tile))


def difference(tower: VisionTower, checkpoint: Checkpoint) -> float:
    (theirs,) = checkpoint.soft_tokens([IMAGE_WIDE])
    return float(np.abs(encode(again(tower), IMAGE_WIDE)[0] - theirs).max())


def test_soft_tokens_agree_for_several_grids(tower: VisionTower, checkpoint: Checkpoint) -> None:
    images = [IMAGE_WIDE, IMAGE_TALL, random_image(3, 3, 3), random_image(4, 3, 30)]
    theirs = checkpoint.soft_tokens(images)
    for image, ours, wanted in zip(images, encode(tower, *images), theirs, strict=True):
        assert ours.shape == wanted.shape == (image.num_soft, 64)
        assert wanted.std() > 0.5
        assert np.abs(ours - wanted).max() <= TOLERANCE


@pytest.mark.parametrize("change", [{"use_clipped_linears": False}, {"standardize": False}, {"num_key_value_heads": 1}])
def test_other_towers_agree(tmp_path: Path, change: dict[str, Any]) -> None:
    checkpoint = make_checkpoint(tmp_path, DENSE, VISION | change)
    assert difference(load_tower(tmp_path), checkpoint) <= TOLERANCE


def test_a_picture_has_the_same_bits_alone_and_among_others(tower: VisionTower) -> None:
    """In any order, and behind pictures that fill their tiles and pictures that do not."""
    others = [random_image(seed, height, width) for seed, (height, width) in enumerate([(3, 3), (12, 12), (9, 15)])]
    for image in (IMAGE_WIDE, IMAGE_TALL):
        (alone,) = encode(tower, image)
        for place in range(len(others) + 1):
            among = encode(tower, *others[:place], image, *others[place:])
            assert np.array_equal(among[place], alone)


def test_one_product_where_all_inputs_have_the_same_bounds(tower: VisionTower) -> None:
    """Public checkpoints clip q, k and v alike: then the stacked product gives what three products give."""
    for layer in tower.weights.layers:
        for stacked in (layer.qkv, layer.gate_up):
            assert stacked.bounds is not None
            stacked.bounds[:, :2] = stacked.bounds[0, :2]
    together = again(tower)
    assert all(qkv.apart is None and gate_up.apart is None for _, _, qkv, _, gate_up, _ in together._layers)
    apart = again(tower)
    for _, _, qkv, _, gate_up, _ in apart._layers:
        for linear in (qkv, gate_up):
            linear.apart = [linear.clip] * len(linear.heights)
    assert np.abs(encode(together, IMAGE_WIDE)[0] - encode(apart, IMAGE_WIDE)[0]).max() <= TOLERANCE


def test_null_rows_and_null_soft_tokens_change_nothing(tower: VisionTower) -> None:
    """A pass in the buffers of a larger one, as a captured graph has them: the same bits, and the rest finite."""
    images = [IMAGE_TALL, IMAGE_WIDE]
    wanted = np.concatenate(encode(tower, *images))
    room = packed(tower, images, [3, 40], PassShape(20 * tower.tile, 3 * tower.tile))
    with torch.inference_mode():
        soft = tower.encode(room).numpy()
    assert np.array_equal(soft[: room.num_soft], wanted)
    assert np.isfinite(soft).all()
    assert room.target.tolist() == [*range(3, 11), *range(40, 46), *[99] * (3 * tower.tile - 14)]
    with pytest.raises(ValueError, match="144 patch rows and 14 soft tokens in a pass of 64 and 16"):
        packed(tower, images, [3, 40], PassShape(64, 16))


PARTS = {"q": ("qkv", 0), "k": ("qkv", 1), "v": ("qkv", 2), "o": ("o", 0), "gate": ("gate_up", 0), "up": ("gate_up", 1)}
PARTS["down"] = ("down", 0)


def without_bounds(tower: VisionTower) -> None:
    for layer in tower.weights.layers:
        for stacked in (layer.qkv, layer.o, layer.gate_up, layer.down):
            stacked.bounds = None


def bounds_of(tower: VisionTower, name: str) -> torch.Tensor:
    field, index = PARTS[name]
    stacked: Stacked = getattr(tower.weights.layers[0], field)
    assert stacked.bounds is not None
    return stacked.bounds[index]


def without_input_bounds(tower: VisionTower, name: str) -> None:
    bounds_of(tower, name)[:2] = torch.tensor([-torch.inf, torch.inf])


def without_output_bounds(tower: VisionTower, name: str) -> None:
    bounds_of(tower, name)[2:] = torch.tensor([-torch.inf, torch.inf])


def unstandardized(tower: VisionTower) -> None:
    tower.weights.std_bias = None


def without_positions(tower: VisionTower) -> None:
    tower.weights.positions.zero_()


def y_before_x(tower: VisionTower) -> None:
    tower.weights.positions = tower.weights.positions.flip(0)


def without_rope(tower: VisionTower) -> None:
    tower.turns = torch.ones_like(tower.turns[0]), torch.zeros_like(tower.turns[1])


@pytest.mark.parametrize(
    "mutate", [without_bounds, unstandardized, without_positions, y_before_x, without_rope], ids=lambda m: m.__name__
)
def test_each_feature_is_seen(
    tower: VisionTower, checkpoint: Checkpoint, mutate: Callable[[VisionTower], None]
) -> None:
    mutate(tower)
    assert difference(tower, checkpoint) >= VISIBLE


@pytest.mark.parametrize("name", PARTS)
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
    original = vision_reference.norm
    dimensions = {"v": 3, "projection": 2}

    def skip(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
        if name in NORMS:
            skipped = weight is getattr(tower.weights.layers[1], name)
        else:
            skipped = weight is None and x.ndim == dimensions[name]
        return x.clone() if skipped else original(x, weight, eps)

    monkeypatch.setattr(vision_reference, "norm", skip)
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
