"""What `fast` pixels cost in answers: models/mini asked the same of pictures prepared fast and exactly.

    python -m ops.bench.fidelity --assets DIR --pictures 60

Two sets of pictures: the held-out ones that `ops.train.evaluate --world all` asks about, and as many of the same world
at sizes of cameras, where `fast` decodes a JPEG at a part of its size, half of them turned by EXIF. Every probability
of an answer is compared. Prints a table and writes JSON under $OUT or ops/bench/results/.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from PIL import Image

from ops.bench.figures import keep
from ops.train.answering import EngineAnswerer, jpeg, prep_of
from ops.train.ask import ask
from ops.train.checkpoint import BUDGET
from ops.train.draw import Drawer
from ops.train.evaluate import SEEDS, some_of_each_type
from ops.train.evaluate import sample as evaluation_sample
from photocall.questions import Json, Question
from photocall_prep.prepare import Fidelity

MINI = Path("models/mini")
SIZES = ((2592, 1944), (1944, 2592), (3000, 2000), (2688, 1512), (4000, 3000), (1920, 1080))
FIDELITIES: tuple[Fidelity, Fidelity] = ("fast", "exact")
OF_A_TYPE = 3  # questions of each type asked of one picture
SHIFT = 0.01  # a probability that moves by less is the same


Given: TypeAlias = tuple[Json, tuple[Question, ...], bytes]  # state, questions, file
Sample: TypeAlias = Callable[[Drawer, int], Given]


@dataclass(frozen=True, slots=True)
class Shifts:
    """How far one picture's answers moved, and its pixels, in levels of 255."""

    answers: tuple[tuple[str, float, bool], ...]  # type, largest move of a probability, whether another answer came
    pixel_mean: float
    pixel_max: int


def main() -> int:
    """Compare, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--assets", type=Path, default=None, help="fonts, emoji and clothing, as for ops.train.evaluate"
    )
    parser.add_argument("--pictures", type=int, default=60, help="of each set")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    results = []
    for name, sample in SETS.items():
        lines = summary(name, list(measured(sample, options.pictures, options.threads, options.assets)))
        for line in lines:
            print(f"{line['workload']:56} {line['value']:.5f} {line['unit']}")
        results += lines
    keep(f"fidelity-{datetime.now(UTC):%Y-%m-%d}", results)
    return 0


def measured(
    sample: Sample, pictures: int, threads: int, assets: Path | None = None, model: Path = MINI
) -> Iterator[Shifts]:
    """Each picture of a set asked twice."""
    drawer = Drawer("heldout", assets)
    fast, exact = (EngineAnswerer(model, threads, prep=prep_of(fidelity)) for fidelity in FIDELITIES)
    for number in range(pictures):
        state, questions, file = sample(drawer, number)
        first, second = (asker.ask(state, questions, {"@img": file})["answers"] for asker in (fast, exact))
        apart = np.abs(pixels(file, "fast") - pixels(file, "exact"))
        moved = tuple((q.type, *moves(first[q.name], second[q.name])) for q in questions)
        yield Shifts(moved, float(apart.mean()), int(apart.max()))


def held_out(drawer: Drawer, number: int) -> Given:
    """A picture of the evaluation, and its questions but those of boxes: edges are no probabilities."""
    state, asked, file = evaluation_sample(drawer, "heldout", number)
    return state, tuple(each.question for each in asked if each.question.type != "box"), file


def of_a_camera(drawer: Drawer, number: int) -> Given:
    """A held-out scene as a camera's file, and questions about it."""
    rng = random.Random(SEEDS["heldout"] + 500_000 + number)
    image, made = drawer.scene(rng, size=SIZES[number % len(SIZES)])
    asked = (each for each in ask(made, "heldout", rng, 60) if each.question.type != "box")
    named = tuple(each.question for each in some_of_each_type(asked, OF_A_TYPE))
    quality = rng.randint(75, 95)
    if number % 2 == 0:
        return "@img", named, jpeg(image, quality)
    return "@img", named, jpeg(image.transpose(Image.Transpose.ROTATE_90), quality, orientation=6)


SETS: dict[str, Sample] = {"held-out": held_out, "of a camera": of_a_camera}


def pixels(file: bytes, fidelity: Fidelity) -> np.ndarray[Any, Any]:
    """Patches as signed numbers."""
    return np.frombuffer(prep_of(fidelity).prepare(file, BUDGET).patches, np.uint8).astype(np.int16)


def moves(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[float, bool]:
    """The largest move of a probability, and whether the answer itself is another."""
    if "noul" in first:
        return abs(first["noul"] - second["noul"]), (first["noul"] >= 0.5) != (second["noul"] >= 0.5)
    if "probabilities" in first:
        old, new = first["probabilities"], second["probabilities"]
        best = max(old, key=old.__getitem__), max(new, key=new.__getitem__)
        # A number shows its likeliest values alone: what only one of the two shows has at most what the other hides.
        return max(abs(old[key] - new[key]) for key in old.keys() & new.keys()), best[0] != best[1]
    return abs(math.exp(first["logprob"]) - math.exp(second["logprob"])), first["text"] != second["text"]


def summary(name: str, shifts: list[Shifts]) -> list[dict[str, Any]]:
    """Figures of a set of pictures, by type and over all."""
    by_type: defaultdict[str, list[tuple[float, bool]]] = defaultdict(list)
    for shift in shifts:
        for kind, move, other in shift.answers:
            by_type[kind].append((move, other))
            by_type["all"].append((move, other))
    counts: dict[str, float] = {
        "pixels, mean of the worst picture": max(s.pixel_mean for s in shifts),
        "pixels, largest": max(s.pixel_max for s in shifts),
    }
    results = [_line(f"{name}: {what}", value, "of 255", len(shifts)) for what, value in counts.items()]
    for kind, found in by_type.items():
        moved = np.array([move for move, _ in found])
        figures = {
            "mean move of a probability": float(moved.mean()),
            "99th percentile": float(np.percentile(moved, 99)),
            "largest": float(moved.max()),
            f"share moved by {SHIFT} or more": float((moved >= SHIFT).mean()),
            "share of other answers": sum(other for _, other in found) / len(found),
        }
        results += [_line(f"{name}, {kind}: {what}", value, "", len(found)) for what, value in figures.items()]
    return results


def _line(workload: str, value: float, unit: str, count: int) -> dict[str, Any]:
    return {"workload": workload, "shape": "models/mini", "value": value, "unit": unit, "count": count}


if __name__ == "__main__":
    raise SystemExit(main())
