"""Tensors of a checkpoint directory, read straight to their places on a device.

The model says which tensor belongs where (`places`). What is read is cut into pieces of whole rows; a few threads each
read pieces with `pread` into a buffer of their own (pinned, for CUDA) and copy them on, converting the type on the
device, so the host never holds a second copy of the weights. A name that is neither wanted nor known to be unneeded, a
wanted one that is missing, and a shape that does not fit are errors that name the tensor.
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Protocol, TypeAlias

import torch

from photocall_engine.model.shards import StoredTensor, WeightError, read_shards

log = logging.getLogger(__name__)

PIECE_BYTES = 32 << 20
CUDA_THREADS = 8
_TYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "BOOL": torch.bool,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
}


class RowPlace(Protocol):
    """A place that is not a plain tensor: it takes rows and keeps them its own way."""

    @property
    def shape(self) -> torch.Size:
        """What the checkpoint's tensor must have."""

    @property
    def device(self) -> torch.device:
        """Where it is."""

    def put(self, first: int, rows: torch.Tensor) -> None:
        """Take rows first, first + 1, ... [n, last dimension] of the flattened tensor, on its device, in any type."""


Place: TypeAlias = torch.Tensor | RowPlace


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What was read, and how long it took."""

    size: int
    files: int
    seconds: float

    def __str__(self) -> str:
        rate = self.size / max(self.seconds, 1e-9) / 1e6
        return f"{self.size / 1e9:.2f} GB from {self.files} files in {self.seconds:.2f} s, {rate:,.0f} MB/s"


@torch.no_grad()
def load_weights(
    directory: Path,
    places: Mapping[str, Place],
    ignored: Callable[[str], bool],
    *,
    threads: int = 0,
    piece_bytes: int = PIECE_BYTES,
) -> LoadReport:
    """Copy every tensor of the checkpoint into `places[name]`, converting to its type. Raises WeightError.

    `threads` 0: eight for CUDA, where they keep the bus busy, else one for each core.
    """
    began = time.monotonic()
    stored = read_shards(directory)
    _match(directory, stored, places, ignored)
    wanted = [stored[name] for name in places]
    device = next((place.device for place in places.values()), torch.device("cpu"))
    threads = threads or (CUDA_THREADS if device.type == "cuda" else os.cpu_count() or 1)
    # a file's pieces in the order they lie there, files one after another
    wanted.sort(key=lambda tensor: (tensor.file, tensor.offset))
    pieces: SimpleQueue[_Piece | None] = SimpleQueue()
    for tensor in wanted:
        for piece in _cut(tensor, places[tensor.name], piece_bytes):
            pieces.put(piece)
    for _ in range(threads):
        pieces.put(None)
    with ThreadPoolExecutor(threads) as pool:
        for lane in [pool.submit(_lane, pieces, device, piece_bytes) for _ in range(threads)]:
            lane.result()
    report = LoadReport(
        sum(tensor.size for tensor in wanted), len({tensor.file for tensor in wanted}), time.monotonic() - began
    )
    log.info("weights: %s", report)
    return report


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some rows of one tensor, and where they go."""

    tensor: StoredTensor
    place: Place
    first: int
    rows: int
    columns: int

    @property
    def row_bytes(self) -> int:
        return self.columns * _TYPES[self.tensor.kind].itemsize


def _match(
    directory: Path, stored: Mapping[str, StoredTensor], places: Mapping[str, Place], ignored: Callable[[str], bool]
) -> None:
    for name in sorted(places.keys() - stored.keys()):
        raise WeightError(f"{directory}: tensor {name} is missing")
    for name in sorted(stored.keys() - places.keys()):
        if not ignored(name):
            raise WeightError(f"{directory}: tensor {name} is not part of this model")
    for name, place in places.items():
        if stored[name].shape != tuple(place.shape):
            found, needed = list(stored[name].shape), list(place.shape)
            raise WeightError(f"{directory}: tensor {name} has shape {found}, the model needs {needed}")


def _cut(tensor: StoredTensor, place: Place, piece_bytes: int) -> Iterator[_Piece]:
    columns = tensor.shape[-1] if tensor.shape else 1
    rows = math.prod(tensor.shape[:-1])
    height = max(1, piece_bytes // max(1, columns * _TYPES[tensor.kind].itemsize))
    for first in range(0, rows, height):
        yield _Piece(tensor, place, first, min(height, rows - first), columns)


@torch.inference_mode()  # of its own for each thread; places may be tensors of either mode
def _lane(pieces: SimpleQueue[_Piece | None], device: torch.device, piece_bytes: int) -> None:
    """One thread: reads a piece into one buffer while the other is on its way to the device."""
    buffers = [_Buffer(device, piece_bytes), _Buffer(device, piece_bytes)]
    while (piece := pieces.get()) is not None:
        buffers.reverse()
        buffers[0].carry(piece)
    for buffer in buffers:
        buffer.wait()


class _Buffer:
    """Host memory that a piece passes through."""

    def __init__(self, device: torch.device, size: int) -> None:
        self._device = device
        self._cuda = device.type == "cuda"
        self._memory = torch.empty(size, dtype=torch.uint8, pin_memory=self._cuda)
        self._stream = torch.cuda.Stream(device) if self._cuda else None  # type: ignore[no-untyped-call]

    def carry(self, piece: _Piece) -> None:
        """Read a piece, and start it on its way."""
        self.wait()
        size = piece.rows * piece.row_bytes
        if size > len(self._memory):  # one row longer than a piece
            self._memory = torch.empty(size, dtype=torch.uint8, pin_memory=self._cuda)
        _read(piece.tensor, piece.first * piece.row_bytes, memoryview(self._memory.numpy())[:size])  # type: ignore[arg-type]
        rows = self._memory[:size].view(_TYPES[piece.tensor.kind]).view(piece.rows, piece.columns)
        if self._stream is None:
            _put(piece.place, piece.first, rows)
            return
        with torch.cuda.stream(self._stream):
            _put(piece.place, piece.first, rows.to(self._device, non_blocking=True))

    def wait(self) -> None:
        """Until the buffer may be written again."""
        if self._stream is not None:
            self._stream.synchronize()


def _read(tensor: StoredTensor, start: int, into: memoryview) -> None:
    descriptor = os.open(tensor.file, os.O_RDONLY)
    try:
        done = 0
        while done < len(into):
            count = os.preadv(descriptor, [into[done:]], tensor.offset + start + done)
            if not count:
                raise WeightError(f"{tensor.file}: ends inside tensor {tensor.name}")
            done += count
    except OSError as error:
        raise WeightError(f"{tensor.file}: {error}") from error
    finally:
        os.close(descriptor)


def _put(place: Place, first: int, rows: torch.Tensor) -> None:
    if isinstance(place, torch.Tensor):
        place.view(-1, rows.shape[1])[first : first + len(rows)].copy_(rows)
    else:
        place.put(first, rows)
