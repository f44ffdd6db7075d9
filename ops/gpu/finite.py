"""Where an engine's numbers stop being numbers, or stop being right: every operation looked at as it is made.

One text and one picture are asked at a public checkpoint's shape with random weights: operation by operation, each
result looked at and, where the reference can do the same on the same inputs, compared; then again from captured graphs.
Says the first results that are not finite, with what went into them, and the largest error of each operation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ops.bench import figures
from ops.bench.stand import SIZES, NotAnsweredError, Stand, make_runner
from ops.bench.workloads import fresh
from photocall_engine.kernels.fp8 import Fp8Weight
from photocall_engine.kernels.reference import ReferenceKernels
from photocall_engine.kernels.vision_reference import ReferenceVision
from photocall_engine.kv_pools import LayerKv
from photocall_engine.model.pictures import Pictures
from photocall_engine.model.vision import VisionTower
from photocall_engine.torch_runner import TorchRunner

PAGES = 512
EXAMPLES = 6
LARGEST_ERROR = 0.02  # of |result - truth| / |truth|; a result in bfloat16 is rounded by up to 0.004
PRODUCTS = ("linear", "unfinished", "gated")
OF_TOWER = ("normalise", "add_positions", "clipped_norm", "norm_add", "turn", "attend", "gate", "pool")


@dataclass
class Bad:
    """A result that is not finite."""

    number: int  # of the operation, counted from the start of its way
    name: str
    shape: tuple[int, ...]
    rows: int  # that hold anything but numbers
    first_row: int
    inputs_finite: bool


@dataclass
class Seen:
    """What came of the operations of one way."""

    count: int = 0
    bad: list[Bad] = field(default_factory=list)
    errors: dict[str, float] = field(default_factory=dict)  # operation and shape: the largest

    def note(self, name: str, arguments: Sequence[Any], out: Any) -> None:
        """Look at the result of an operation."""
        self.count += 1
        for part in _floats([out]):
            if not part.numel():
                continue
            broken = (~part.isfinite()).reshape(len(part), -1).any(1).nonzero().flatten()
            if len(broken) and len(self.bad) < EXAMPLES:
                sound = all(bool(given.isfinite().all()) for given in _floats(arguments))
                self.bad.append(Bad(self.count, name, tuple(part.shape), len(broken), int(broken[0]), sound))

    def compare(self, name: str, out: torch.Tensor, truth: torch.Tensor) -> None:
        """Keep the error of a result."""
        size = float(truth.float().norm())
        error = float((out.float() - truth.float()).norm()) / size if size else 0.0
        key = f"{name} {list(out.shape)}"
        self.errors[key] = max(self.errors.get(key, 0.0), error if error == error else float("inf"))


class Watched:
    """Kernels that tell `seen` what they give."""

    def __init__(self, kernels: Any, seen: Seen, kind: str, tile: int) -> None:
        self._kernels, self._seen, self._kind = kernels, seen, kind
        self._truth: Any = ReferenceVision(tile) if kind == "tower" else ReferenceKernels()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._kernels, name)
        if not callable(found) or name.startswith(("plan", "prepare", "head_norms")):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            out = found(*arguments, **options)
            self._seen.note(f"{self._kind}.{name}", [*arguments, *options.values()], out)
            self._compare(name, arguments, options, out)
            return out

        return call

    def _compare(self, name: str, arguments: Sequence[Any], options: dict[str, Any], out: Any) -> None:
        label = f"{self._kind}.{name}"
        if self._kind == "tower" and name in OF_TOWER:
            truth = getattr(self._truth, name)(*arguments, **options)
            rows = [slice(*span) for given in arguments if isinstance(given, Pictures) for span in given.spans]
            for one, true in zip(_floats([out]), _floats([truth]), strict=True):
                for part in rows if rows and name != "pool" else [slice(None)]:
                    self._seen.compare(label, one[part], true[part])
        elif name in PRODUCTS and not isinstance(arguments[1], Fp8Weight) and "out_dtype" not in options:
            x, weight, *rest = (given.float() if isinstance(given, torch.Tensor) else given for given in arguments)
            truth = getattr(self._truth, name)(x, weight, *rest, **options)
            self._seen.compare(label, out.sum(0) if out.ndim > truth.ndim else out, truth)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when everything is finite, right, and the same from graphs; 1 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SIZES, default="31b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    found = examine(options.shape, options.device)
    figures.tell(found, options.out)
    return 0 if found["holds"] else 1


def examine(shape: str, device: str) -> dict[str, Any]:
    """Both requests, watched and from graphs."""
    sizes = replace(SIZES[shape], pages=PAGES)
    runner = make_runner(shape, device, "invariant", sizes)
    ways: dict[str, dict[str, Any]] = {}
    soft: list[bytes] = []
    for suffix in ("", ", graphs"):
        if suffix and not runner.enable_graphs():
            break
        stand = Stand(shape, device, "invariant", sizes, runner)  # draws the same requests each time
        for pictured in (False, True):
            seen = Seen()
            way = ("picture" if pictured else "text") + suffix
            request = fresh(stand, pictured=pictured)
            runner.arena.zero_()
            if suffix:
                answered = _answered(stand, request)
            else:
                with watching(runner, seen):
                    answered = _answered(stand, request)
            ways[way] = {"answered": answered, "operations": seen.count, "bad": [asdict(one) for one in seen.bad]}
            ways[way]["errors"] = {name: float(f"{error:.2g}") for name, error in seen.errors.items()}
            if pictured:
                soft.append(runner.arena[:-1].view(torch.uint8).cpu().numpy().tobytes())
                ways[way]["soft_tokens_finite"] = bool(runner.arena[:-1].isfinite().all())
    wrong = sorted({name for way in ways.values() for name, e in way["errors"].items() if not e <= LARGEST_ERROR})
    same = len(set(soft)) == 1
    sound = all(way["answered"] and not way["bad"] for way in ways.values())
    return {
        "shape": shape,
        "ways": ways,
        "wrong": wrong,
        "same_soft_tokens": same,
        "holds": sound and same and not wrong,
    }


@contextmanager
def watching(runner: TorchRunner, seen: Seen) -> Iterator[None]:
    """Everything that the runner computes goes by `seen`."""
    places: list[tuple[Any, str, Any]] = [(runner.decoder, "kernels", "decoder")]
    if isinstance(runner.encoder, VisionTower):
        places += [(runner.encoder, "kernels", "tower products"), (runner.encoder, "ops", "tower")]
    kept = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    tile = 1 if runner.encoder is None else runner.encoder.tile
    for owner, name, kind in places:
        setattr(owner, name, Watched(getattr(owner, name), seen, kind, tile))
    try:
        yield
    finally:
        for owner, name, kernels in kept:
            setattr(owner, name, kernels)


def _answered(stand: Stand, request: Any) -> bool:
    try:
        stand.serve([request])
    except NotAnsweredError:
        return False
    return True


def _floats(values: Sequence[Any]) -> list[torch.Tensor]:
    """Every tensor of floats among values and what they hold."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, LayerKv):
            found += [value.k, value.v]
        elif isinstance(value, tuple | list):
            found += _floats(value)
        elif isinstance(value, torch.Tensor) and value.is_floating_point():
            found.append(value)
    return found


if __name__ == "__main__":
    sys.exit(main())
