"""The vision tower on a GPU: bits whatever the company, error, passes eager and captured, kernels beside their floors.

Random weights at a public checkpoint's shape, noise for pictures. A picture's soft tokens are compared byte by byte:
alone, among seven others at several places, and both again from captured graphs. The error is that of the whole tower
against the reference in float32, beside the error that the reference makes in the engine's own type. Prints and
writes JSON. Without CUDA bits and error are compared, nothing is captured or timed.

    python -m ops.bench.tower --shape e4b --device cuda --out tower.json
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ops.bench import figures, vision_cases
from ops.bench.kernels import BYTES_PER_S, OPERATIONS_PER_S, seconds
from ops.bench.random_weights import draw
from ops.bench.stand import config_of
from photocall_engine import kernels as kernel_choice
from photocall_engine.graph_space import GraphSpace
from photocall_engine.kernels.reference import ReferenceKernels
from photocall_engine.kernels.triton_vision_attention import WALK, Walk, attend
from photocall_engine.kernels.vision_reference import ReferenceVision
from photocall_engine.model.checkpoint import allocate_seeing, make_encoder
from photocall_engine.model.config import ModelConfig, VisionConfig, parse_config
from photocall_engine.model.vision import VisionTower
from photocall_engine.model.vision_weights import VisionWeights
from photocall_engine.runner import PatchImage
from photocall_engine.tower_passes import TowerPasses

USUAL = (42, 60)  # patches of a picture of 280 soft tokens
OTHERS = ((36, 66), (48, 48), (18, 24), (42, 57), (9, 12), (60, 42), (33, 69))
SMALL = ((6, 9), (9, 9), (12, 6), (3, 3), (9, 12), (6, 6), (3, 15), (12, 12))  # where there is no GPU
PLACES = (0, 3, 7)
MORE_ERROR = 1.5  # times what the reference's own rounding does
ROUNDS = 15
WALKS = (  # tried beside the one that serves
    Walk(128, 64, warps=8, stages=3),
    Walk(128, 64, warps=4, stages=2),
    Walk(128, 128, warps=8, stages=2),
    Walk(64, 64, warps=4, stages=2),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all bits agree and the error is no larger than it must be, 1 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="e4b", help="of a checkpoint with a tower (default e4b)")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    found = examine(options.shape, options.device)
    figures.tell(found, options.out)
    return 0 if found["holds"] else 1


@torch.inference_mode()
def examine(shape: str, device: str) -> dict[str, Any]:
    """Everything about one tower."""
    place = kernel_choice.find_device(device)
    on_gpu = place.type == "cuda"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    config = parse_config(config_of(shape))
    tower = _tower(config, place, dtype)
    first, *others = [_noise(seed, grid) for seed, grid in enumerate((USUAL, *OTHERS) if on_gpu else SMALL)]
    most = 8 * first.num_soft
    arena = torch.zeros(sum(image.num_soft for image in (first, *others)) + most + 1, config.text.hidden_size)
    passes = TowerPasses(tower, arena.to(place, dtype))
    found: dict[str, Any] = {"shape": shape, "kernels": tower.kernels.name}
    alone = _soft(passes, [first], 0)
    found["different"] = _different(passes, first, others, alone, "eager")
    found["error"] = _errors(config, tower, first, alone)
    eager = _passes(passes, first) if on_gpu else {}
    passes.prepare(most)
    if on_gpu:
        space = GraphSpace(place)
        passes.capture(space)
        found["graphs"] = str(space.taken())
    found["different"] |= _different(passes, first, others, alone, "captured")
    if on_gpu:
        found["passes"] = {"eager": eager, "captured": _passes(passes, first)}
        found["attention"] = _attention(vision_cases.TOWERS[shape.upper()])
        found["products"] = list(_products(tower))
        found["elementwise"] = list(_elementwise(vision_cases.TOWERS[shape.upper()]))
    error = found["error"]
    found["holds"] = not any(found["different"].values()) and error["ours"] <= MORE_ERROR * error["plain"] + 1e-6
    return found


def _tower(config: ModelConfig, device: torch.device, dtype: torch.dtype) -> VisionTower:
    weights = allocate_seeing(config, device, dtype)
    assert isinstance(weights, VisionWeights), "this shape has no tower"
    for name, tensor in weights.places.items():
        draw(name, tensor, 0)
    made = make_encoder(config, weights, kernel_choice.choose(device, weights.linears(), set()))
    assert isinstance(made, VisionTower)
    return made


def _noise(seed: int, grid: tuple[int, int]) -> PatchImage:
    height, width = grid
    pixels = np.random.default_rng(seed).integers(0, 256, (height * width, 768), dtype=np.uint8)
    return PatchImage(pixels, height, width)


def _soft(passes: TowerPasses, images: Sequence[PatchImage], which: int) -> torch.Tensor:
    """Soft tokens of one of the pictures that share a pass."""
    ends = np.cumsum([0, *(image.num_soft for image in images)]).tolist()
    passes.arena.zero_()
    passes.encode(images, ends[:-1])
    return passes.arena[ends[which] : ends[which + 1]].clone()


def _different(
    passes: TowerPasses, first: PatchImage, others: list[PatchImage], alone: torch.Tensor, how: str
) -> dict[str, bool]:
    """Which ways do not give the bits of the picture alone."""
    found = {f"{how}, alone": not torch.equal(_soft(passes, [first], 0), alone)}
    for place in PLACES:
        soft = _soft(passes, [*others[:place], first, *others[place:]], place)
        found[f"{how}, at place {place} of 8"] = not torch.equal(soft, alone)
    found[f"{how}, the last of 8 alike"] = not torch.equal(_soft(passes, [first] * 8, 7), alone)
    return found


def _errors(config: ModelConfig, tower: VisionTower, image: PatchImage, ours: torch.Tensor) -> dict[str, float]:
    """Relative to the norm of what the reference makes in float32: ours, and the reference in our type."""
    assert isinstance(config.vision, VisionConfig)
    truth = _reference(config, tower, image, torch.float32)
    plain = _reference(config, tower, image, ours.dtype)
    return {name: float((x.float() - truth).norm() / truth.norm()) for name, x in (("ours", ours), ("plain", plain))}


def _reference(config: ModelConfig, tower: VisionTower, image: PatchImage, dtype: torch.dtype) -> torch.Tensor:
    weights = allocate_seeing(config, tower.weights.projection.device, dtype)
    assert isinstance(weights, VisionWeights)
    for name, tensor in weights.places.items():
        tensor.copy_(tower.weights.places[name])
    plain = VisionTower(tower.config, weights, ReferenceKernels(), ReferenceVision(tower.tile))
    arena = torch.zeros(image.num_soft + 1, config.text.hidden_size, dtype=dtype, device=weights.projection.device)
    return _soft(TowerPasses(plain, arena), [image], 0)


def _passes(passes: TowerPasses, image: PatchImage) -> dict[str, dict[str, float]]:
    """Of one picture and of eight: wall and host milliseconds from the call to the end, device milliseconds."""
    found = {}
    for count in (1, 8):
        images, bases = [image] * count, [image.num_soft * index for index in range(count)]
        walls, hosts, devices = [], [], []
        for _ in range(ROUNDS):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
            began = time.perf_counter()
            start.record()
            passes.encode(images, bases)
            end.record()
            hosts.append(time.perf_counter() - began)
            torch.cuda.synchronize()
            walls.append(time.perf_counter() - began)
            devices.append(start.elapsed_time(end) / 1e3)
        pairs = zip(("wall_ms", "host_ms", "device_ms"), (walls, hosts, devices), strict=True)
        found[f"{count}"] = {name: round(1e3 * statistics.median(times), 3) for name, times in pairs}
    return found


def _attention(tower: vision_cases.Tower) -> list[dict[str, Any]]:
    """Each walk that might serve, at one picture and at eight."""
    device, (height, width) = torch.device("cuda"), USUAL
    found = []
    ways = [(WALK, True), (WALK, False), *((walk, True) for walk in WALKS)]
    for (walk, powers), count in itertools.product(ways, (1, 8)):
        pictures = vision_cases.some_pictures(device, count)
        shape = (len(pictures.x), 3 * tower.heads, tower.dim)

        def make(seed: int, shape: tuple[int, ...] = shape) -> dict[str, Any]:
            generator = torch.Generator(device=device).manual_seed(seed)
            stacked = torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16)
            return dict(zip("qkv", torch.split(stacked / tower.dim**0.25, tower.heads, dim=1), strict=True))

        def run(i: dict[str, Any], walk: Walk = walk, powers: bool = powers, pictures: Any = pictures) -> torch.Tensor:
            tile = vision_cases.OURS.tile
            return attend(i["q"], i["k"], i["v"], pictures, vision_cases.CLIP, tile, powers=powers, walk=walk)

        taken = seconds(make, run, 6.0 * shape[0] * tower.heads * tower.dim)
        operations = 4.0 * count * (height * width) ** 2 * tower.heads * tower.dim
        found.append({"walk": str(walk), "powers": powers, "serves": walk == WALK, "pictures": count})
        found[-1] |= _timed(taken, operations / OPERATIONS_PER_S) | {"tflops": round(operations / taken / 1e12, 1)}
    return found


def _products(tower: VisionTower) -> Iterator[dict[str, Any]]:
    """The matrix products of a layer, at one picture and at eight."""
    layer, kernels, (height, width) = tower.weights.layers[0], tower.kernels, USUAL
    device = layer.o.weight.device
    for count in (1, 8):
        rows = count * -(-height * width // tower.tile) * tower.tile
        for name in ("qkv", "o", "gate_up", "down"):
            weight: torch.Tensor = getattr(layer, name).weight
            values = rows * weight.shape[1]

            def make(seed: int, shape: tuple[int, int] = (rows, weight.shape[1])) -> dict[str, Any]:
                generator = torch.Generator(device=device).manual_seed(seed)
                return {"x": torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16)}

            def run(i: dict[str, Any], name: str = name, weight: torch.Tensor = weight) -> torch.Tensor:
                if name == "gate_up":
                    return kernels.gated(i["x"], weight, clips=(vision_cases.CLIP,) * 3)
                return kernels.linear(i["x"], weight)

            taken, operations = seconds(make, run, 2.0 * values), 2.0 * values * weight.shape[0]
            yield {"product": name, "pictures": count} | _timed(taken, operations / OPERATIONS_PER_S)


def _elementwise(tower: vision_cases.Tower) -> Iterator[dict[str, Any]]:
    """What stands between the products, at one picture and at eight, beside the time that its bytes take."""
    device = torch.device("cuda")
    for count in (1, 8):
        pictures = vision_cases.some_pictures(device, count)
        rows, soft = len(pictures.x), len(pictures.soft_row)
        for case in vision_cases.vision_cases(tower, rows, soft, USUAL[0] * USUAL[1], count):
            if case.name == "attend":
                continue

            def make(seed: int, case: vision_cases.VisionCase = case) -> dict[str, Any]:
                generator = torch.Generator(device=device).manual_seed(seed)
                return {
                    name: torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16)
                    for name, shape in case.shapes.items()
                }

            def run(i: dict[str, Any], case: vision_cases.VisionCase = case, pictures: Any = pictures) -> torch.Tensor:
                return case.run(vision_cases.OURS, i, pictures)

            taken = seconds(make, run, case.moved_values)
            yield {"kernel": case.name, "pictures": count} | _timed(taken, 2.0 * case.moved_values / BYTES_PER_S)


def _timed(taken: float, floor: float) -> dict[str, float]:
    return {"us": round(1e6 * taken, 1), "floor_us": round(1e6 * floor, 1)}


if __name__ == "__main__":
    sys.exit(main())
