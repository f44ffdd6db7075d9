"""Reads: what is asked of the read rows of one forward, and what comes back. No readers, no devices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from photocall_engine.rows import Ints


@dataclass(frozen=True, slots=True)
class Reads:
    """Everything that one step reads. Rows index the batch's `read`, ascending."""

    letters: Ints  # rows whose letters are read ...
    label_ids: Ints  # ... these ids of the head, the same for all of them
    greedy: Ints  # rows whose likeliest token is read; the next batch may take it, see RowBatch.from_pick
    whole: Ints  # rows of which every logit is read


@dataclass(frozen=True, slots=True)
class Values:
    """What came of `Reads`, in its order. Softcapped float32."""

    letters: NDArray[np.float32]  # [letters, label_ids]
    tokens: Ints  # [greedy] likeliest token that may be said
    logprobs: NDArray[np.float32]  # [greedy] its log probability; NaN where a logit is
    whole: NDArray[np.float32]  # [whole, vocabulary]

    @property
    def finite(self) -> bool:
        """Whether all of it are numbers."""
        return all(bool(np.isfinite(part).all()) for part in (self.letters, self.logprobs, self.whole))
