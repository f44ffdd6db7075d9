"""The work list of split row attention: items of a few rows and one range of positions, and who adds up their parts.

Positions are cut into splits at absolute multiples of `split`, so a row's parts depend on what it sees and on nothing
else. An item holds up to `tile_rows` rows that read the same pages; rows of several sequences share an item only in a
split whose pages are the same for all of them (branches on one prefix). Plain numpy, made for every step: nothing here
loops over rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from photocall_engine.kernels.tiles import VisibleRows
from photocall_engine.rows import PAGE_SIZE, Ints

_FAR = np.int64(1) << 32  # beyond every position


@dataclass(frozen=True, slots=True)
class SplitPlan:
    """Items, longest first. A row seen by one item is finished there; one with several parts is in `combine`."""

    tile_rows: int
    items: Ints  # [I, 3] offset of the block table, first position, end of positions
    place_row: Ints  # [I, tile_rows] row of each place, -1: nobody
    place_part: Ints  # [I, tile_rows] where the row's part goes, -1: the row is finished here
    combine: Ints  # [C, 3] row, its first part, number of parts (ascending positions)
    num_parts: int


def plan_splits(rows: VisibleRows, tile_rows: int, split: int, *, whole: bool) -> SplitPlan:
    """Items of one split each, or with `whole` items that walk all splits of their rows.

    Both give a row the same bits: `whole` suits many rows, single splits few rows of long sequences.
    """
    num_rows = len(rows.lo)
    first_split = rows.lo // split
    num_splits = (rows.hi - 1) // split - first_split + 1
    if whole:
        parts = np.zeros(num_rows, dtype=np.int32)
        row, lo, hi = np.arange(num_rows), rows.lo, rows.hi
        group: NDArray[np.integer] = rows.bt_off
    else:
        parts = np.where(num_splits > 1, num_splits, 0)
        row = np.repeat(np.arange(num_rows), num_splits)
        index = np.arange(len(row)) - np.repeat(np.cumsum(num_splits) - num_splits, num_splits) + first_split[row]
        lo, hi = np.maximum(rows.lo[row], index * split), np.minimum(rows.hi[row], (index + 1) * split)
        group = _same_pages(rows, row, index, split)
    first_part = np.cumsum(parts) - parts

    order = np.lexsort((hi, lo, group))
    row, lo, hi = row[order], lo[order], hi[order]
    item, place, starts = _tiles(group[order], lo, hi, tile_rows)
    first, end = lo[starts], np.maximum.reduceat(hi, starts)
    longest = np.argsort(first - end, kind="stable")
    rank = np.empty(len(starts), dtype=np.int64)
    rank[longest] = np.arange(len(starts))
    place_row = np.full((len(starts), tile_rows), -1, dtype=np.int32)
    place_part = np.full((len(starts), tile_rows), -1, dtype=np.int32)
    place_row[rank[item], place] = row
    if not whole:
        part = first_part[row] + index[order] - first_split[row]
        place_part[rank[item], place] = np.where(parts[row] > 0, part, -1)
    split_rows = np.flatnonzero(parts)
    return SplitPlan(
        tile_rows=tile_rows,
        items=np.stack((rows.bt_off[row[starts]], first, end), axis=1).astype(np.int32)[longest],
        place_row=place_row,
        place_part=place_part,
        combine=np.stack((split_rows, first_part[split_rows], parts[split_rows]), axis=1).astype(np.int32),
        num_parts=int(parts.sum()),
    )


def count_parts(rows: VisibleRows, split: int) -> tuple[int, int]:
    """How many rows see several splits, and how many parts single splits would leave."""
    num_splits = (rows.hi - 1) // split - rows.lo // split + 1
    long = num_splits > 1
    return int(np.count_nonzero(long)), int(num_splits[long].sum())


def _same_pages(
    rows: VisibleRows, row: NDArray[np.int64], index: NDArray[np.integer], split: int
) -> NDArray[np.integer]:
    """For each (row, split): a number that it shares with those that read the same pages there.

    Sequences are compared up to the last page that any of their rows sees in the split.
    """
    key = rows.bt_off[row] + index * _FAR
    held = np.sort(rows.pages[rows.pages > 0])
    if not (held[1:] == held[:-1]).any():
        return key  # no page stands in two tables
    found, member = np.unique(key, return_inverse=True)
    bt_off, of_split = found % _FAR, found // _FAR
    end = np.zeros(len(found), dtype=np.int64)
    np.maximum.at(end, member, np.minimum(rows.hi[row], (index + 1) * split))
    entry = (bt_off + of_split * (split // PAGE_SIZE))[:, None] + np.arange(split // PAGE_SIZE)
    beyond = entry >= (bt_off + (end - 1) // PAGE_SIZE + 1)[:, None]
    read = rows.pages[np.minimum(entry, len(rows.pages) - 1)]  # [pair, pages of a split]
    read[beyond] = -1
    keys = np.column_stack((of_split, read))
    order = np.lexsort(keys.T)
    fresh = (keys[order[1:]] != keys[order[:-1]]).any(axis=1)
    number = np.zeros(len(found), dtype=np.int64)
    number[order[1:]] = np.cumsum(fresh)
    return number[member]


def _tiles(
    group: NDArray[np.integer], lo: Ints, hi: Ints, tile_rows: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(tile of each entry, place in it, first entry of each tile) for entries sorted by group, then `lo`.

    At most `tile_rows` entries of one group, and no position between them that nobody of the group sees: such a
    position may lie on a page that was given back.
    """
    at = np.arange(len(group))
    fresh = np.empty(len(group), dtype=bool)
    fresh[0] = True
    np.not_equal(group[1:], group[:-1], out=fresh[1:])
    far = np.cumsum(fresh) * _FAR  # so that the highest end so far starts anew with each group
    seen = np.maximum.accumulate(hi + far)
    fresh[1:] |= lo[1:] + far[1:] > seen[:-1]
    within = at - np.maximum.accumulate(np.where(fresh, at, 0))
    place = within % tile_rows
    starts = np.flatnonzero(place == 0)
    return np.cumsum(place == 0) - 1, place, starts
