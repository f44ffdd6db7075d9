"""Triton's row attention against the reference, and the bits of a row alone, among others, split and folded.

Tolerances: float32 differs from the reference in the order of a few hundred additions of terms of size 1, so 2e-5 is
some ten times what was seen; bfloat16 rounds each weight and the result to 8 bits (2^-9 relative each), so 2e-2 on
values of size 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.engine.interpreter import DEVICE

# isort: split
from photocall_engine.kernels import HEADER, HeadShape
from photocall_engine.kernels.reference import ReferenceKernels
from photocall_engine.kernels.split_plan import SplitPlan, plan_splits
from photocall_engine.kernels.tiles import VisibleRows
from photocall_engine.kernels.triton_attention import (
    FEW_ROWS,
    AttentionParts,
    AttentionTile,
    attend,
    lay,
    plan_rows,
    rows_of_tile,
    tile_for,
)
from photocall_engine.kv_pools import LayerKv
from photocall_engine.rows import PAGE_SIZE
from photocall_engine.words import Words

NUM_PAGES = 60
SMALL = AttentionTile(32, 32, 256, warps=4, stages=2)  # several blocks in a short sequence
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def pool(kv_heads: int, dim: int, dtype: torch.dtype = torch.float32) -> LayerKv:
    shape = (kv_heads, NUM_PAGES * PAGE_SIZE + 1, dim)
    kv = LayerKv((draw(*shape) / dim**0.5).to(dtype), draw(*shape, seed=1).to(dtype))
    kv.k[:, -1], kv.v[:, -1] = 0, 0
    return kv


def to_device(kv: LayerKv) -> LayerKv:
    return LayerKv(kv.k.to(DEVICE), kv.v.to(DEVICE))


def mixed_rows(window: int = 40) -> VisibleRows:
    """A prompt with a picture whose rows see its end, a decode row, and two branches on one prefix of 64 positions."""
    pages = np.random.default_rng(0).permutation(np.arange(1, NUM_PAGES)).astype(np.int32)
    branch = pages[20:26].copy()
    branch[4:] = pages[30:32]  # the same prefix, its own tail
    table = np.concatenate((pages[:8], pages[8:15], pages[20:26], branch))
    rows: list[tuple[int, int, int]] = []
    for p in range(58, 68):
        rows.append((p, 66 if 60 <= p < 66 else p + 1, 0))
    rows.append((99, 100, 8))
    for offset in (15, 21):
        rows += [(p, p + 1, offset) for p in (64, 65, 70)]
    position, hi, offset = np.array(rows, dtype=np.int32).T.copy()
    return VisibleRows(np.maximum(0, position - window + 1).astype(np.int32), hi, offset, table)


def run(
    q: torch.Tensor, kv: LayerKv, rows: VisibleRows, tile: AttentionTile = SMALL, *, whole: bool = False,
    programs: int = 3, room: int = 0,
) -> tuple[torch.Tensor, SplitPlan]:  # fmt: skip
    """What the kernels make of it, in a poisoned output."""
    heads, dim = q.shape[1:]
    kv_heads = kv.k.shape[0]
    plan = plan_splits(rows, rows_of_tile(tile, heads, kv_heads), tile.block_n, whole=whole)
    parts = AttentionParts.allocate(torch.device(DEVICE), plan.num_parts + room, heads, dim)
    parts.sum.fill_(torch.nan)
    parts.norm.fill_(torch.nan)
    words = Words(torch.device(DEVICE), 64)
    words.begin()
    words.reserve(room)
    laid = lay(rows, plan, words, words.reserve(HEADER), parts, tile)
    words.send()
    out = torch.full(q.shape, torch.nan, dtype=q.dtype, device=DEVICE)
    attend(q.to(DEVICE), to_device(kv), laid, out, programs)
    return out.cpu(), plan


def pick(rows: VisibleRows, chosen: NDArray[Any]) -> VisibleRows:
    return VisibleRows(rows.lo[chosen], rows.hi[chosen], rows.bt_off[chosen], rows.pages)


def expected(q: torch.Tensor, kv: LayerKv, rows: VisibleRows) -> torch.Tensor:
    reference = ReferenceKernels(narrow=False)
    shape = HeadShape(q.shape[1], kv.k.shape[0], q.shape[2])
    plan = reference.plan_attention(rows, shape, NUM_PAGES * PAGE_SIZE)
    return reference.attend(q.float(), LayerKv(kv.k.float(), kv.v.float()), plan)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim"), [(4, 1, 64), (4, 2, 128), (8, 2, 256), (2, 1, 512), (2, 2, 72), (3, 1, 64)]
)
def test_mixed_rows_match_the_reference(heads: int, kv_heads: int, dim: int, dtype: torch.dtype) -> None:
    rows, kv = mixed_rows(), pool(kv_heads, dim, dtype)
    q = draw(len(rows.lo), heads, dim, seed=2).to(dtype)
    found, _ = run(q, kv, rows)
    assert (found.float() - expected(q, kv, rows)).abs().max() < TOLERANCE[dtype]


@pytest.mark.parametrize("dim", [64, 256, 512])
def test_the_tiles_meant_for_the_gpu_match_too(dim: int) -> None:
    rows, kv = mixed_rows(), pool(2, dim, torch.bfloat16)
    q = draw(len(rows.lo), 8, dim, seed=2).to(torch.bfloat16)
    found, _ = run(q, kv, rows, tile_for(dim))
    assert (found.float() - expected(q, kv, rows)).abs().max() < TOLERANCE[torch.bfloat16]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_row_has_one_result(dtype: torch.dtype) -> None:
    """Alone, among others, in another order, folded in one program or combined from parts, whoever computes it, and
    elsewhere in the words: the same bits."""
    rows, kv = mixed_rows(window=70), pool(1, 64, dtype)
    q = draw(len(rows.lo), 4, 64, seed=2).to(dtype)
    every, plan = run(q, kv, rows)
    assert plan.num_parts > len(rows.lo)
    folded, whole_plan = run(q, kv, rows, whole=True)
    assert whole_plan.num_parts == 0
    assert torch.equal(folded, every)
    shared, _ = run(q, kv, rows, replace(SMALL, columns=32))
    assert torch.equal(shared, every)
    roomy, _ = run(q, kv, rows, programs=1, room=9)
    assert torch.equal(roomy, every)
    order = np.random.default_rng(3).permutation(len(rows.lo))
    shuffled, _ = run(q[torch.from_numpy(order)], kv, pick(rows, order))
    assert torch.equal(shuffled, every[torch.from_numpy(order)])
    for row in (0, 3, 16):
        alone, _ = run(q[row : row + 1], kv, pick(rows, np.array([row])))
        assert torch.equal(alone[0], every[row]), row


def test_what_nobody_sees_is_never_read_into_a_sum() -> None:
    """Every slot outside what rows see holds NaN, in pages that the tables name as well."""
    rows, kv = mixed_rows(), pool(1, 64)
    q = draw(len(rows.lo), 4, 64, seed=2)
    clean, _ = run(q, kv, rows)
    seen = torch.zeros(kv.k.shape[1], dtype=torch.bool)
    for lo, hi, offset in zip(rows.lo, rows.hi, rows.bt_off, strict=True):
        positions = np.arange(lo, hi)
        seen[torch.from_numpy(rows.pages[offset + positions // PAGE_SIZE] * PAGE_SIZE + positions % PAGE_SIZE)] = True
    kv.k[:, ~seen], kv.v[:, ~seen] = torch.nan, torch.nan
    for whole in (False, True):
        assert torch.equal(run(q, kv, rows, whole=whole)[0], clean)


def test_distant_rows_of_a_sequence_do_not_read_what_lies_between() -> None:
    """Read rows at 30 and 100 with a window of 16: the pages between may have been given back."""
    hi = np.array([31, 101], dtype=np.int32)
    rows = VisibleRows((hi - 16).astype(np.int32), hi, np.zeros(2, dtype=np.int32), np.arange(1, 8, dtype=np.int32))
    kv = pool(1, 64)
    kv.v[:, 48:96] = torch.nan  # positions 32 to 79
    q = draw(2, 4, 64)
    for whole in (False, True):
        found, plan = run(q, kv, rows, whole=whole)
        assert len(plan.items) >= 2
        assert torch.isfinite(found).all()


def test_branches_share_items_only_where_their_pages_are_the_same() -> None:
    rows = mixed_rows(window=100)
    plan = plan_splits(rows, 16, 32, whole=False)
    branches = [set(place[place >= 11].tolist()) for place in plan.place_row]
    shared = [(item[1], item[2]) for item, members in zip(plan.items, branches, strict=True) if len(members) == 6]
    assert sorted(shared) == [(0, 32), (32, 64)]
    assert sorted(tuple(sorted(m)) for m in branches if 0 < len(m) < 6) == [(11, 12, 13), (14, 15, 16)]


def test_items_cover_what_each_row_sees_once() -> None:
    rows = mixed_rows(window=70)
    for whole in (False, True):
        plan = plan_splits(rows, 4, 32, whole=whole)
        covered = np.zeros((len(rows.lo), 200), dtype=int)
        for (_, first, end), place in zip(plan.items, plan.place_row, strict=True):
            for row in place[place >= 0]:
                covered[row, max(first, rows.lo[row]) : min(end, rows.hi[row])] += 1
        for row in range(len(rows.lo)):
            assert (covered[row, rows.lo[row] : rows.hi[row]] == 1).all()
        parts = plan.place_part[plan.place_part >= 0]
        assert sorted(parts.tolist()) == list(range(plan.num_parts))


@pytest.mark.parametrize(("room", "copies"), [(200, 1), (3, 1), (200, 4)])
def test_a_plan_for_many_rows_or_little_room_has_no_parts(room: int, copies: int) -> None:
    """Its rows have the bits of split ones, and where their number says so there is nothing left to combine."""
    rows, kv = mixed_rows(window=70), pool(2, 64)
    rows = pick(rows, np.tile(np.arange(len(rows.lo)), copies))
    q = draw(len(rows.lo), 4, 64, seed=2)
    parts = AttentionParts.allocate(torch.device(DEVICE), room, 4, 64)
    words = Words(torch.device(DEVICE), 64)
    words.begin()
    plan = plan_rows(rows, HeadShape(4, 2, 64), SMALL, words, words.reserve(HEADER), parts)
    words.send()
    assert plan.combines == (len(rows.lo) <= FEW_ROWS) == (copies == 1)
    out = torch.full(q.shape, torch.nan, device=DEVICE)
    parts.sum.fill_(torch.nan)
    attend(q.to(DEVICE), to_device(kv), plan, out, 3)
    assert torch.equal(out.cpu(), run(q, kv, rows)[0])
    assert bool(parts.sum.isnan().all()) == (room == 3 or copies == 4)


def test_parts_that_do_not_fit_are_refused() -> None:
    rows = mixed_rows()
    plan = plan_splits(rows, 4, 32, whole=False)
    parts = AttentionParts.allocate(torch.device(DEVICE), 3, 4, 64)
    words = Words(torch.device(DEVICE), 64)
    words.begin()
    with pytest.raises(ValueError, match=f"{plan.num_parts} parts in room for 3"):
        lay(rows, plan, words, words.reserve(HEADER), parts, SMALL)
