"""The likeliest token of a row of logits and its log probability, in plain numpy: what kernels are compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from photocall_engine.rows import Ints


def pick_rows(logits: NDArray[np.float32], allowed: NDArray[np.bool_]) -> tuple[Ints, NDArray[np.float32]]:
    """From logits [n, V] to (token, log probability) [n] among the ids with `allowed`; ids beyond it are not.

    Ties go to the lowest id. A row that holds NaN gets a log probability of NaN. Row by row, in float64.
    """
    tokens = np.zeros(len(logits), dtype=np.int32)
    logprobs = np.zeros(len(logits), dtype=np.float32)
    for row, values in enumerate(logits):
        said = values[: len(allowed)].astype(np.float64)
        said[~allowed[: len(said)]] = -np.inf
        tokens[row] = said.argmax()  # the first of equals, and the first NaN
        top = said[tokens[row]]
        logprobs[row] = -np.log(np.exp(said - top).sum())
    return tokens, logprobs
