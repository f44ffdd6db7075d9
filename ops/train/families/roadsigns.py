"""Traffic signs and pictograms, painted from simple forms after the European ones."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw

from ops.train.backgrounds import Rgb, shade
from ops.train.families.stickers import name_alone, spots
from ops.train.families.world import World
from ops.train.marks import Box
from ops.train.things import ROAD_SIGNS

if TYPE_CHECKING:
    from ops.train.scene import Canvas, Scene

RED, BLUE, GREEN, YELLOW = (200, 24, 36), (20, 82, 170), (10, 130, 76), (246, 206, 30)
WHITE, BLACK, GREY = (250, 250, 250), (18, 18, 20), (110, 110, 112)
_LOW = {"one way": 0.5, "emergency exit": 0.72}  # height for their width, where a sign is not as high as wide
LIMITS = (20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130)


class Enamel:
    """Draws in units of the half side, the origin in the middle, y downwards; a tile twice as large as it will be."""

    def __init__(self, side: int, rng: random.Random) -> None:
        self.image = Image.new("RGBA", (2 * side, 2 * side), (0, 0, 0, 0))
        self._draw, self._half, self._rng = ImageDraw.Draw(self.image), side, rng
        self._tones: dict[Rgb, Rgb] = {}

    def _tone(self, color: Rgb) -> Rgb:
        return self._tones.setdefault(color, shade(self._rng, color, 12))

    def _at(self, *values: float) -> list[float]:
        return [self._half * (1 + v) for v in values]

    def polygon(self, color: Rgb, *points: tuple[float, float]) -> None:
        self._draw.polygon([self._half * (1 + v) for p in points for v in p], fill=self._tone(color))

    def disc(self, color: Rgb, radius: float, x: float = 0, y: float = 0) -> None:
        self._draw.ellipse(self._at(x - radius, y - radius, x + radius, y + radius), fill=self._tone(color))

    def box(self, color: Rgb, x0: float, y0: float, x1: float, y1: float, round_by: float = 0) -> None:
        radius = round(self._half * round_by)
        self._draw.rounded_rectangle(self._at(x0, y0, x1, y1), radius, fill=self._tone(color))

    def line(self, color: Rgb, width: float, *points: tuple[float, float]) -> None:
        flat = [self._half * (1 + v) for p in points for v in p]
        self._draw.line(flat, fill=self._tone(color), width=max(1, round(self._half * width)), joint="curve")

    def arc(self, color: Rgb, width: float, radius: float, start: float, end: float) -> None:
        box = self._at(-radius, -radius, radius, radius)
        self._draw.arc(box, start, end, fill=self._tone(color), width=max(1, round(self._half * width)))

    def text(self, color: Rgb, text: str, size: float, y: float = 0.0) -> None:
        from ops.train.fonts import BUILT_IN, load

        at = self._half, self._half * (1 + y)
        font = load(BUILT_IN, max(8, round(self._half * size)))
        self._draw.text(at, text, font=font, fill=self._tone(color), anchor="mm", stroke_width=max(1, self._half // 50))

    def forbidden(self) -> None:
        """A white disc with a red ring."""
        self.disc(RED, 0.96)
        self.disc(WHITE, 0.74)

    def warning(self) -> None:
        """A white triangle with a red edge."""
        self.polygon(RED, (0, -0.92), (0.98, 0.82), (-0.98, 0.82))
        self.polygon(WHITE, (0, -0.52), (0.64, 0.62), (-0.64, 0.62))

    def arrow(self, color: Rgb, turn: float, scale: float = 1.0, x: float = 0, y: float = 0) -> None:
        """Upwards, turned clockwise by degrees."""
        cos, sin = math.cos(math.radians(turn)), math.sin(math.radians(turn))
        form = ((0, -0.6), (0.36, -0.16), (0.13, -0.16), (0.13, 0.6), (-0.13, 0.6), (-0.13, -0.16), (-0.36, -0.16))
        self.polygon(color, *((x + scale * (a * cos - b * sin), y + scale * (a * sin + b * cos)) for a, b in form))

    def bent(self, color: Rgb, way: int) -> None:
        """An arrow from below that turns to the right (1) or left (-1)."""
        self.line(color, 0.22, (-0.2 * way, 0.6), (-0.2 * way, -0.1), (0.2 * way, -0.1))
        self.polygon(color, (0.2 * way, -0.42), (0.2 * way, 0.22), (0.6 * way, -0.1))

    def walker(self, color: Rgb, x: float = 0) -> None:
        """A person walking."""
        self.disc(color, 0.1, x + 0.02, -0.3)
        self.line(color, 0.13, (x, -0.18), (x, 0.12))
        self.line(color, 0.08, (x, 0.1), (x + 0.18, 0.46))
        self.line(color, 0.08, (x, 0.1), (x - 0.18, 0.46))
        self.line(color, 0.07, (x - 0.2, 0.06), (x, -0.12), (x + 0.2, 0.04))


def _octagon(radius: float) -> list[tuple[float, float]]:
    return [
        (radius * math.cos(math.radians(22.5 + 45 * i)), radius * math.sin(math.radians(22.5 + 45 * i)))
        for i in range(8)
    ]


def _stop(e: Enamel, n: int) -> None:
    e.polygon(WHITE, *_octagon(1.0))
    e.polygon(RED, *_octagon(0.92))
    e.text(WHITE, "STOP", 0.62)


def _give_way(e: Enamel, n: int) -> None:
    e.polygon(RED, (0, 0.92), (0.98, -0.8), (-0.98, -0.8))
    e.polygon(WHITE, (0, 0.5), (0.6, -0.58), (-0.6, -0.58))


def _no_entry(e: Enamel, n: int) -> None:
    e.disc(RED, 0.96)
    e.box(WHITE, -0.68, -0.17, 0.68, 0.17)


def _limit(e: Enamel, n: int) -> None:
    e.forbidden()
    e.text(BLACK, str(n), 0.86 if n < 100 else 0.64)


def _end_limit(e: Enamel, n: int) -> None:
    e.disc(GREY, 0.96)
    e.disc(WHITE, 0.88)
    for shift in (-0.16, 0.0, 0.16):
        e.line(BLACK, 0.05, (-0.5 + shift, 0.62), (0.5 + shift, -0.62))


def _no_parking(e: Enamel, n: int) -> None:
    e.disc(RED, 0.96)
    e.disc(BLUE, 0.76)
    e.line(RED, 0.18, (-0.55, -0.55), (0.55, 0.55))


def _no_stopping(e: Enamel, n: int) -> None:
    _no_parking(e, n)
    e.line(RED, 0.18, (-0.55, 0.55), (0.55, -0.55))


def _priority(e: Enamel, n: int) -> None:
    e.polygon(WHITE, (0, -0.98), (0.98, 0), (0, 0.98), (-0.98, 0))
    e.polygon(YELLOW, (0, -0.68), (0.68, 0), (0, 0.68), (-0.68, 0))


def _danger(e: Enamel, n: int) -> None:
    e.warning()
    e.polygon(BLACK, (-0.1, -0.25), (0.1, -0.25), (0.05, 0.22), (-0.05, 0.22))
    e.disc(BLACK, 0.09, 0, 0.42)


def _crossroads(e: Enamel, n: int) -> None:
    e.warning()
    e.line(BLACK, 0.12, (-0.24, 0.02), (0.24, 0.5))
    e.line(BLACK, 0.12, (0.24, 0.02), (-0.24, 0.5))


def _roundabout(e: Enamel, n: int) -> None:
    e.disc(BLUE, 0.96)
    for start in (0, 120, 240):
        e.arc(WHITE, 0.16, 0.56, start + 20, start + 100)
        angle = math.radians(start + 112)
        x, y = 0.48 * math.cos(angle), 0.48 * math.sin(angle)
        along = (-math.sin(angle) * 0.26, math.cos(angle) * 0.26)
        out = (math.cos(angle) * 0.2, math.sin(angle) * 0.2)
        e.polygon(WHITE, (x + along[0], y + along[1]), (x + out[0], y + out[1]), (x - out[0], y - out[1]))


def _round_arrow(turn: float) -> Callable[[Enamel, int], None]:
    def paint(e: Enamel, n: int) -> None:
        e.disc(BLUE, 0.96)
        e.arrow(WHITE, turn)

    return paint


def _no_turn(way: int) -> Callable[[Enamel, int], None]:
    def paint(e: Enamel, n: int) -> None:
        e.forbidden()
        e.bent(BLACK, way)
        e.line(RED, 0.12, (-0.5, -0.5), (0.5, 0.5))

    return paint


def _bend(way: int) -> Callable[[Enamel, int], None]:
    def paint(e: Enamel, n: int) -> None:
        e.warning()
        e.line(BLACK, 0.13, (-0.12 * way, 0.54), (-0.12 * way, 0.3), (0.14 * way, 0.04))
        e.polygon(BLACK, (0.24 * way, -0.16), (0.3 * way, 0.16), (-0.04 * way, -0.06))

    return paint


def _crossing(e: Enamel, n: int) -> None:
    e.box(BLUE, -0.94, -0.94, 0.94, 0.94, 0.08)
    e.polygon(WHITE, (0, -0.72), (0.72, 0.62), (-0.72, 0.62))
    e.walker(BLACK)
    for x in (-0.4, -0.14, 0.12, 0.38):
        e.box(BLACK, x - 0.06, 0.48, x + 0.06, 0.58)


def _dead_end(e: Enamel, n: int) -> None:
    e.box(BLUE, -0.94, -0.94, 0.94, 0.94, 0.08)
    e.box(WHITE, -0.13, -0.3, 0.13, 0.8)
    e.box(RED, -0.42, -0.6, 0.42, -0.3)


def _lettered(color: Rgb, letter: str) -> Callable[[Enamel, int], None]:
    def paint(e: Enamel, n: int) -> None:
        e.box(color, -0.94, -0.94, 0.94, 0.94, 0.08)
        e.text(WHITE, letter, 1.4)

    return paint


def _one_way(e: Enamel, n: int) -> None:
    e.box(BLUE, -0.98, -0.5, 0.98, 0.5, 0.06)
    e.arrow(WHITE, 90 if n % 20 else -90, 1.1)


def _exit(e: Enamel, n: int) -> None:
    e.box(GREEN, -0.98, -0.72, 0.98, 0.72, 0.06)
    e.walker(WHITE, -0.45)
    e.box(WHITE, 0.3, -0.5, 0.8, 0.56)
    e.arrow(WHITE, 90, 0.36, -0.02, 0.0)


def _first_aid(e: Enamel, n: int) -> None:
    e.box(GREEN, -0.94, -0.94, 0.94, 0.94, 0.08)
    e.box(WHITE, -0.2, -0.65, 0.2, 0.65)
    e.box(WHITE, -0.65, -0.2, 0.65, 0.2)


def _no_smoking(e: Enamel, n: int) -> None:
    e.forbidden()
    e.box(BLACK, -0.55, 0.02, 0.4, 0.2)
    e.line(BLACK, 0.05, (0.45, 0.0), (0.5, -0.2), (0.42, -0.35))
    e.line(RED, 0.14, (-0.5, -0.5), (0.5, 0.5))


def _shock(e: Enamel, n: int) -> None:
    e.polygon(BLACK, (0, -0.92), (0.98, 0.82), (-0.98, 0.82))
    e.polygon(YELLOW, (0, -0.68), (0.8, 0.72), (-0.8, 0.72))
    e.polygon(BLACK, (0.12, -0.3), (-0.2, 0.24), (0.0, 0.2), (-0.1, 0.6), (0.22, 0.08), (0.02, 0.12))


def _wireless(e: Enamel, n: int) -> None:
    e.box(BLUE, -0.94, -0.94, 0.94, 0.94, 0.2)
    for radius in (0.34, 0.62, 0.9):
        e.arc(WHITE, 0.14, radius, 225, 315)
    e.disc(WHITE, 0.11, 0, 0.1)


_PAINT: dict[str, Callable[[Enamel, int], None]] = {
    "stop": _stop,
    "give way": _give_way,
    "no entry": _no_entry,
    "speed limit": _limit,
    "end of speed limit": _end_limit,
    "no parking": _no_parking,
    "no stopping": _no_stopping,
    "no vehicles": lambda e, n: e.forbidden(),
    "parking": _lettered(BLUE, "P"),
    "one way": _one_way,
    "priority road": _priority,
    "danger": _danger,
    "crossroads": _crossroads,
    "roundabout": _roundabout,
    "turn left": _round_arrow(-90),
    "turn right": _round_arrow(90),
    "straight ahead": _round_arrow(0),
    "no left turn": _no_turn(-1),
    "no right turn": _no_turn(1),
    "pedestrian crossing": _crossing,
    "dead end": _dead_end,
    "hospital": _lettered(BLUE, "H"),
    "bend to the left": _bend(-1),
    "bend to the right": _bend(1),
    "emergency exit": _exit,
    "first aid": _first_aid,
    "no smoking": _no_smoking,
    "electric shock": _shock,
    "wireless network": _wireless,
    "information": _lettered(BLUE, "i"),
}


@dataclass(frozen=True, slots=True)
class RoadSign:
    """One sign; `limit` is the number on a speed limit."""

    name: str
    limit: int
    box: Box
    seed: int
    sort: str = "sign"

    @property
    def tight(self) -> Box:
        """Without what is bare of its square."""
        x0, y0, x1, y1 = self.box
        bare = (1 - _LOW.get(self.name, 1.0)) * (y1 - y0) / 2
        return x0, y0 + bare, x1, y1 - bare

    def paint(self, canvas: Canvas) -> None:
        """On a pole now and then."""
        rng = random.Random(self.seed)
        x0, y0, x1, y1 = canvas.scaled(*self.box)
        if rng.random() < 0.4:
            wide = max(3, (x1 - x0) // 18)
            middle = (x0 + x1) // 2
            canvas.pen().rectangle([middle - wide, (y0 + y1) // 2, middle + wide, canvas.image.height], fill=GREY)
        enamel = Enamel(max(12, x1 - x0), rng)
        _PAINT[self.name](enamel, self.limit)
        tile = enamel.image.resize((max(12, x1 - x0),) * 2, Image.Resampling.BOX)
        if rng.random() < 0.4:
            tile = tile.rotate(rng.uniform(-7, 7), Image.Resampling.BILINEAR)
        canvas.image.paste(tile, (x0, y0), tile)
        canvas.mark(f"sign {self.name}", self.box)


def compose(rng: random.Random, made: Scene, tones: tuple[Rgb, ...], world: World) -> None:
    """One to four signs."""
    count = rng.choices(range(1, 5), (8, 3, 2, 1))[0]
    side = min(rng.uniform(60, 220), min(made.width, made.height) * 0.9 / count**0.5)
    for box in spots(rng, made, count, max(56.0, side)):
        name = rng.choice(ROAD_SIGNS) if rng.random() < 0.85 else "speed limit"
        made.parts.append(RoadSign(name, rng.choice(LIMITS), box, rng.getrandbits(30)))
    name_alone(made)
    made.named = [(f"{name} sign", box) for name, box in made.named]
