"""The reference kernels against plain formulas, and the bits they promise."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from photocall_engine.kernels import HeadShape
from photocall_engine.kernels.reference import ROW_TILE, WIDE, ReferenceKernels, keeps_query_bits, keeps_row_bits
from photocall_engine.kernels.tiles import VisibleRows
from photocall_engine.kv_pools import LayerKv
from photocall_engine.rows import PAGE_SIZE

KERNELS = ReferenceKernels()
MINI_SHAPES = [(384, 256), (256, 256), (768, 256), (256, 768), (4096, 256)]  # those of models/mini


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [*MINI_SHAPES, (24, 64), (80, 64), (64, 8), (512, 2560)])
def test_rows_keep_their_bits_for_every_count_of_tiles(shape: tuple[int, int]) -> None:
    """What `keeps_row_bits` samples at load, here for every number of tiles up to a full batch of 2,048 rows (512 for
    the largest).

    A failure means that this machine's BLAS needs the tile-by-tile form, which is chosen by itself.
    """
    weight = draw(*shape)
    rows = draw(2048, shape[1], seed=1)
    if shape[0] * shape[1] > 400_000:
        rows = rows[:512]
    alone = torch.cat([KERNELS.linear(rows[i : i + ROW_TILE], weight) for i in range(0, len(rows), ROW_TILE)])
    for count in range(ROW_TILE, len(rows) + 1, ROW_TILE):
        start = (count * 37) % (len(rows) - count + 1)  # any offset: rows meet every place of a tile
        assert torch.equal(KERNELS.linear(rows[start : start + count], weight), alone[start : start + count]), count


def test_a_blas_that_mixes_rows_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert keeps_row_bits(draw(80, 64))
    original = torch.mm

    def careless(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Splits the inner dimension when there are many rows, as a library may."""
        half = x.shape[1] // 2
        if len(x) < 100:
            return original(x, weight)
        return original(x[:, :half], weight[:half]) + original(x[:, half:], weight[half:])

    monkeypatch.setattr(torch, "mm", careless)
    assert not keeps_row_bits(draw(80, 64))
    careful = ReferenceKernels.for_model([draw(80, 64)], {16})
    assert careful.name == "reference (cpu, float32, linears tile by tile)"
    assert not careful.merged
    assert careful.narrow


@pytest.mark.parametrize("head_dim", [16, 64, 72, 256, 512])
def test_narrow_query_tiles_have_the_bits_of_wide_ones(head_dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert keeps_query_bits(head_dim)
    original = torch.bmm
    monkeypatch.setattr(torch, "bmm", lambda a, b: original(a, b) * (1 if a.shape[1] == WIDE else 1.0000002))
    assert not keeps_query_bits(head_dim)
    assert not ReferenceKernels.for_model([], {head_dim}).narrow


def test_elementwise_kernels_follow_their_formulas() -> None:
    x, weight = draw(32, 64), draw(64, seed=1)
    expected = x / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight
    assert (KERNELS.rms_norm(x, weight, 1e-6) - expected).abs().max() < 1e-5
    assert torch.equal(KERNELS.norm_add(x, x, weight, 1e-6)[0], x + KERNELS.rms_norm(x, weight, 1e-6))
    gate, up = draw(32, 80, seed=2) * 4, draw(32, 80, seed=3)
    kept = gate.clone()
    assert (KERNELS.geglu(gate, up) - F.gelu(gate, approximate="tanh") * up).abs().max() < 1e-5
    assert torch.equal(gate, kept)


def test_geglu_has_the_same_bits_at_every_offset() -> None:
    gate, up = draw(4096) * 4, draw(4096, seed=1)
    every = KERNELS.geglu(gate, up)
    for start in range(40):
        for length in (1, 5, 8, 31, 1000):
            part = slice(start, start + length)
            assert torch.equal(KERNELS.geglu(gate[part].clone(), up[part].clone()), every[part])


@pytest.mark.parametrize("function", [torch.exp, torch.tanh, torch.cos, torch.sin], ids=lambda f: f.__name__)
def test_library_functions_that_are_relied_on_keep_bits(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    x = draw(50_000) * 5
    every = function(x)
    for start, length in itertools.product((0, 1, 3, 7, 1001), (1, 3, 7, 8, 9, 33, 40_001)):
        assert torch.equal(function(x[start : start + length].clone()), every[start : start + length])


def test_norms_keep_bits_however_many_rows_there_are() -> None:
    for width in (8, 48, 64, 256):
        x = draw(200, 3 * width)[:, width : 2 * width]  # a slice of a stacked linear's output
        every = KERNELS.rms_norm(x, None, 1e-6)
        for start, count in ((0, 1), (17, 2), (3, 100), (50, 150)):
            assert torch.equal(
                KERNELS.rms_norm(x[start : start + count].clone(), None, 1e-6), every[start : start + count]
            )


def test_rope_turns_pairs_across_the_halves() -> None:
    x = draw(5, 2, 8)
    angle = draw(5, 4, seed=1)
    turned = KERNELS.rope(x, angle.cos(), angle.sin())
    as_complex = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones(5, 1, 4), angle[:, None])
    assert torch.allclose(turned, torch.cat((as_complex.real, as_complex.imag), dim=-1), atol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 3, 48, 61, 256])
def test_pair_logits_are_one_fixed_sum(size: int) -> None:
    hidden, labels = draw(7, size), draw(9, size, seed=1)
    found = KERNELS.pair_logits(hidden, labels)
    assert (found - hidden.double() @ labels.double().T).abs().max() < 1e-4
    for row in range(7):
        for label in range(9):
            one = KERNELS.pair_logits(hidden[row : row + 1], labels[label : label + 1])
            assert torch.equal(one[0, 0], found[row, label])


@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 1, 64), (4, 2, 16), (3, 3, 32), (8, 1, 128)])
def test_attention_follows_its_formula(heads: int, kv_heads: int, dim: int) -> None:
    """Three sequences of 1 to 200 positions with a window of 90, against a softmax in float64."""
    random = np.random.default_rng(0)
    pools = LayerKv(draw(kv_heads, 40 * PAGE_SIZE + 1, dim) / math.sqrt(dim), draw(kv_heads, 40 * PAGE_SIZE + 1, dim))
    pages = random.permutation(np.arange(1, 40)).astype(np.int32)
    bt_off: list[int] = []
    hi: list[int] = []
    for offset, length in ((0, 200), (13, 1), (20, 77)):
        bt_off += [offset] * min(length, 50)
        hi += range(length - min(length, 50) + 1, length + 1)
    hi_array = np.asarray(hi, dtype=np.int32)
    rows = VisibleRows(np.maximum(0, hi_array - 90), hi_array, np.asarray(bt_off, dtype=np.int32), pages)
    q = draw(len(hi) + 3, heads, dim, seed=1)
    plan = KERNELS.plan_attention(rows, HeadShape(heads, kv_heads, dim), 40 * PAGE_SIZE)
    found = KERNELS.attend(q, pools, plan)
    assert found.shape == q.shape
    for row in range(len(hi)):
        positions = np.arange(rows.lo[row], rows.hi[row])
        slots = torch.from_numpy(pages[rows.bt_off[row] + positions // PAGE_SIZE] * PAGE_SIZE + positions % PAGE_SIZE)
        for head in range(heads):
            k, v = (pool[head // (heads // kv_heads)][slots].double() for pool in (pools.k, pools.v))
            weights = torch.softmax(k @ q[row, head].double(), dim=0)
            assert (found[row, head] - weights @ v).abs().max() < 1e-5
