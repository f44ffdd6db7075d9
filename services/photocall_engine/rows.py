"""RowBatch: what one forward of the decoder runs.

A row is one token of one sequence at one position; a batch mixes prompt, picture and decode rows of any number of
requests. Plain numpy arrays, built by the scheduler, read by the runner. Padding is the runner's own affair; page 0 of
both pools is scratch for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

PAGE_SIZE = 16
Ints: TypeAlias = NDArray[np.int32]


def ints(values: Iterable[int]) -> Ints:
    """As a batch wants them."""
    return np.asarray(list(values), dtype=np.int32)


@dataclass(frozen=True, slots=True)
class RowBatch:
    """One forward. R rows, Q read rows, E extra writes, B block table entries.

    Slots are `page * PAGE_SIZE + offset` in the full pool; the runner finds the sliding pool's slot through the
    sliding map. K/V of all rows are written before any row of the same layer attends. The token of a row may be known
    on the device only: what `tokens` says of the rows in `from_row` means nothing.
    """

    tokens: Ints  # [R] token id; picture rows hold the placeholder (the model looks up the pad id there)
    pos: Ints  # [R] position in its sequence
    slot: Ints  # [R] where K/V go in the full pool
    bt_off: Ints  # [R] offset of the sequence's block table in block_tables
    kv_hi: Ints  # [R] full layers see positions [0, kv_hi)
    kv_hi_sliding: Ints  # [R] sliding layers see [max(0, pos - window + 1), kv_hi_sliding)
    block_tables: Ints  # [B] page ids of all sequences, one after another
    extra_row: Ints  # [E] rows whose K/V are also written ...
    extra_slot: Ints  # [E] ... to these slots (private tail pages of branches)
    soft_idx: Ints  # [R] row of the soft-token arena that replaces the embedding, or -1
    read: Ints  # [Q] rows whose output is read, ascending
    decode: bool  # every row is the last of its sequence, and read
    from_row: Ints = field(default_factory=lambda: ints(()))  # rows whose token the last `read` picked ...
    from_pick: Ints = field(default_factory=lambda: ints(()))  # ... as the how manieth of its greedy rows

    @property
    def num_rows(self) -> int:
        """R."""
        return len(self.tokens)
