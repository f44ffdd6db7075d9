"""Charts: bars upright or lying, lines and pies, with names and often values to read."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ops.train.backgrounds import COLORS, Rgb, shade
from ops.train.families.world import World, placed
from ops.train.marks import Box

if TYPE_CHECKING:
    from ops.train.scene import Canvas, Scene

FORMS = {"bar": "a bar chart", "lying": "a bar chart", "line": "a line chart", "pie": "a pie chart"}
_SERIES = (
    ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
    ("Alpha", "Beta", "Gamma", "Delta", "Sigma", "Omega"),
    ("Q1", "Q2", "Q3", "Q4"),
    ("2019", "2020", "2021", "2022", "2023", "2024", "2025"),
    ("North", "South", "East", "West"),
)
_TINTS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown")
_INK: Rgb = (30, 30, 34)


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart of whole values. `step` is the distance of the ticks, 0 where there is no axis of values."""

    form: str
    names: tuple[str, ...]
    values: tuple[int, ...]
    colors: tuple[str, ...]
    step: int
    printed: bool  # each value stands at its bar
    title: str
    font: str
    size: float
    box: Box
    look: int

    @property
    def top(self) -> int:
        """The value at the end of the axis."""
        return self.step * math.ceil(max(self.values) / self.step) if self.step else max(self.values)

    def paint(self, canvas: Canvas) -> None:
        """A light panel with the chart on it."""
        rng = random.Random(self.look)
        tone = shade(rng, (250, 250, 248), 6)
        canvas.pen().rectangle(canvas.scaled(*self.box), fill=tone, outline=rng.choice((None, (120, 120, 120))))
        x0, y0, x1, y1 = self.box
        if self.title:
            canvas.print(self.title, (x0 + x1) / 2, y0 + self.size * 1.3, self.size * 1.1, self.font, _INK, "m")
            y0 += self.size * 1.5
        inner = (x0 + self.size, y0 + self.size, x1 - self.size, y1 - self.size)
        {"bar": self._upright, "line": self._upright, "lying": self._lying, "pie": self._pie}[self.form](
            canvas, inner, rng
        )

    def _tint(self, rng: random.Random, i: int) -> Rgb:
        return shade(rng, COLORS[self.colors[i]], 10)

    def _mark(self, canvas: Canvas, i: int, box: Box) -> None:
        """What stands for a value, for the auxiliary loss: which of its chart it is, and its colour."""
        low, high, value = min(self.values), max(self.values), self.values[i]
        rank = "highest" if value == high else "lowest" if value == low else "between"
        canvas.mark(f"bar {rank}", box, self.colors[0 if self.form == "line" else i])

    def _upright(self, canvas: Canvas, inner: Box, rng: random.Random) -> None:
        x0, y0, x1, y1 = inner
        pen, size = canvas.pen(), self.size
        x0 += size * (0.6 * len(str(self.top)) + 0.4) if self.step else 0
        y1 -= size * 1.2
        y0 += size if self.printed else 0
        high = y1 - y0
        for tick in range(0, self.top + 1, self.step) if self.step else ():
            y = y1 - high * tick / self.top
            pen.line(canvas.scaled(x0, y, x1, y), fill=(200, 200, 204), width=1)
            canvas.print(str(tick), x0 - size * 0.3, y + size * 0.33, size, self.font, _INK, "r")
        pen.line(canvas.scaled(x0, y1, x1, y1), fill=_INK, width=max(1, round(canvas.zoom * 1.5)))
        gap = (x1 - x0) / len(self.names)
        points: list[tuple[float, float]] = []
        half = gap * rng.uniform(0.25, 0.42)
        for i, (name, value) in enumerate(zip(self.names, self.values, strict=True)):
            x, y = x0 + gap * (i + 0.5), y1 - high * value / self.top
            points.append((x, y))
            if self.form == "bar":
                pen.rectangle(canvas.scaled(x - half, y, x + half, y1), fill=self._tint(rng, i))
                self._mark(canvas, i, (x - half, y, x + half, y1))
            canvas.print(name, x, y1 + size * 1.05, size, self.font, _INK, "m")
            if self.printed:
                canvas.print(str(value), x, y - size * 0.35, size, self.font, _INK, "m")
        if self.form == "line":
            flat = [v for point in points for v in canvas.scaled(*point)]
            pen.line(flat, fill=self._tint(rng, 0), width=max(2, round(canvas.zoom * 3)), joint="curve")
            for i, (x, y) in enumerate(points):
                pen.ellipse(canvas.scaled(x - 4, y - 4, x + 4, y + 4), fill=self._tint(rng, 0))
                self._mark(canvas, i, (x - 8, y - 8, x + 8, y + 8))

    def _lying(self, canvas: Canvas, inner: Box, rng: random.Random) -> None:
        x0, y0, x1, y1 = inner
        pen, size = canvas.pen(), self.size
        x0 += size * (0.62 * max(map(len, self.names)) + 0.4)
        x1 -= size * (0.62 * len(str(self.top)) + 0.3)
        y1 -= size * 1.2 if self.step else 0
        for tick in range(0, self.top + 1, self.step) if self.step else ():
            x = x0 + (x1 - x0) * tick / self.top
            pen.line(canvas.scaled(x, y0, x, y1), fill=(200, 200, 204), width=1)
            canvas.print(str(tick), x, y1 + size, size, self.font, _INK, "m")
        gap = (y1 - y0) / len(self.names)
        half = gap * rng.uniform(0.25, 0.4)
        for i, (name, value) in enumerate(zip(self.names, self.values, strict=True)):
            y, x = y0 + gap * (i + 0.5), x0 + (x1 - x0) * value / self.top
            pen.rectangle(canvas.scaled(x0, y - half, x, y + half), fill=self._tint(rng, i))
            self._mark(canvas, i, (x0, y - half, x, y + half))
            canvas.print(name, x0 - size * 0.3, y + size * 0.33, size, self.font, _INK, "r")
            if self.printed:
                canvas.print(str(value), x + size * 0.25, y + size * 0.33, size, self.font, _INK)

    def _pie(self, canvas: Canvas, inner: Box, rng: random.Random) -> None:
        """Slices from the top, clockwise; the names stand at the right with their colours."""
        x0, y0, x1, y1 = inner
        pen, size = canvas.pen(), self.size
        legend = size * (0.62 * max(len(n) + (5 if self.printed else 0) for n in self.names) + 2)
        radius = min(y1 - y0, x1 - x0 - legend) / 2
        cx, cy, whole, at = x0 + radius, (y0 + y1) / 2, sum(self.values), -90.0
        for i, value in enumerate(self.values):
            turn = 360 * value / whole
            circle = canvas.scaled(cx - radius, cy - radius, cx + radius, cy + radius)
            pen.pieslice(circle, at, at + turn, fill=self._tint(rng, i), outline=(250, 250, 250))
            at += turn
        for i, (name, value) in enumerate(zip(self.names, self.values, strict=True)):
            y = cy + (i - len(self.names) / 2 + 0.75) * size * 1.5
            x = x1 - legend + size * 0.6
            pen.rectangle(canvas.scaled(x, y - size * 0.75, x + size * 0.8, y), fill=self._tint(rng, i))
            self._mark(canvas, i, (x, y - size * 0.85, x + size * 0.9, y + size * 0.1))
            said = f"{name} {value}" if self.printed else name
            canvas.print(said, x + size * 1.2, y, size, self.font, _INK)


def _names(rng: random.Random, world: World, count: int) -> tuple[str, ...]:
    if rng.random() < 0.55:
        series = rng.choice([s for s in _SERIES if len(s) >= count] or [_SERIES[0]])
        start = rng.randint(0, len(series) - count)
        return series[start : start + count]
    found: set[str] = set()
    while len(found) < count:
        word = world.word(rng).capitalize()
        if 2 < len(word) < 7:
            found.add(word)
    return tuple(sorted(found, key=lambda _: rng.random()))


def compose(rng: random.Random, made: Scene, tones: tuple[Rgb, ...], world: World) -> None:
    """One chart with values that differ enough to be told apart."""
    form = rng.choices(tuple(FORMS), (40, 20, 22, 18))[0]
    count = rng.randint(3, 4 if form == "pie" else 6)
    names = _names(rng, world, count)
    size = rng.uniform(15, 22)
    unit = rng.choice((1, 2, 5, 5, 10, 10, 20, 100))
    while True:
        values = [unit * rng.randint(1, 10) for _ in range(count)]
        if form == "line" and rng.random() < 0.5:
            values.sort(reverse=rng.random() < 0.5)
        top_two = sorted(values)[-2:]
        if top_two[0] < top_two[1] and sorted(values)[0] < sorted(values)[1]:
            break
    printed = rng.random() < (0.7 if form == "pie" else 0.45) and form != "line"
    step = 0 if form == "pie" or (printed and rng.random() < 0.6) else unit * rng.choice((1, 2, 2, 5))
    if step and max(values) / step > 10:
        step = unit * 2
    if len(set(values)) < count and form == "pie":
        values = [unit * n for n in rng.sample(range(1, 11), count)]
    colors = rng.sample(_TINTS, count) if form == "pie" or rng.random() < 0.5 else [rng.choice(_TINTS)] * count
    needed = size * (0.66 * sum(len(name) + 1 for name in names) + 5)
    width = min(made.width - 10, max(needed, made.width * rng.uniform(0.6, 0.97)))
    if needed > width and form in ("bar", "line"):
        size *= width / needed
    height = min(made.height - 10.0, max(made.height * rng.uniform(0.55, 0.95), size * 9))
    title = world.word(rng).capitalize() if rng.random() < 0.3 else ""
    box = placed(rng, made, width, height)
    made.parts.append(
        Chart(
            form,
            names,
            tuple(values),
            tuple(colors),
            step,
            printed,
            title,
            world.font(rng),
            size,
            box,
            rng.getrandbits(30),
        )
    )
    made.named.append(("chart", box))
