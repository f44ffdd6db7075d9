"""Asked: what each reader of a step asked for, put together for the runner, and taken apart again when it is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from photocall_engine.readout import Floats, Greedy, Letters, Logits, Read
from photocall_engine.reads import Reads, Values
from photocall_engine.rows import ints


class Asked:
    """Of readers in the order of the batch's read rows; `reads` is for the runner."""

    def __init__(self, asked: Sequence[Read]) -> None:
        self._asked = asked
        rows: dict[type[Read], list[int]] = {Letters: [], Greedy: [], Logits: []}
        for row, read in enumerate(asked):
            rows[type(read)].append(row)
        sets = {read.ids for read in asked if isinstance(read, Letters)}
        labels = sorted({label for ids in sets for label in ids})
        column = {label: i for i, label in enumerate(labels)}
        self._columns = {ids: [column[label] for label in ids] for ids in sets}
        self.reads = Reads(ints(rows[Letters]), ints(labels), ints(rows[Greedy]), ints(rows[Logits]))

    def apart(self, values: Values) -> Iterator[Floats]:
        """Each reader's part, in their order: its letters, [token, log probability], or a row of logits."""
        letters, whole = iter(values.letters), iter(values.whole)
        said = iter(np.stack((values.tokens, values.logprobs), axis=1, dtype=np.float32, casting="same_kind"))
        for read in self._asked:
            if isinstance(read, Letters):
                yield next(letters)[self._columns[read.ids]]
            else:
                yield next(said if isinstance(read, Greedy) else whole)
