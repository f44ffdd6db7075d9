"""Silhouettes of the things that pictures show: each a mask in its own square, drawn twice as large and reduced.

It knows nothing of colours, places or questions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from PIL import Image, ImageDraw

Point = tuple[float, float]
SHAPES = (
    "circle",
    "square",
    "triangle",
    "star",
    "hexagon",
    "heart",
    "cross",
    "ring",
    "arrow",
    "diamond",
    "moon",
    "house",
    "tree",
    "car",
    "fish",
    "cup",
    "flower",
    "cloud",
    "bottle",
)
DIRECTIONS = ("up", "right", "down", "left")
_NO_TURN = {"house", "tree", "car", "cup", "arrow", "bottle", "diamond", "cross", "square"}


class _Pen:
    """Draws in units of the square's half side, the origin in its middle, y downwards."""

    def __init__(self, side: int) -> None:
        self.image = Image.new("L", (side, side), 0)
        self._draw = ImageDraw.Draw(self.image)
        self._half = side / 2

    def _at(self, point: Point) -> Point:
        return self._half * (1 + point[0]), self._half * (1 + point[1])

    def polygon(self, points: list[Point], fill: int = 255) -> None:
        self._draw.polygon([self._at(p) for p in points], fill=fill)

    def disc(self, x: float, y: float, rx: float, ry: float | None = None, fill: int = 255) -> None:
        ry = rx if ry is None else ry
        self._draw.ellipse([*self._at((x - rx, y - ry)), *self._at((x + rx, y + ry))], fill=fill)

    def box(self, x0: float, y0: float, x1: float, y1: float, fill: int = 255) -> None:
        self._draw.rectangle([*self._at((x0, y0)), *self._at((x1, y1))], fill=fill)


def _regular(count: int, radius: float = 0.98, start: float = -90.0) -> list[Point]:
    angles = [math.radians(start + 360 * i / count) for i in range(count)]
    return [(radius * math.cos(a), radius * math.sin(a)) for a in angles]


def _star(pen: _Pen) -> None:
    outer, inner = _regular(5), _regular(5, 0.42, -54)
    pen.polygon([p for pair in zip(outer, inner, strict=True) for p in pair])


def _heart(pen: _Pen) -> None:
    points = []
    for i in range(48):
        t = 2 * math.pi * i / 48
        x = 16 * math.sin(t) ** 3
        y = 13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)
        points.append((x / 17, -(y + 2) / 16))
    pen.polygon(points)


def _cross(pen: _Pen) -> None:
    pen.box(-0.3, -0.95, 0.3, 0.95)
    pen.box(-0.95, -0.3, 0.95, 0.3)


def _ring(pen: _Pen) -> None:
    pen.disc(0, 0, 0.96)
    pen.disc(0, 0, 0.52, fill=0)


def _arrow(pen: _Pen) -> None:
    pen.polygon([(0, -0.98), (0.8, -0.1), (0.3, -0.1), (0.3, 0.95), (-0.3, 0.95), (-0.3, -0.1), (-0.8, -0.1)])


def _moon(pen: _Pen) -> None:
    pen.disc(0, 0, 0.95)
    pen.disc(0.45, -0.1, 0.78, fill=0)


def _house(pen: _Pen) -> None:
    pen.polygon([(-0.98, -0.1), (0, -0.95), (0.98, -0.1)])
    pen.box(-0.75, -0.1, 0.75, 0.9)
    pen.box(-0.18, 0.3, 0.2, 0.9, fill=90)
    pen.box(-0.55, 0.05, -0.28, 0.35, fill=90)


def _tree(pen: _Pen) -> None:
    pen.box(-0.15, 0.3, 0.15, 0.97, fill=130)
    for x, y, r in ((0, -0.5, 0.46), (-0.4, -0.05, 0.44), (0.4, -0.05, 0.44), (0, 0.05, 0.45)):
        pen.disc(x, y, r)


def _car(pen: _Pen) -> None:
    pen.polygon([(-0.55, -0.1), (-0.35, -0.55), (0.35, -0.55), (0.6, -0.1)])
    pen.box(-0.97, -0.1, 0.97, 0.4)
    for x in (-0.52, 0.52):
        pen.disc(x, 0.42, 0.25, fill=110)
    pen.polygon([(-0.36, -0.1), (-0.25, -0.42), (-0.04, -0.42), (-0.04, -0.1)], fill=90)


def _fish(pen: _Pen) -> None:
    pen.disc(-0.18, 0, 0.76, 0.46)
    pen.polygon([(0.4, 0), (0.97, -0.5), (0.97, 0.5)])
    pen.disc(-0.6, -0.1, 0.09, fill=60)


def _cup(pen: _Pen) -> None:
    pen.disc(0.5, 0, 0.42)
    pen.disc(0.5, 0, 0.24, fill=0)
    pen.polygon([(-0.8, -0.65), (0.5, -0.65), (0.4, 0.8), (-0.7, 0.8)])


def _flower(pen: _Pen) -> None:
    for x, y in _regular(6, 0.58):
        pen.disc(x, y, 0.38)
    pen.disc(0, 0, 0.3, fill=80)


def _cloud(pen: _Pen) -> None:
    for x, y, r in ((-0.5, 0.12, 0.4), (0.05, -0.2, 0.5), (0.55, 0.1, 0.4)):
        pen.disc(x, y, r)
    pen.box(-0.5, 0.05, 0.55, 0.52)


def _bottle(pen: _Pen) -> None:
    pen.box(-0.14, -0.97, 0.14, -0.4)
    pen.disc(0, -0.2, 0.42, 0.35)
    pen.box(-0.42, -0.2, 0.42, 0.97)
    pen.box(-0.42, 0.15, 0.42, 0.55, fill=120)


_DRAW: dict[str, Callable[[_Pen], None]] = {
    "circle": lambda pen: pen.disc(0, 0, 0.96),
    "square": lambda pen: pen.box(-0.84, -0.84, 0.84, 0.84),
    "triangle": lambda pen: pen.polygon([(0, -0.92), (0.95, 0.8), (-0.95, 0.8)]),
    "star": _star,
    "hexagon": lambda pen: pen.polygon(_regular(6, start=0)),
    "heart": _heart,
    "cross": _cross,
    "ring": _ring,
    "arrow": _arrow,
    "diamond": lambda pen: pen.polygon([(0, -0.98), (0.66, 0), (0, 0.98), (-0.66, 0)]),
    "moon": _moon,
    "house": _house,
    "tree": _tree,
    "car": _car,
    "fish": _fish,
    "cup": _cup,
    "flower": _flower,
    "cloud": _cloud,
    "bottle": _bottle,
}


def silhouette(shape: str, side: int, turn: float = 0.0, direction: str = "up") -> Image.Image:
    """A mask of `side` pixels: 255 where the shape's own colour goes, less where its details are darker, 0 outside.

    `turn` is a small rotation in degrees; an arrow is first turned to its `direction`.
    """
    pen = _Pen(2 * side)
    _DRAW[shape](pen)
    mask = pen.image
    if shape == "arrow":
        turn -= 90 * DIRECTIONS.index(direction)
    if turn:
        mask = mask.rotate(turn, Image.Resampling.BILINEAR)
    return mask.reduce(2)


def most_turn(shape: str) -> float:
    """How far a shape may be turned and still be what it is called, in degrees."""
    return 8.0 if shape in _NO_TURN else 14.0
