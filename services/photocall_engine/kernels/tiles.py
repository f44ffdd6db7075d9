"""The work list of row attention: which query tiles meet which blocks of K/V.

A tile is some rows of one sequence; a block is BLOCK positions at an absolute multiple of
BLOCK, so that a row meets the same blocks in the same order whatever else is in the batch. Blocks that no row of a
tile sees are left out; one that only its neighbours see is wholly masked for a row, which the attention treats as an
exact identity. Plain numpy: no tensors here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from photocall_engine.rows import PAGE_SIZE, Ints

BLOCK = 64  # positions of one K/V block
_MAX_PAIRS = 96  # tile-block pairs of one chunk: what keeps its scores in cache
_PAGES = BLOCK // PAGE_SIZE


@dataclass(frozen=True, slots=True)
class VisibleRows:
    """What each row sees: positions [lo, hi) of the sequence whose page ids start at bt_off in `pages`."""

    lo: Ints  # [R]
    hi: Ints  # [R]
    bt_off: Ints  # [R]
    pages: Ints  # [B] page ids of the pool that the layer reads


@dataclass(frozen=True, slots=True)
class TileChunk:
    """Some tiles and all their pairs. Pairs are ordered by block, then tile: `counts[j]` tiles have a j-th block,
    and they are the first ones, so every step over blocks is a prefix of the tiles."""

    num_tiles: int
    counts: tuple[int, ...]
    pair_tile: NDArray[np.int64]  # [W]
    slots: NDArray[np.int64]  # [W * BLOCK] pool slots; `zero_slot` where no row of the tile sees
    hidden: NDArray[np.bool_]  # [W, rows of a tile, BLOCK] True: this row does not see this position


@dataclass(frozen=True, slots=True)
class TilePlan:
    """All tiles of a set of rows."""

    tile_rows: int
    query_rows: NDArray[np.int64]  # [T * tile_rows] row of each query place; places to spare repeat a row
    place_of_row: NDArray[np.int64]  # [R] the inverse
    chunks: tuple[TileChunk, ...]


def count_tiles(rows: VisibleRows, tile_rows: int) -> int:
    """How many tiles of `tile_rows` rows there would be."""
    _, lengths = np.unique(rows.bt_off, return_counts=True)
    return int((-(-lengths // tile_rows)).sum())


def plan_tiles(rows: VisibleRows, tile_rows: int, zero_slot: int) -> TilePlan:
    """Tiles of up to `tile_rows` rows each, and the blocks they meet."""
    tile_of_row, place = _assign(rows.bt_off, tile_rows)
    num_tiles = int(tile_of_row.max()) + 1
    first_row = np.full(num_tiles, -1, dtype=np.int64)
    first_row[tile_of_row[::-1]] = np.arange(len(tile_of_row) - 1, -1, -1)
    members = np.repeat(first_row[:, None], tile_rows, axis=1)
    members[tile_of_row, place] = np.arange(len(tile_of_row))

    first_block = rows.lo[members].min(axis=1) // BLOCK
    num_blocks = -(-rows.hi[members].max(axis=1) // BLOCK) - first_block
    order = np.argsort(-num_blocks, kind="stable")
    rank = np.empty(num_tiles, dtype=np.int64)
    rank[order] = np.arange(num_tiles)
    members, first_block, num_blocks = members[order], first_block[order], num_blocks[order]
    chunks = tuple(
        _chunk(rows, members[a:b], first_block[a:b], num_blocks[a:b], zero_slot) for a, b in _cuts(num_blocks)
    )
    return TilePlan(tile_rows, members.reshape(-1), rank[tile_of_row] * tile_rows + place, chunks)


def _assign(bt_off: Ints, tile_rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Tile and place in it of every row: rows of one sequence, in the order they stand, `tile_rows` at a time."""
    order = np.argsort(bt_off, kind="stable")
    sequence_starts = np.flatnonzero(np.diff(bt_off[order], prepend=bt_off[order[0]] - 1))
    lengths = np.diff(sequence_starts, append=len(order))
    within = np.arange(len(order)) - np.repeat(sequence_starts, lengths)
    tile_of_row = np.empty(len(order), dtype=np.int64)
    place = np.empty(len(order), dtype=np.int64)
    tile_of_row[order] = np.cumsum(within % tile_rows == 0) - 1
    place[order] = within % tile_rows
    return tile_of_row, place


def _cuts(num_blocks: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Runs of tiles whose pairs fit one chunk; a single tile may exceed it."""
    start, pairs = 0, 0
    for tile, blocks in enumerate(num_blocks.tolist()):
        if tile > start and pairs + blocks > _MAX_PAIRS:
            yield start, tile
            start, pairs = tile, 0
        pairs += blocks
    yield start, len(num_blocks)


def _chunk(
    rows: VisibleRows,
    members: NDArray[np.int64],
    first_block: NDArray[np.int64],
    num_blocks: NDArray[np.int64],
    zero_slot: int,
) -> TileChunk:
    counts = [int(np.count_nonzero(num_blocks > j)) for j in range(int(num_blocks[0]))]
    pair_tile = np.concatenate([np.arange(count) for count in counts])
    block = first_block[pair_tile] + np.repeat(np.arange(len(counts)), counts)
    positions = block[:, None] * BLOCK + np.arange(BLOCK)  # [W, BLOCK]
    lo, hi = rows.lo[members][pair_tile], rows.hi[members][pair_tile]  # [W, tile_rows]
    hidden = (positions[:, None, :] < lo[:, :, None]) | (positions[:, None, :] >= hi[:, :, None])
    entry = rows.bt_off[members[:, 0]][pair_tile][:, None] + block[:, None] * _PAGES + np.arange(_PAGES)
    pages = rows.pages[np.minimum(entry, len(rows.pages) - 1)].astype(np.int64)  # [W, _PAGES]
    slots = (pages[:, :, None] * PAGE_SIZE + np.arange(PAGE_SIZE)).reshape(positions.shape)
    slots[hidden.all(axis=1)] = zero_slot
    return TileChunk(len(members), tuple(counts), pair_tile, slots.reshape(-1), hidden)
