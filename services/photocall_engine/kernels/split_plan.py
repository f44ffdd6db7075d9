"""The work list of split row attention: items of a few rows and one range of positions, and who adds up their parts.

Positions are cut into splits at absolute multiples of `split`, so a row's parts depend on what it sees and on nothing
else. An item holds up to `tile_rows` rows that read the same pages; rows of several sequences share an item only in a
split whose pages are the same for all of them (branches on one prefix). Plain numpy: no tensors here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from photocall_engine.kernels.tiles import VisibleRows
from photocall_engine.rows import PAGE_SIZE, Ints


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """Items, longest first. A row seen by one item is finished there; one with several parts is in `combine`."""

    tile_rows: int
    items: Ints  # [I, 3] offset of the block table, first position, end of positions
    place_row: Ints  # [I, tile_rows] row of each place, -1: nobody
    place_part: Ints  # [I, tile_rows] where the row's part goes, -1: the row is finished here
    combine: Ints  # [C, 3] row, its first part, number of parts (ascending positions)
    num_parts: int


@dataclass(slots=True)
class _Item:
    bt_off: int
    first: int
    end: int
    rows: NDArray[np.int64]
    split: int  # -1: the item covers all that its rows see


def plan_splits(rows: VisibleRows, tile_rows: int, split: int, *, whole: bool) -> SplitPlan:
    """Items of one split each, or with `whole` items that walk all splits of their rows.

    Both give a row the same bits: `whole` suits many rows, single splits few rows of long sequences.
    """
    order = np.lexsort((rows.hi, rows.lo, rows.bt_off))
    if whole:
        found = [
            _item(rows, members, -1, split)
            for sequence in _sequences(rows, order)
            for members in _tiles(rows, sequence, tile_rows)
        ]
    else:
        found = [
            item for index in _splits(rows, split) for item in _items_of_split(rows, order, index, tile_rows, split)
        ]
    found.sort(key=lambda item: item.first - item.end)
    first_split = rows.lo // split
    num_splits = (rows.hi - 1) // split - first_split + 1
    parts = np.where((num_splits > 1) & (not whole), num_splits, 0)
    first_part = np.cumsum(parts) - parts
    place_row = np.full((len(found), tile_rows), -1, dtype=np.int32)
    place_part = np.full((len(found), tile_rows), -1, dtype=np.int32)
    for place, item in enumerate(found):
        count = len(item.rows)
        place_row[place, :count] = item.rows
        if item.split >= 0:
            part = first_part[item.rows] + item.split - first_split[item.rows]
            place_part[place, :count] = np.where(parts[item.rows] > 0, part, -1)
    split_rows = np.flatnonzero(parts)
    return SplitPlan(
        tile_rows=tile_rows,
        items=np.array([(i.bt_off, i.first, i.end) for i in found], dtype=np.int32).reshape(-1, 3),
        place_row=place_row,
        place_part=place_part,
        combine=np.stack((split_rows, first_part[split_rows], parts[split_rows]), axis=1).astype(np.int32),
        num_parts=int(parts.sum()),
    )


def _splits(rows: VisibleRows, split: int) -> range:
    return range(int(rows.lo.min()) // split, -(-int(rows.hi.max()) // split))


def _items_of_split(
    rows: VisibleRows, order: NDArray[np.int64], index: int, tile_rows: int, split: int
) -> Iterator[_Item]:
    """Rows that see a split, put together where their pages in it are the same."""
    start, stop = index * split, (index + 1) * split
    seen = order[(rows.lo[order] < stop) & (rows.hi[order] > start)]
    together: dict[bytes, list[NDArray[np.int64]]] = {}
    for sequence in _sequences(rows, seen):
        base = int(rows.bt_off[sequence[0]])
        last = (min(int(rows.hi[sequence].max()), stop) - 1) // PAGE_SIZE
        pages = rows.pages[base + start // PAGE_SIZE : base + last + 1]
        together.setdefault(pages.tobytes(), []).append(sequence)
    for sequences in together.values():
        members = np.concatenate(sequences)
        if len(sequences) > 1:
            members = members[np.lexsort((rows.hi[members], rows.lo[members]))]
        for tile in _tiles(rows, members, tile_rows):
            yield _item(rows, tile, index, split)


def _sequences(rows: VisibleRows, order: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """`order` cut where the block table changes."""
    if not len(order):
        return []
    return np.split(order, np.flatnonzero(np.diff(rows.bt_off[order])) + 1)


def _tiles(rows: VisibleRows, members: NDArray[np.int64], tile_rows: int) -> Iterator[NDArray[np.int64]]:
    """At most `tile_rows` rows each, sorted by where they begin to see, and no position between that nobody sees:
    such a position may lie on a page that was given back."""
    start, end = 0, int(rows.hi[members[0]])
    for place in range(1, len(members)):
        row = members[place]
        if place - start == tile_rows or rows.lo[row] > end:
            yield members[start:place]
            start, end = place, int(rows.hi[row])
        end = max(end, int(rows.hi[row]))
    yield members[start:]


def _item(rows: VisibleRows, members: NDArray[np.int64], index: int, split: int) -> _Item:
    first, end = int(rows.lo[members].min()), int(rows.hi[members].max())
    if index >= 0:
        first, end = max(first, index * split), min(end, (index + 1) * split)
    return _Item(int(rows.bt_off[members[0]]), first, end, members, index)
