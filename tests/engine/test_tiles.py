"""The work list of row attention against what each row says it sees."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from photocall_engine.kernels.tiles import BLOCK, TilePlan, VisibleRows, count_tiles, plan_tiles
from photocall_engine.rows import PAGE_SIZE

ZERO_SLOT = 10**6


@st.composite
def visible_rows(draw: st.DrawFn) -> VisibleRows:
    """Rows of up to four sequences, mixed, each with its own pages."""
    lo: list[int] = []
    hi: list[int] = []
    bt_off: list[int] = []
    pages: list[int] = []
    for _ in range(draw(st.integers(1, 4))):
        offset, start = len(pages), draw(st.integers(0, 300))
        count = draw(st.integers(1, 40))
        window = draw(st.sampled_from([10, 70, 1000]))
        ahead = draw(st.integers(1, 30))
        for pos in range(start, start + count):
            lo.append(max(0, pos - window + 1))
            hi.append(min(pos + ahead, start + count + 30))
            bt_off.append(offset)
        pages += range(offset + 1, offset + 2 + max(hi) // PAGE_SIZE)
    order = draw(st.permutations(range(len(lo))))
    return VisibleRows(*(np.asarray(part, dtype=np.int32) for part in (*_pick(order, lo, hi, bt_off), pages)))


def _pick(order: list[int], *columns: list[int]) -> list[list[int]]:
    return [[column[i] for i in order] for column in columns]


def seen_slots(plan: TilePlan) -> dict[int, list[int]]:
    """Row -> pool slots it attends to, in the order in which they are summed."""
    seen: dict[int, list[int]] = {}
    tiles = plan.query_rows.reshape(-1, plan.tile_rows)
    first = 0
    for chunk in plan.chunks:
        slots = chunk.slots.reshape(-1, BLOCK)
        for pair, tile in enumerate(chunk.pair_tile):
            for place, row in enumerate(tiles[first + tile]):
                if plan.place_of_row[row] == (first + tile) * plan.tile_rows + place:
                    seen.setdefault(int(row), []).extend(slots[pair][~chunk.hidden[pair, place]].tolist())
        first += chunk.num_tiles
    return seen


@settings(max_examples=60, deadline=None)
@given(visible_rows(), st.sampled_from([1, 4, 16, 64]))
def test_every_row_sees_exactly_its_positions_in_order(rows: VisibleRows, tile_rows: int) -> None:
    plan = plan_tiles(rows, tile_rows, ZERO_SLOT)
    seen = seen_slots(plan)
    assert count_tiles(rows, tile_rows) * tile_rows == len(plan.query_rows)
    assert sorted(seen) == list(range(len(rows.lo)))
    for row, slots in seen.items():
        positions = np.arange(rows.lo[row], rows.hi[row])
        pages = rows.pages[rows.bt_off[row] + positions // PAGE_SIZE]
        assert slots == (pages * PAGE_SIZE + positions % PAGE_SIZE).tolist()


@settings(max_examples=60, deadline=None)
@given(visible_rows(), st.sampled_from([4, 16]))
def test_no_slot_is_read_that_nobody_in_the_tile_sees(rows: VisibleRows, tile_rows: int) -> None:
    for chunk in plan_tiles(rows, tile_rows, ZERO_SLOT).chunks:
        slots = chunk.slots.reshape(-1, BLOCK)
        assert (slots[chunk.hidden.all(axis=1)] == ZERO_SLOT).all()
        assert (slots[~chunk.hidden.all(axis=1)] != ZERO_SLOT).all()


@settings(max_examples=60, deadline=None)
@given(visible_rows())
def test_steps_over_blocks_are_prefixes_of_the_tiles(rows: VisibleRows) -> None:
    for chunk in plan_tiles(rows, 4, ZERO_SLOT).chunks:
        assert chunk.counts[0] == chunk.num_tiles
        assert list(chunk.counts) == sorted(chunk.counts, reverse=True)
        assert chunk.pair_tile.tolist() == [tile for count in chunk.counts for tile in range(count)]


def test_a_tile_never_mixes_sequences() -> None:
    lo, hi = np.zeros(40, dtype=np.int32), np.ones(40, dtype=np.int32)
    bt_off = np.asarray([0, 7] * 20, dtype=np.int32)
    plan = plan_tiles(VisibleRows(lo, hi, bt_off, np.arange(1, 20, dtype=np.int32)), 16, ZERO_SLOT)
    tiles = plan.query_rows.reshape(-1, plan.tile_rows)
    assert len(tiles) == 4
    assert all(len(set(bt_off[tile].tolist())) == 1 for tile in tiles)
