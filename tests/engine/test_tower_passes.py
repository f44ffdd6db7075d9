"""Buckets of tower passes on the CPU, where the same work runs over the same buffers: the same bits as without, nothing
moves, and what null rows hold plays no part. Captured graphs are compared on a GPU (`test_gpu.py`)."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from photocall_engine.graph_space import Capture
from photocall_engine.runner import PatchImage
from photocall_engine.torch_runner import TorchRunner
from photocall_engine.tower_passes import USUAL_ROWS, TowerPasses, row_buckets
from tests.engine.checkpoints import DENSE, MERGER, UNIFIED, VISION, make_checkpoint, random_image

SOFT = 64
IMAGES = [random_image(1, 6, 9), random_image(2, 12, 12), random_image(3, 3, 3), random_image(4, 9, 15)]


@pytest.fixture(scope="module", params=["tower", "merger"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    text, seeing = {"tower": (DENSE, VISION), "merger": (UNIFIED, MERGER)}[request.param]
    return make_checkpoint(tmp_path_factory.mktemp(request.param), text, seeing).directory


@pytest.fixture
def runner(directory: Path) -> TorchRunner:
    return TorchRunner.load(directory, num_pages=40, sliding_pages=39, max_rows=64, soft_capacity=SOFT, threads=1)


def passes(runner: TorchRunner) -> TowerPasses:
    assert runner.tower is not None
    return runner.tower


def encoded(runner: TorchRunner, images: list[PatchImage], first: int = 0) -> NDArray[np.float32]:
    """Soft tokens of all pictures, one after another, from arena row `first` on."""
    bases = list(itertools.accumulate([first] + [image.num_soft for image in images]))
    runner.encode_images(images, bases[:-1])
    return runner.arena[first : bases[-1]].numpy().copy()


def test_a_bucket_gives_the_bits_of_a_plain_pass(runner: TorchRunner) -> None:
    """After passes that filled the bucket with other pictures, too."""
    plain = [encoded(runner, [image]) for image in IMAGES]
    assert all(values.std() > 0.1 for values in plain)
    assert np.array_equal(encoded(runner, IMAGES), np.concatenate(plain))
    passes(runner).prepare(SOFT)
    for place, image in enumerate(IMAGES):
        assert np.array_equal(encoded(runner, [image]), plain[place])
        assert np.array_equal(encoded(runner, [*IMAGES, image])[-image.num_soft :], plain[place])
        assert np.array_equal(encoded(runner, [image, *IMAGES])[: image.num_soft], plain[place])
    assert (passes(runner).replays, passes(runner).misses) == (12, 5)


def test_arena_rows_of_others_stay(runner: TorchRunner) -> None:
    passes(runner).prepare(SOFT)
    runner.arena[:SOFT] = 7.0
    encoded(runner, [IMAGES[0]], first=20)
    others = np.delete(runner.arena[:SOFT].numpy(), range(20, 26), axis=0)
    assert (others == 7.0).all()
    assert (runner.arena[20:26] != 7.0).all()


def test_the_smallest_bucket_that_holds_the_pictures(runner: TorchRunner) -> None:
    tower = passes(runner)
    assert tower.shape_of(IMAGES) is None
    tower.prepare(SOFT)
    shapes = [tower.shape_of(images) for images in ([IMAGES[0]], IMAGES, [random_image(5, 24, 12)])]
    assert [shape and shape.rows for shape in shapes] == [256, 512, 512]
    plain = encoded(runner, [random_image(6, 27, 12), random_image(7, 27, 9)])  # 567 patches, 36 and 27 soft tokens
    assert (tower.replays, tower.misses) == (1, 0)
    tower.prepare(16)
    assert np.array_equal(encoded(runner, [random_image(6, 27, 12), random_image(7, 27, 9)]), plain)
    assert (tower.replays, tower.misses) == (1, 1), "larger than the largest bucket"


def test_nothing_moves_between_passes_of_a_bucket(runner: TorchRunner) -> None:
    tower = passes(runner)
    tower.prepare(SOFT)
    shape = tower.shape_of(IMAGES)
    assert shape is not None

    def places(images: list[PatchImage]) -> list[int]:
        found = tower._fixed.fill(images, [0] * len(images), shape)
        tensors = (found.patches, found.x, found.y, found.tile_start, found.tile_end)
        soft = (found.soft_row, found.soft_width, found.target)
        assert all(tensor.data_ptr() % 16 == 0 for tensor in (*tensors, *soft)), "wide loads"
        return [tensor.data_ptr() for tensor in (*tensors, *soft)]

    assert places([]) == places(IMAGES) == places([IMAGES[2]])


@pytest.mark.parametrize("tile", [1, 16, 128])
@pytest.mark.parametrize("most", [9, 256, 2520, 2561, 18_432, 80_000])
def test_buckets_are_close_to_one_another(tile: int, most: int) -> None:
    buckets = row_buckets(most, tile)
    assert buckets[-1] >= most
    assert all(rows % tile == 0 for rows in buckets)
    assert all(most > rows for rows in buckets[:-1])
    for count in range(1, most // USUAL_ROWS + 1):
        usual = count * USUAL_ROWS
        held = next(rows for rows in buckets if rows >= usual)
        assert held <= 1.12 * usual
    assert all(after - before <= max(256, before / 6) for before, after in itertools.pairwise(buckets))


def test_what_capturing_took_is_told() -> None:
    assert str(Capture(graphs=33, seconds=0.51, bytes=600 << 20)) == "33 captured in 0.5 s, 600 MB"


def test_soft_tokens_beyond_the_arena_are_refused(runner: TorchRunner) -> None:
    """The arena's last row is for null soft tokens only."""
    assert torch.is_tensor(runner.arena)
    assert len(runner.arena) == SOFT + 1
    with pytest.raises(ValueError, match="1 soft tokens at 64 exceed the arena of 64"):
        runner.encode_images([IMAGES[2]], [SOFT])
