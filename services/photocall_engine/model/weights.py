"""Safetensors of a checkpoint directory, read straight to their place.

The model says which tensor belongs where (`places`); this file matches them with what the directory holds, one shard
at a time. A name that is neither wanted nor known to be unneeded, a wanted one that is missing, and a shape that does
not fit are errors that name the tensor.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"


class WeightError(ValueError):
    """The checkpoint's tensors do not fit its config.json; the message names the tensor."""


def load_weights(directory: Path, places: Mapping[str, torch.Tensor], ignored: Callable[[str], bool]) -> None:
    """Copy every tensor of the checkpoint into `places[name]`, converting to its dtype. Raises WeightError."""
    shards = _shards(directory)
    present = {name for names in shards.values() for name in names}
    for name in sorted(places.keys() - present):
        raise WeightError(f"{directory}: tensor {name} is missing")
    for name in sorted(present - places.keys()):
        if not ignored(name):
            raise WeightError(f"{directory}: tensor {name} is not part of this model")
    for shard, names in shards.items():
        try:
            with safe_open(directory / shard, framework="pt") as file:
                for name in names:
                    if name in places:
                        _copy(name, file.get_tensor(name), places[name])
        except (SafetensorError, OSError) as error:
            raise WeightError(f"{directory / shard}: {error}") from error


def tensor_names(directory: Path) -> set[str]:
    """Names of all tensors of the checkpoint."""
    return {name for names in _shards(directory).values() for name in names}


def _copy(name: str, source: torch.Tensor, place: torch.Tensor) -> None:
    if source.shape != place.shape:
        raise WeightError(f"tensor {name} has shape {list(source.shape)}, the model needs {list(place.shape)}")
    place.copy_(source)


def _shards(directory: Path) -> dict[str, list[str]]:
    """Names by shard file. A file's own header decides; the index only says which files there are."""
    index = directory / _INDEX
    if index.exists():
        try:
            listed: dict[str, str] = json.loads(index.read_text())["weight_map"]
        except (ValueError, KeyError) as error:
            raise WeightError(f"{index}: not a safetensors index: {error}") from error
        files = sorted(set(listed.values()))
    elif (directory / _SINGLE).exists():
        listed, files = {}, [_SINGLE]
    else:
        raise WeightError(f"{directory} holds neither {_INDEX} nor {_SINGLE}")
    shards: dict[str, list[str]] = defaultdict(list)
    owner: dict[str, str] = {}
    for shard in files:
        try:
            with safe_open(directory / shard, framework="pt") as file:
                names = list(file.keys())
        except (SafetensorError, OSError) as error:
            raise WeightError(f"{directory / shard}: {error}") from error
        for name in names:
            if owner.setdefault(name, shard) != shard:
                raise WeightError(f"tensor {name} is in both {owner[name]} and {shard}")
            shards[shard].append(name)
    for name, shard in listed.items():
        if owner.get(name) != shard:
            raise WeightError(f"{index}: tensor {name} is not in {shard}")
    return shards
