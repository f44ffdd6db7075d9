"""A picture file that is open: its header is read and within the limits, and none of its pixels are decoded yet.

What every kind of file offers, and what comes out of it. Who opens which format is in `decode.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from photocall_prep.turning import turned


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a picture before its pixels are."""

    format: str  # as Pillow names it, "JPEG"; or "PDF"
    mode: str  # Pillow's name of the stored pixels
    size: tuple[int, int]  # width, height as the decoder hands it over
    orientation: int = 1  # EXIF, 1..8, as the file has it; 1 when absent or unreadable
    turn: int = 1  # what of it is still to be done: some decoders turn by themselves
    frame: int = 0
    frames: int | None = None  # where the header says how many there are

    @property
    def upright_size(self) -> tuple[int, int]:
        """Width and height as it is looked at."""
        return turned(self.size, self.turn)


@dataclass(frozen=True, slots=True)
class Loaded:
    """RGB pixels, not turned yet."""

    rgb: Image.Image
    colour: tuple[str, ...]  # the steps from stored colours to these; none: they were stored so
    covers: tuple[float, float] | None = None  # width and height of the part that is the picture; None: all of it


@dataclass(frozen=True, slots=True)
class Fitted:
    """Pixels of the size that was asked for, not turned yet."""

    pixels: NDArray[np.uint8]  # RGB [height, width, 3]
    colour: tuple[str, ...]
    decoded_size: tuple[int, int]  # width and height that were decoded on the way


class Source(Protocol):
    """One picture of an open file."""

    @property
    def facts(self) -> Facts: ...

    def fitted(self, size: tuple[int, int]) -> Fitted | None:
        """Straight from the file to a width and height, where that is cheaper than `load` and a resize; else None.

        Never an error: what is wrong with a file, `load` finds and says.
        """

    def load(self, at_least: tuple[int, int] | None) -> Loaded:
        """Decode, once. `at_least`: fewer pixels than stored will do, on neither side fewer than this; None: all.

        Raises ImageRefused, ColourRefused, or what its library raises on damage.
        """

    def close(self) -> None:
        """Give back what it holds."""


class Renamed:
    """A picture out of a file that holds several, each a file of its own format."""

    def __init__(self, inner: Source, name: str, frame: int, frames: int) -> None:
        self._inner = inner
        self.facts = replace(inner.facts, format=name, frame=frame, frames=frames)

    def fitted(self, size: tuple[int, int]) -> Fitted | None:
        """See Source."""
        return self._inner.fitted(size)

    def load(self, at_least: tuple[int, int] | None) -> Loaded:
        """See Source."""
        return self._inner.load(at_least)

    def close(self) -> None:
        """See Source."""
        self._inner.close()
