"""Checkpoints with random weights at the shapes of the public ones, for measuring without downloading anything.

`shapes/*.json` are config.json files with the sizes of the public checkpoints. `random_checkpoint` draws the weights on
a device, in the places that loading would fill; `python -m ops.bench.random_weights SHAPE DIR` writes a sharded
safetensors checkpoint of them. Norms and scalars stay near one and linears keep the size of what they read, so that
activations are finite and of ordinary size in every layer.
"""

from __future__ import annotations

import argparse
import json
import zlib
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from photocall_engine.model.checkpoint import SeeingWeights, allocate
from photocall_engine.model.config import ModelConfig, parse_config
from photocall_engine.model.text_weights import TextWeights

SHAPES = Path(__file__).parent / "shapes"
DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
SHARD_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class RandomCheckpoint:
    """What `read_config` and `read_weights` would have given."""

    config: ModelConfig
    text: TextWeights
    seeing: SeeingWeights | None


def names() -> list[str]:
    """Every shape there is."""
    return sorted(path.stem for path in SHAPES.glob("*.json"))


def read_shape(name: str) -> ModelConfig:
    """The configuration of one shape. Raises FileNotFoundError."""
    return parse_config(json.loads((SHAPES / f"{name}.json").read_text()))


@torch.no_grad()
def random_checkpoint(
    shape: str | ModelConfig, device: torch.device | str, dtype: torch.dtype, seed: int = 0
) -> RandomCheckpoint:
    """Weights of a shape (by name, or any configuration), drawn on the device."""
    config = read_shape(shape) if isinstance(shape, str) else shape
    text, seeing = allocate(config, torch.device(device), dtype, own_head=False)
    for name, place in (text.places | ({} if seeing is None else seeing.places)).items():
        draw(name, place, seed)
    return RandomCheckpoint(config, text, seeing)


def draw(name: str, place: torch.Tensor, seed: int) -> None:
    """Fill one tensor; its values depend on name, seed, device and type, not on what was drawn before."""
    generator = torch.Generator(device=place.device).manual_seed(seed + zlib.crc32(name.encode()))
    if name.endswith(("_min", "_max")):
        place.fill_(-8.0 if name.endswith("_min") else 8.0)
    elif name.endswith((".bias", "std_bias")):
        place.normal_(std=0.1, generator=generator)
    elif name.endswith(("q_norm.weight", "k_norm.weight")):
        place.uniform_(0.8, 1.2, generator=generator).mul_(place.shape[0] ** -0.25)
    elif place.ndim <= 1:  # norms, scalars and scales
        place.uniform_(0.9, 1.1, generator=generator)
    elif name.endswith(("position_embedding_table", "pos_embedding")):
        place.normal_(std=0.02, generator=generator)
    else:
        place.normal_(std=place.shape[-1] ** -0.5, generator=generator)


@torch.no_grad()
def write_checkpoint(
    config: dict[str, object],
    directory: Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.bfloat16,
    shard_bytes: int = SHARD_BYTES,
    seed: int = 0,
) -> int:
    """Write config.json, shards and their index; the bytes of the tensors. Holds one shard in memory."""
    directory.mkdir(parents=True, exist_ok=True)
    text, seeing = allocate(parse_config(config), torch.device("meta"), dtype, own_head=False)
    places = text.places | ({} if seeing is None else seeing.places)
    shards: list[dict[str, torch.Size]] = [{}]
    held = 0
    for name, place in places.items():
        size = place.numel() * dtype.itemsize
        if shards[-1] and held + size > shard_bytes:
            shards.append({})
            held = 0
        shards[-1][name] = place.shape
        held += size
    index: dict[str, str] = {}
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        tensors = {name: torch.empty(shape, device=device, dtype=dtype) for name, shape in shard.items()}
        for name, tensor in tensors.items():
            draw(name, tensor, seed)
        save_file({name: tensor.cpu() for name, tensor in tensors.items()}, directory / file)
        index |= dict.fromkeys(shard, file)
    total = sum(place.numel() for place in places.values()) * dtype.itemsize
    listed = {"metadata": {"total_size": total}, "weight_map": index}
    (directory / "model.safetensors.index.json").write_text(json.dumps(listed, indent=1) + "\n")
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return total


def main() -> None:
    """Write a checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=names())
    parser.add_argument("directory", type=Path)
    parser.add_argument("--device", default="cpu", help="where the weights are drawn")
    parser.add_argument("--dtype", choices=DTYPES, default="bfloat16")
    options = parser.parse_args()
    config = json.loads((SHAPES / f"{options.shape}.json").read_text())
    total = write_checkpoint(config, options.directory, device=options.device, dtype=DTYPES[options.dtype])
    print(f"{options.directory}: {total / 1e9:.2f} GB at the shape of {options.shape}")


if __name__ == "__main__":
    main()
