"""Triton's experts against the reference, and a row's bits whatever experts its neighbours chose.

Tolerances: float32, two chained products of up to a few hundred terms of size 1 with weights scaled to keep size 1:
1e-4. bfloat16 rounds after each of the three steps, 2^-9 relative each, on values of size 1: 3e-2.
"""

from __future__ import annotations

import pytest
import torch

from tests.engine.interpreter import DEVICE

# isort: split
from photocall_engine.kernels.reference import ReferenceKernels
from photocall_engine.kernels.triton_experts import experts, plan_experts

COUNT, TOP_K, HIDDEN, WIDTH = 6, 3, 72, 40


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def layer(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    gate_up, down = draw(COUNT, 2 * WIDTH, HIDDEN) / HIDDEN**0.5, draw(COUNT, HIDDEN, WIDTH, seed=1) / WIDTH**0.5
    return gate_up.to(dtype).to(DEVICE), down.to(dtype).to(DEVICE)


def choices(rows: int, *, crowded: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """Experts by falling share; `crowded`: expert 4 is everybody's, so it needs more than one tile."""
    score = draw(rows, COUNT, seed=2)
    if crowded:
        score[:, 4] += 100
    top = torch.softmax(score, dim=1).topk(TOP_K, dim=1)
    return top.indices.to(DEVICE), top.values.to(DEVICE)


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-4), (torch.bfloat16, 3e-2)], ids=str)
@pytest.mark.parametrize(("rows", "crowded"), [(1, False), (5, False), (70, True)])
def test_experts(rows: int, crowded: bool, dtype: torch.dtype, limit: float) -> None:
    x, (expert, share) = draw(rows, HIDDEN, seed=3).to(dtype).to(DEVICE), choices(rows, crowded=crowded)
    gate_up, down = layer(dtype)
    found = experts(x, gate_up, down, expert, share.to(dtype))
    expected = ReferenceKernels(merged=False).experts(
        x.float().cpu(), gate_up.float().cpu(), down.float().cpu(), expert.cpu(), share.to(dtype).float().cpu()
    )
    assert found.dtype == dtype
    assert (found.float().cpu() - expected).abs().max() < limit


def test_a_row_does_not_notice_what_others_chose() -> None:
    x, (expert, share) = draw(70, HIDDEN, seed=3).to(DEVICE), choices(70, crowded=True)
    gate_up, down = layer(torch.float32)
    every = experts(x, gate_up, down, expert, share)
    for start, count in ((0, 1), (69, 1), (30, 7)):
        part = slice(start, start + count)
        assert torch.equal(experts(x[part], gate_up, down, expert[part], share[part]), every[part])
    swapped = experts(x[:2], gate_up, down, expert[:2].flip(1), share[:2].flip(1))
    assert torch.equal(swapped, every[:2])  # added by expert id, in whatever order they are named


def test_every_place_is_in_one_tile() -> None:
    expert, _ = choices(70, crowded=True)
    tiles = plan_experts(expert, COUNT)
    places: list[int] = []
    for owner, start, end in zip(
        tiles.tile_expert.tolist(), tiles.tile_start.tolist(), tiles.tile_end.tolist(), strict=True
    ):
        if owner < COUNT:
            mine = tiles.order[start : min(start + 64, end)].tolist()
            assert all(int(expert.flatten()[place]) == owner for place in mine)
            places += mine
    assert sorted(places) == list(range(70 * TOP_K))
