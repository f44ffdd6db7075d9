"""Asked: what each reader of a step asked for, put together for the runner, and taken apart again when it is there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from photocall_engine.reading import Floats, Greedy, Letters, Logits, Read
from photocall_engine.reads import Reads, Values
from photocall_engine.rows import ints


class Asked:
    """Of readers in the order of the batch's read rows; `reads` is for the runner."""

    def __init__(self, asked: Sequence[Read]) -> None:
        self._asked = asked
        rows: dict[type[Read], list[int]] = {Letters: [], Greedy: [], Logits: []}
        for row, read in enumerate(asked):
            rows[type(read)].append(row)
            if isinstance(read, Letters) and read.whole:
                rows[Logits].append(row)
        sets = {read.ids for read in asked if isinstance(read, Letters)}
        labels = sorted({label for ids in sets for label in ids})
        column = {label: i for i, label in enumerate(labels)}
        self._columns = {ids: [column[label] for label in ids] for ids in sets}
        self.reads = Reads(ints(rows[Letters]), ints(labels), ints(rows[Greedy]), ints(rows[Logits]))

    def apart(self, values: Values) -> Iterator[Floats]:
        """Each reader's part, in their order: its letters, [token, log probability], or a row of logits.

        Letters with `whole` are the same bits as without, for they are read apart from the sum behind them.
        """
        letters, whole = iter(values.letters), iter(values.whole)
        said = iter(np.stack((values.tokens, values.logprobs), axis=1, dtype=np.float32, casting="same_kind"))
        for read in self._asked:
            if isinstance(read, Letters):
                found = next(letters)[self._columns[read.ids]]
                yield np.append(found, _log_sum(next(whole))) if read.whole else found
            else:
                yield next(said if isinstance(read, Greedy) else whole)


def _log_sum(logits: Floats) -> np.float32:
    """log(sum(exp(logits))), in float64 until the end."""
    values = logits.astype(np.float64)
    top = values.max()
    return np.float32(top + np.log(np.exp(values - top).sum()))
