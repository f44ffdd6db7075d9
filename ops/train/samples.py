"""The demo's sample pictures: drawn by hand, so to speak, with questions as a person would ask them.

    python -m ops.train.samples --assets DIR --out ops/samples

Words are printed in fonts that training never saw, where `--assets` has them; wordings are not the training templates.
"""

from __future__ import annotations

import argparse
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ops.train import backgrounds, fonts, scene
from ops.train.assets import Assets
from ops.train.checkpoint import BUDGET
from ops.train.marks import Box as Area
from ops.train.scene import Backdrop, Board, Gauge, Item, Line, Scene
from photocall.grid import grid_for

Questions = dict[str, tuple[dict[str, Any], Any]]  # name -> (question as the API takes it, right answer)


@dataclass(frozen=True, slots=True)
class Sample:
    """One picture. Places and sizes are fractions of the shorter side and of the picture."""

    file: str
    size: tuple[int, int]
    background: str
    questions: Questions
    items: tuple[tuple[str, str, float, float, float], ...] = ()  # shape, colour, x, y, radius
    boards: tuple[
        tuple[str, str, str, str, tuple[float, float, float, float]], ...
    ] = ()  # form, colour, ink, text, box
    gauge: tuple[str, str, int, tuple[float, float, float, float]] | None = None
    light: tuple[str, tuple[float, float, float, float]] | None = None
    shelves: tuple[float, ...] = ()
    direction: str = "up"
    state: Any = "photo"
    wear: float = 0.0


def choice(text: str, *labels: str, **described: str) -> dict[str, Any]:
    """A choice among labels, each described or not."""
    return {"type": "choice", "instructions": text, "criteria": dict.fromkeys(labels) | described}


def yes_no(text: str) -> dict[str, Any]:
    """A yes-no question."""
    return {"type": "noul", "instructions": text}


def score(text: str, *levels: str) -> dict[str, Any]:
    """A question on a scale."""
    return {"type": "score", "instructions": text, "criteria": list(levels)}


def number(text: str, **limits: Any) -> dict[str, Any]:
    """A question for a number."""
    return {"type": "number", "instructions": text, **limits}


def words(text: str) -> dict[str, Any]:
    """A question for a few words."""
    return {"type": "text", "instructions": text}


FILL = ("empty", "a quarter full", "half full", "three quarters full", "full")
SAMPLES = (
    Sample(
        "street.png",
        (1280, 720),
        "gradient",
        {
            "sign": (words("What does the sign say?"), "MARKET"),
            "vehicle": (choice("Which colour is the car?", "blue", "red", "green", "white"), "red"),
            "house": (yes_no("Is the house to the left of the car?"), True),
            "trees": (number("How many trees are there?"), 2),
        },
        items=(
            ("house", "brown", 0.16, 0.66, 0.2),
            ("tree", "green", 0.4, 0.62, 0.15),
            ("tree", "green", 0.88, 0.6, 0.17),
            ("car", "red", 0.64, 0.76, 0.14),
        ),
        boards=(("rounded", "blue", "white", "MARKET", (0.44, 0.08, 0.82, 0.3)),),
    ),
    Sample(
        "shelf.jpg",
        (800, 600),
        "plain",
        {
            "empty": (yes_no("Is the shelf empty?"), False),
            "bottles": (number("How many bottles are on the shelf?", min=0, max=20, step=1), 5),
            "blue": (score("How many bottles are blue?", "none", "one", "two", "three or more"), 2),
        },
        items=(
            *(("bottle", "red", x, 0.355, 0.11) for x in (0.2, 0.4, 0.6)),
            *(("bottle", "blue", x, 0.775, 0.11) for x in (0.3, 0.7)),
        ),
        shelves=(0.46, 0.88),
        wear=0.5,
    ),
    Sample(
        "shelf-empty.jpg",
        (800, 600),
        "gradient",
        {
            "empty": (yes_no("Is the shelf empty?"), True),
            "bottles": (number("How many bottles are on the shelf?"), 0),
        },
        shelves=(0.42, 0.86),
        wear=0.5,
    ),
    Sample(
        "door.jpg",
        (600, 800),
        "mottled",
        {
            "plate": (number("What number is on the door plate?"), 427),
            "same": (yes_no("Is the number on the door plate greater than 400?"), True),
            "color": (
                choice("What colour is the plate?", "white", "black", "yellow", "blue", "none of these"),
                "yellow",
            ),
        },
        boards=(("rectangle", "yellow", "black", "427", (0.28, 0.3, 0.74, 0.46)),),
        wear=1.0,
    ),
    Sample(
        "cheese.jpg",
        (640, 480),
        "plain",
        {
            "price": (number("What number is on the label?", unit="cents"), 349),
            "product": (words("Which word is printed on the label?"), "Cheese"),
            "kind": (
                choice("What is sold here?", cheese="a dairy product", bread="from the bakery", juice="a drink"),
                "cheese",
            ),
        },
        boards=(("rounded", "white", "black", "Cheese\n349", (0.2, 0.22, 0.8, 0.72)),),
        wear=1.0,
    ),
    Sample(
        "battery.png",
        (800, 640),
        "plain",
        {
            "level": (score("How full is the battery?", *FILL), 3),
            "half": (yes_no("Is the battery more than half full?"), True),
            "percent": (number("How many percent of the battery is full?", unit="percent", min=0, max=100), 75),
        },
        gauge=("battery", "green", 3, (0.2, 0.32, 0.78, 0.62)),
    ),
    Sample(
        "crossing.jpg",
        (600, 900),
        "gradient",
        {
            "light": (choice("Which light is on?", "red", "yellow", "green"), "red"),
            "go": (yes_no("May cars go now?"), False),
            "car": (yes_no("Is there a blue car in the picture?"), True),
        },
        items=(("car", "blue", 0.68, 0.82, 0.2),),
        light=("red", (0.16, 0.1, 0.46, 0.58)),
        wear=1.0,
    ),
    Sample(
        "shapes.png",
        (900, 600),
        "plain",
        {
            "largest": (choice("Which shape is the largest?", "circle", "star", "heart", "ring"), "star"),
            "where": (
                choice("Where is the heart?", "top left", "top right", "bottom left", "bottom right"),
                "bottom left",
            ),
            "count": (number("How many shapes are shown?"), 4),
            "more": (yes_no("Is there a green triangle?"), False),
            "orange": (choice("Which shape is orange?", "heart", "ring", "square", "none of these"), "ring"),
        },
        items=(
            ("star", "purple", 0.36, 0.36, 0.26),
            ("circle", "blue", 0.78, 0.26, 0.12),
            ("heart", "red", 0.18, 0.8, 0.13),
            ("ring", "orange", 0.74, 0.74, 0.15),
        ),
    ),
    Sample(
        "tags.jpg",
        (1024, 768),
        "clutter",
        {
            "red": (number("What number is on the red tag?"), 58),
            "green": (words("What does the green tag say?"), "fragile"),
            "which": (choice("Which colour is the tag with 2031?", "red", "green", "yellow"), "yellow"),
            "tags": (number("How many tags can you see?"), 3),
        },
        boards=(
            ("rounded", "red", "white", "58", (0.1, 0.14, 0.3, 0.28)),
            ("rounded", "green", "white", "fragile", (0.5, 0.24, 0.86, 0.38)),
            ("rounded", "yellow", "black", "2031", (0.22, 0.62, 0.56, 0.78)),
        ),
        wear=0.6,
    ),
    Sample(
        "way-out.jpg",
        (720, 1280),
        "stripes",
        {
            "way": (choice("Which way does the arrow point?", "up", "down", "left", "right"), "left"),
            "word": (words("Read the sign."), "EXIT"),
            "right": (yes_no("Does the arrow point to the right?"), False),
        },
        items=(("arrow", "white", 0.5, 0.7, 0.26),),
        boards=(("rectangle", "green", "white", "EXIT", (0.2, 0.22, 0.8, 0.38)),),
        direction="left",
        wear=0.4,
    ),
    Sample(
        "flowers.jpg",
        (1000, 500),
        "haze",
        {
            "flowers": (number("How many flowers do you see?"), 6),
            "pink": (score("How many flowers are pink?", "0", "1", "2", "3", "4 or more"), 2),
            "more": (yes_no("Are there more red flowers than pink flowers?"), True),
        },
        items=tuple(
            ("flower", color, x, y, 0.13)
            for color, x, y in (
                ("red", 0.1, 0.3),
                ("pink", 0.27, 0.7),
                ("red", 0.43, 0.28),
                ("red", 0.6, 0.72),
                ("pink", 0.76, 0.3),
                ("red", 0.91, 0.66),
            )
        ),
        wear=0.5,
    ),
    Sample(
        "parcel.jpg",
        (960, 540),
        "clutter",
        {
            "code": (number("What number is printed on the label?"), 7160),
            "matches": (yes_no("Is the number on the label 7160?"), True),
            "city": (words("What is the city?"), "Bergen"),
            "order": (number("What is the order?"), 8812),
        },
        boards=(("rectangle", "white", "black", "7160", (0.34, 0.34, 0.66, 0.6)),),
        state={"order": 8812, "city": "Bergen", "image": "photo"},
        wear=0.6,
    ),
)


def draw(sample: Sample, book: fonts.FontBook, seed: int) -> Any:
    """The picture of a sample."""
    rng = random.Random(seed)
    width, height = sample.size
    grid = grid_for(width, height, BUDGET)
    zoom = (width * height / (grid.num_patches * 256)) ** 0.5
    made = Scene(round(width / zoom), round(height / zoom), zoom, "sample", sample.background)
    w, h, side = made.width, made.height, min(made.width, made.height)

    def box(part: tuple[float, float, float, float]) -> Area:
        return part[0] * w, part[1] * h, part[2] * w, part[3] * h

    for shape, color, x, y, radius in sample.items:
        made.items.append(Item(shape, color, x * w, y * h, radius * side, sample.direction))
    for form, color, ink, text, part in sample.boards:
        lines = tuple(Line(line, line.isdigit()) for line in text.split("\n"))
        made.boards.append(Board(form, color, ink, lines, box(part)))
    made.families = tuple(rng.choice(list(book.families)) for _ in made.boards)
    if sample.gauge:
        form, color, level, part = sample.gauge
        made.gauge = Gauge(form, color, level, box(part))
    if sample.light:
        made.light, made.light_box = sample.light[0], box(sample.light[1])
    made.shelves = tuple(y * h for y in sample.shelves)
    named = [color for _, color, *_ in (*sample.items, *sample.boards)]
    while True:  # a background that everything stands out from
        image, tones = backgrounds.paint(rng, made.background, round(w * zoom), round(h * zoom))
        if all(backgrounds.distance(backgrounds.COLORS[c], tone) > 120 for c in named for tone in tones):
            break
    picture = scene.draw(made, Backdrop(image, tuple(tones)), book, rng, sample.wear)
    return picture if picture.size == sample.size else picture.resize(sample.size)


def main() -> None:
    """Draw them all and write the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--assets", type=Path, default=None)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    book = fonts.FontBook(Assets(args.assets).fonts, "heldout")
    listed = []
    for seed, sample in enumerate(SAMPLES):
        picture = draw(sample, book, seed)
        options = {"optimize": True} if sample.file.endswith(".png") else {"quality": 76}
        picture.save(args.out / sample.file, **options)
        listed.append(
            {
                "file": sample.file,
                "asset": "photo",
                "state": sample.state,
                "questions": {name: question for name, (question, _) in sample.questions.items()},
                "expected": {name: answer for name, (_, answer) in sample.questions.items()},
            }
        )
    (args.out / "samples.json").write_text(json.dumps(listed, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
