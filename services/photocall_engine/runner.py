"""ModelRunner: what the scheduler needs from a model, and no more.

Charter: no policy here. A method is added only when a readout or the scheduler cannot be written without it, and then
to the torch runner and the fake alike. Arguments and results are numpy arrays and ints, so that nothing on this side of
the line imports torch. Calls take effect in the order they are made, and arguments belong to the caller again when a
call returns. A step is `set_sliding_map`, `encode_images`, `copy_pages`, `forward`, `read`; none of them waits for a
device. `collect` does, for one step, and the next step may be issued before. The other readouts wait at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from photocall_engine.reads import Reads, Values
from photocall_engine.rows import Ints, RowBatch


@dataclass(frozen=True, slots=True)
class PatchImage:
    """A prepared picture: uint8 patches, row-major over the grid, each (py, px, rgb)."""

    patches: NDArray[np.uint8]  # [grid_height * grid_width, 768]
    grid_height: int
    grid_width: int
    budget: int | None = None  # of soft tokens, and the fidelity it was prepared in, as prep said; None: it did not
    fidelity: str | None = None

    @property
    def num_soft(self) -> int:
        """Soft tokens: one per 3 x 3 block of patches."""
        return self.grid_height * self.grid_width // 9


class DeviceLost(RuntimeError):
    """The device can no longer be used (a CUDA error): the process must end. Anything else fails one step only."""


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What decides the bits of a runner's numbers beside weights and rows; the fields are those of a provenance."""

    numerics: Literal["invariant", "fast"]
    kernels: str
    table_sha256: str
    weights: str
    torch: str | None
    device: str
    threads: int | None


class ModelRunner(Protocol):
    """A model on one device with its two page pools and its soft-token arena."""

    num_pages: int  # pages of the full pool, scratch page 0 included
    sliding_pages: int  # usable pages of the sliding pool, ids 1..sliding_pages; 0: no sliding layers
    sliding_window: int  # positions a sliding layer sees, the row itself included; 0: no sliding layers
    bidirectional_images: bool  # picture rows see to the end of their picture on sliding layers
    max_rows: int  # rows of one forward
    soft_capacity: int  # rows of the soft-token arena
    context: int  # longest sequence the model takes
    page_bytes: int  # K/V of one page of the full pool, and of the sliding pool
    sliding_page_bytes: int
    overlaps: bool  # `forward` returns while the device still works: there is time to plan the next step
    backend: str  # where it runs, for people: `CPU (float32)`, `GPU (<device>, <MB> MB VRAM)`
    arithmetic: Arithmetic

    def encode_images(self, images: Sequence[PatchImage], bases: Sequence[int]) -> None:
        """Run the vision tower; soft token i of image j lands in arena row bases[j] + i."""

    def set_sliding_map(self, pages: Ints, sliding: Ints) -> None:
        """smap[pages] = sliding, before the next forward; each page once. 0 unmaps."""

    def copy_pages(self, src: Ints, dst: Ints) -> None:
        """Copy full-pool pages src[i] -> dst[i], and their sliding pages by the map as it is now set."""

    def forward(self, batch: RowBatch) -> None:
        """Append K/V of all rows; keep the final hidden state of `batch.read` for the readout calls below.

        Rows in `batch.from_row` take their tokens from what the last `read` picked.
        """

    def read(self, reads: Reads) -> object:
        """Issue everything that is read of the last forward, once; what it gives, `collect` wants. At most two are
        under way at any time, and one that is never collected costs nothing."""

    def collect(self, reading: object) -> Values:
        """Wait for what a `read` asked for, and for nothing behind it."""

    def logits_rows(self, rows: Ints) -> NDArray[np.float32]:
        """[n, vocabulary] softcapped float32 logits of read rows."""

    def argmax_rows(self, rows: Ints, exclude: Sequence[Sequence[int]]) -> Ints:
        """[n] greedy token of read rows, never one of exclude[i] (at most 3); ties to the lowest id."""

    def may_say(self, allowed: NDArray[np.bool_]) -> None:
        """The token ids that greedy reads choose from, ties to the lowest, log probabilities among those that may be
        said; ids beyond are left out. Once, before the first forward."""

    def enable_graphs(self) -> bool:
        """Capture graphs once, before serving; False where unsupported, with a notice in the log saying why."""

    def sync(self) -> None:
        """Wait for everything issued so far."""
