"""What the safetensors files of a checkpoint directory hold, read from their headers: no tensor is touched.

The format: eight bytes of header length, a JSON map from names to type, shape and place, then the values. A file's own
header decides what is in it; the index only says which files there are.
"""

from __future__ import annotations

import json
import math
import struct
from dataclasses import dataclass
from pathlib import Path

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_MAX_HEADER = 100_000_000  # bytes, as the format's own library bounds it
VALUE_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}


class WeightError(ValueError):
    """The checkpoint's tensors do not fit its config.json; the message names the tensor."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One tensor in a file: `size` bytes from `offset` on."""

    name: str
    file: Path
    kind: str  # the format's own name of the type, a key of VALUE_BYTES
    shape: tuple[int, ...]
    offset: int
    size: int


def read_shards(directory: Path) -> dict[str, StoredTensor]:
    """Every tensor of a checkpoint by name. Raises WeightError."""
    listed, files = _files(directory)
    found: dict[str, StoredTensor] = {}
    for file in files:
        for tensor in _header(directory / file):
            if tensor.name in found:
                raise WeightError(f"tensor {tensor.name} is in both {found[tensor.name].file.name} and {file}")
            found[tensor.name] = tensor
    for name, file in listed.items():
        if name not in found or found[name].file.name != file:
            raise WeightError(f"{directory / _INDEX}: tensor {name} is not in {file}")
    return found


def _files(directory: Path) -> tuple[dict[str, str], list[str]]:
    """What the index says about tensors, and the names of all files."""
    index = directory / _INDEX
    if index.exists():
        try:
            listed = json.loads(index.read_text())["weight_map"]
            return listed, sorted(set(listed.values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise WeightError(f"{index}: not a safetensors index: {error}") from error
    if (directory / _SINGLE).exists():
        return {}, [_SINGLE]
    raise WeightError(f"{directory} holds neither {_INDEX} nor {_SINGLE}")


def _header(file: Path) -> list[StoredTensor]:
    try:
        with file.open("rb") as opened:
            end = file.stat().st_size
            (length,) = struct.unpack("<Q", opened.read(8))
            if length > min(_MAX_HEADER, end - 8):
                raise WeightError(f"{file}: a header of {length} bytes in a file of {end}")
            entries = json.loads(opened.read(length))
            entries.pop("__metadata__", None)
            return [_stored(file, 8 + length, end, name, entry) for name, entry in entries.items()]
    except (OSError, struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, WeightError):
            raise
        raise WeightError(f"{file}: not a safetensors file: {error}") from error


def _stored(file: Path, data: int, file_end: int, name: str, entry: dict[str, object]) -> StoredTensor:
    kind, shape = str(entry["dtype"]), tuple(int(side) for side in entry["shape"])  # type: ignore[attr-defined]
    first, last = (int(place) for place in entry["data_offsets"])  # type: ignore[attr-defined]
    if kind not in VALUE_BYTES:
        raise WeightError(f"{file}: tensor {name} has values of type {kind}, which is not known here")
    size = math.prod(shape) * VALUE_BYTES[kind]
    if first < 0 or last - first != size or data + last > file_end:
        raise WeightError(f"{file}: tensor {name} of {size} bytes at {first}..{last} does not fit the file")
    return StoredTensor(name, file, kind, shape, data + first, size)
