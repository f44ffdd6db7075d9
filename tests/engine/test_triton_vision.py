"""The tower's Triton kernels against plain torch, and a picture's bits alone and among others.

Tolerance: both sides compute in float32 from the same inputs; sums run in other orders (2e-5 of values of size one to
ten), and bfloat16 results are rounded once where the reference may round twice (2^-7).
"""

from __future__ import annotations

import pytest
import torch

from tests.engine.interpreter import DEVICE, ON_GPU

# isort: split
from photocall_engine.kernels.reference import ReferenceKernels
from photocall_engine.kernels.triton_vision import TritonVision
from photocall_engine.kernels.vision import Clip, HeadNorms, largest_score
from photocall_engine.kernels.vision_reference import ReferenceVision
from photocall_engine.model.config import VisionConfig
from photocall_engine.model.pictures import PassShape, PictureBuffers, Pictures
from photocall_engine.model.vision import VisionTower
from photocall_engine.model.vision_weights import allocate_vision
from photocall_engine.runner import PatchImage
from photocall_engine.words import Words
from tests.engine.checkpoints import random_image

TILE = 16  # the interpreter takes its time for every row
OURS, TRUTH = TritonVision(TILE), ReferenceVision(TILE)
BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
TIGHT = Clip(-0.5, 0.7)
SHAPES = [(4, 2, 72), (3, 3, 16)]  # heads, K/V heads, head_dim


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(DEVICE)


def near(found: torch.Tensor, expected: torch.Tensor, scale: float = 1.0) -> None:
    assert found.dtype == expected.dtype
    relative = 2.0**-7 if found.dtype == torch.bfloat16 else 0.0
    error = (found.double() - expected.double()).abs()
    assert (error <= 2e-5 * scale + relative * expected.double().abs() + relative * scale).all(), error.max()


def pictures(*images: PatchImage, shape: PassShape | None = None, tile: int = TILE) -> Pictures:
    buffers = PictureBuffers(Words(torch.device(DEVICE), 1 << 10), tile, spare=50)
    return buffers.fill(images, [0] * len(images), shape or PassShape.exact(images, tile))


IMAGES = (random_image(1, 6, 3), random_image(2, 9, 9), random_image(3, 3, 3))  # 18, 81 and 9 patches


@BOTH
def test_pixels_and_positions(dtype: torch.dtype) -> None:
    rows = pictures(*IMAGES)
    near(OURS.normalise(rows.patches, dtype), TRUTH.normalise(rows.patches, dtype))
    x, table = draw(len(rows.x), 80, dtype=dtype), draw(2, 20, 80, seed=1, dtype=dtype)
    near(OURS.add_positions(x, table, rows.x, rows.y), TRUTH.add_positions(x, table, rows.x, rows.y), 4)


@BOTH
@pytest.mark.parametrize("clip", [Clip(), TIGHT], ids=["unclipped", "clipped"])
def test_norms_and_the_gate(dtype: torch.dtype, clip: Clip) -> None:
    x, weight, after = draw(20, 96, dtype=dtype), draw(96, seed=1, dtype=dtype), draw(96, seed=2, dtype=dtype)
    residual = draw(20, 96, seed=3, dtype=dtype)
    near(OURS.clipped_norm(x, weight, 1e-6, clip), TRUTH.clipped_norm(x, weight, 1e-6, clip), 4)
    found, normed = OURS.norm_add(residual, x, clip, weight, after, TIGHT, 1e-6)
    expected, expected_normed = TRUTH.norm_add(residual, x, clip, weight, after, TIGHT, 1e-6)
    near(found, expected, 4)
    near(normed, expected_normed, 4)
    assert OURS.norm_add(residual, x, clip, weight, None, TIGHT, 1e-6)[1].equal(found)
    wide = draw(20, 192, seed=4, dtype=dtype)
    near(OURS.gate(wide, (clip, TIGHT, clip)), TRUTH.gate(wide, (clip, TIGHT, clip)), 2)


@BOTH
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), SHAPES)
def test_turning(heads: int, kv_heads: int, dim: int, dtype: torch.dtype) -> None:
    rows = pictures(*IMAGES)
    stacked = draw(len(rows.x), (heads + 2 * kv_heads) * dim, dtype=dtype)
    q_norm, k_norm = draw(dim, seed=1, dtype=dtype), draw(dim, seed=2, dtype=dtype)
    angle = draw(12, dim // 4, seed=3) * 3
    rest = (HeadNorms(q_norm, k_norm), (angle.cos(), angle.sin()), rows, 1e-6, heads, kv_heads)
    for clips in ((Clip(), Clip(), Clip()), (TIGHT, Clip(-0.1, 0.2), Clip(-1.0, 0.3))):
        for found, expected in zip(OURS.turn(stacked, clips, *rest), TRUTH.turn(stacked, clips, *rest), strict=True):
            near(found, expected, 8)


@BOTH
@pytest.mark.parametrize("powers", [False, True], ids=["subtracts", "powers"])
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), SHAPES)
def test_attention_stays_within_each_picture(
    heads: int, kv_heads: int, dim: int, dtype: torch.dtype, powers: bool
) -> None:
    rows = pictures(*IMAGES)
    count = len(rows.x)
    q = draw(count, heads, dim, dtype=dtype)
    k, v = (draw(count, kv_heads, dim, seed=seed, dtype=dtype) / dim**0.5 for seed in (1, 2))
    null = torch.ones(count, dtype=torch.bool)
    for start, end in rows.spans:
        null[start:end] = False
    k[null], v[null] = torch.nan, torch.nan  # null rows of a captured pass hold whatever was there
    found, expected = (ops.attend(q, k, v, rows, TIGHT, powers=powers) for ops in (OURS, TRUTH))
    near(found[~null], expected[~null])
    assert found.isfinite().all()


@pytest.mark.parametrize("dim", [64, 72])
def test_attention_in_the_tiles_that_serve(dim: int) -> None:
    """Nothing is clipped, which would hide what is not finite; last blocks of every length, and none."""
    ours, truth = TritonVision(), ReferenceVision(TritonVision().tile)
    heads = 16 if ON_GPU else 1
    grids = [(12, 15), (6, 9)] + [(42, 60), (24, 24), (3, 3), (9, 12)] * ON_GPU
    rows = pictures(*(random_image(0, *grid) for grid in grids), tile=ours.tile)
    count = len(rows.x)
    stacked = draw(count, 3 * heads, dim, dtype=torch.bfloat16)
    stacked[:, :heads] /= dim**0.5
    null = torch.ones(count, dtype=torch.bool)
    for start, end in rows.spans:
        null[start:end] = False
    stacked[null, heads:] = torch.nan
    q, k, v = torch.split(stacked, heads, dim=1)  # slices of wider rows, as `turn` gives them
    for powers in (False, True):
        found, expected = (ops.attend(q, k, v, rows, Clip(), powers=powers) for ops in (ours, truth))
        near(found[~null], expected[~null])


def test_a_score_is_never_larger_than_its_layer_may_have() -> None:
    """The bound is reached where all of a head's weight stands in its largest pair, and holds for what is turned."""
    rows = pictures(*IMAGES)
    q_norm, k_norm = draw(72, seed=1), draw(72, seed=2)
    bound = largest_score(q_norm, k_norm)
    assert bound > 72
    angle = draw(12, 18, seed=3) * 3
    turns = (angle.cos(), angle.sin())
    stacked = torch.zeros(len(rows.x), 3, 72, device=DEVICE)
    scores = []
    for pair in range(36):  # everything in one pair, at every turn
        low = pair // 18 * 36 + pair % 18
        stacked[:, :, [low, low + 18]] = draw(len(rows.x), 3, 2, seed=pair)
        q, k, _ = TRUTH.turn(
            stacked.flatten(1), (Clip(), Clip(), Clip()), HeadNorms(q_norm, k_norm), turns, rows, 1e-6, 1, 1
        )
        scores.append((q[:, 0] @ k[:, 0].T).abs().max())
        stacked[:, :, [low, low + 18]] = 0.0
    assert 0.8 * bound < max(scores) <= bound * 1.0001


def test_a_softmax_subtracts_nothing_where_all_scores_are_small() -> None:
    """Both ways through a turned head agree, and which is taken follows the norms' weights alone."""
    rows = pictures(*IMAGES)
    ones = torch.ones(16, device=DEVICE)
    small, large = OURS.head_norms(ones * 4.7, ones), OURS.head_norms(ones * 4.8, ones)
    assert (small.powers, large.powers) == (True, False)
    assert TRUTH.head_norms(ones, ones) == HeadNorms(ones, ones)
    angle = draw(12, 4, seed=3) * 3
    stacked = draw(len(rows.x), 3 * 16, seed=4)
    found = []
    for norms in (small, HeadNorms(ones * 4.7, ones)):
        clips = (Clip(), Clip(), Clip())
        q, k, v = OURS.turn(stacked, clips, norms, (angle.cos(), angle.sin()), rows, 1e-6, 1, 1)
        found.append(OURS.attend(q, k, v, rows, Clip(), powers=norms.powers))
    near(found[0], found[1], 10)


@BOTH
def test_pooling(dtype: torch.dtype) -> None:
    rows = pictures(*IMAGES)
    x, bias, scale = draw(len(rows.x), 80, dtype=dtype), draw(80, seed=1, dtype=dtype), draw(80, seed=2, dtype=dtype)
    near(OURS.pool(x, rows, None, None, 1e-6), TRUTH.pool(x, rows, None, None, 1e-6), 8)
    near(OURS.pool(x, rows, bias, scale, 1e-6), TRUTH.pool(x, rows, bias, scale, 1e-6), 8)


def tower(scale: float) -> VisionTower:
    config = VisionConfig(32, 40, 1, 4, 2, 16, 16, 3, 64, 100.0, 1e-6, clipped=True, standardize=True)
    text = type("Text", (), {"hidden_size": 24})()
    weights = allocate_vision(config, text, torch.device(DEVICE), torch.float32)
    for seed, (name, place) in enumerate(weights.places.items()):
        place.copy_(draw(*place.shape, seed=seed) * (1.0 if place.ndim < 2 else place.shape[-1] ** -0.5))
        if name.endswith(("_min", "_max")):
            place.fill_(-1.5 if name.endswith("_min") else 1.5)
        if name.endswith(("q_norm.weight", "k_norm.weight")):
            place.clamp_(-1.0, 1.0).mul_(scale)
    return VisionTower(config, weights, ReferenceKernels(merged=ON_GPU), OURS)


@pytest.mark.parametrize("scale", [1.0, 4.0], ids=["small scores", "any scores"])
def test_the_whole_tower_agrees_and_a_picture_has_the_same_bits_in_a_larger_room(scale: float) -> None:
    """Alone, and behind another picture in buffers with tiles and soft tokens that nobody uses, as a graph has them."""
    ours = tower(scale)
    assert [norms.powers for _, norms, *_ in ours._layers] == [scale == 1.0]
    truth = VisionTower(ours.config, ours.weights, ours.kernels, TRUTH)
    first, second = IMAGES[2], IMAGES[0]
    alone = ours.encode(pictures(second))
    near(alone, truth.encode(pictures(second)), 10)
    room = pictures(first, second, shape=PassShape(4 * TILE, TILE))
    found = ours.encode(room)
    assert found.isfinite().all()
    if not ON_GPU:  # there the linears of this test are the library's; the runner's own tests compare bits
        assert torch.equal(found[1 : 1 + second.num_soft], alone[: second.num_soft])
