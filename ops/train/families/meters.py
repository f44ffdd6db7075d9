"""Instruments: round dials with a needle, thermometers, lying scales and displays of digits."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from ops.train.backgrounds import COLORS, Rgb, shade
from ops.train.families import entries
from ops.train.families.world import World, placed
from ops.train.marks import CLASS_OF, Box

if TYPE_CHECKING:
    from ops.train.scene import Canvas, Scene

FORMS = ("dial", "thermometer", "scale", "display")
_SEGMENTS = {  # of a digit: top, upper right, lower right, bottom, lower left, upper left, middle
    "0": "1111110", "1": "0110000", "2": "1101101", "3": "1111001", "4": "0110011", "5": "1011011", "6": "1011111",
    "7": "1110000", "8": "1111111", "9": "1111011", "-": "0000001",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Meter:
    """`value` lies between `low` and `high`; every `step` has a tick, every second or each a number."""

    form: str
    value: Decimal
    shown: str  # on a display, "" elsewhere
    low: int
    high: int
    step: int
    unit: str
    font: str
    size: float
    box: Box
    look: int

    def paint(self, canvas: Canvas) -> None:
        """By its form."""
        rng = random.Random(self.look)
        {"dial": self._dial, "thermometer": self._thermometer, "scale": self._scale, "display": self._display}[
            self.form
        ](canvas, rng)

    @property
    def _part(self) -> float:
        return (float(self.value) - self.low) / (self.high - self.low)

    def _dial(self, canvas: Canvas, rng: random.Random) -> None:
        dark = rng.random() < 0.3
        face, ink = ((40, 42, 46), (240, 240, 240)) if dark else ((250, 250, 246), (30, 30, 34))
        x0, y0, x1, y1 = self.box
        r, cx, cy = (x1 - x0) / 2, (x0 + x1) / 2, (y0 + y1) / 2
        pen, line = canvas.pen(), max(2, round(canvas.zoom * 2))
        pen.ellipse(canvas.scaled(*self.box), fill=shade(rng, face, 8), outline=ink, width=line)
        start, sweep = rng.choice(((-225.0, 270.0), (-210.0, 240.0), (-180.0, 180.0)))

        def at(part: float, radius: float) -> tuple[float, float]:
            angle = math.radians(start + sweep * part)
            return cx + radius * math.cos(angle), cy + radius * math.sin(angle)

        ticks = (self.high - self.low) // self.step
        every = 1 if ticks <= 10 else 2
        for i in range(ticks + 1):
            part = i / ticks
            pen.line(canvas.scaled(*at(part, r * 0.95), *at(part, r * 0.84)), fill=ink, width=line)
            if i % every == 0:
                x, y = at(part, r * 0.68)
                canvas.print(str(self.low + i * self.step), x, y + self.size * 0.34, self.size, self.font, ink, "m")
        if self.unit:
            canvas.print(self.unit, cx, cy + r * 0.42, self.size, self.font, ink, "m")
        tip = at(self._part, r * 0.8)
        needle = shade(rng, COLORS[rng.choice(("red", "orange", "blue"))] if rng.random() < 0.7 else ink, 8)
        pen.line(canvas.scaled(cx, cy, *tip), fill=needle, width=max(3, round(canvas.zoom * 4)))
        hub = r * 0.07
        pen.ellipse(canvas.scaled(cx - hub, cy - hub, cx + hub, cy + hub), fill=needle)
        canvas.scene.marks.append((CLASS_OF["needle"], 0, (tip[0] - 8, tip[1] - 8, tip[0] + 8, tip[1] + 8)))

    def _thermometer(self, canvas: Canvas, rng: random.Random) -> None:
        x0, y0, x1, y1 = self.box
        pen, ink = canvas.pen(), (30, 30, 34)
        pen.rectangle(canvas.scaled(*self.box), fill=shade(rng, (248, 248, 244), 8), outline=(120, 120, 124))
        tube, bulb = (x1 - x0) * 0.09, (x1 - x0) * 0.16
        cx = x0 + (x1 - x0) * 0.3
        top, bottom = y0 + self.size, y1 - 2.4 * bulb - self.size * 0.3
        y = bottom - (bottom - top) * self._part
        fill = shade(rng, COLORS[rng.choice(("red", "red", "blue"))], 10)
        pen.rectangle(canvas.scaled(cx - tube, top - 4, cx + tube, bottom + bulb), fill=(255, 255, 255), outline=ink)
        pen.rectangle(canvas.scaled(cx - tube * 0.6, y, cx + tube * 0.6, bottom + bulb), fill=fill)
        pen.ellipse(canvas.scaled(cx - bulb, bottom, cx + bulb, bottom + 2 * bulb), fill=fill, outline=ink)
        ticks = (self.high - self.low) // self.step
        for i in range(ticks + 1):
            at = bottom - (bottom - top) * i / ticks
            pen.line(
                canvas.scaled(cx + tube * 1.3, at, cx + tube * 2.4, at), fill=ink, width=max(1, round(canvas.zoom))
            )
            if i % (1 if ticks <= 8 else 2) == 0:
                value = str(self.low + i * self.step)
                canvas.print(value, cx + tube * 3, at + self.size * 0.34, self.size, self.font, ink)

    def _scale(self, canvas: Canvas, rng: random.Random) -> None:
        x0, y0, x1, y1 = self.box
        pen, ink = canvas.pen(), (30, 30, 34)
        pen.rectangle(canvas.scaled(*self.box), fill=shade(rng, (246, 246, 240), 8), outline=ink)
        left, right, y = x0 + self.size * 1.4, x1 - self.size * 1.4, (y0 + y1) / 2
        pen.line(canvas.scaled(left, y, right, y), fill=ink, width=max(1, round(canvas.zoom * 1.5)))
        ticks = (self.high - self.low) // self.step
        for i in range(ticks + 1):
            at = left + (right - left) * i / ticks
            pen.line(canvas.scaled(at, y, at, y + self.size * 0.5), fill=ink, width=max(1, round(canvas.zoom)))
            if i % (1 if ticks <= 6 else 2) == 0:
                value = str(self.low + i * self.step)
                canvas.print(value, at, y + self.size * 1.5, self.size, self.font, ink, "m")
        at, high = left + (right - left) * self._part, self.size * 1.1
        color = shade(rng, COLORS[rng.choice(("red", "blue", "green", "black"))], 8)
        pen.polygon(
            [
                *zip(
                    *[iter(canvas.scaled(at, y - 2, at - high * 0.5, y - high, at + high * 0.5, y - high))] * 2,
                    strict=True,
                )
            ],
            fill=color,
        )
        canvas.scene.marks.append((CLASS_OF["needle"], 0, (at - 8, y - high, at + 8, y)))

    def _display(self, canvas: Canvas, rng: random.Random) -> None:
        x0, y0, _, y1 = self.box
        pen = canvas.pen()
        back, ink = rng.choice(
            (((20, 24, 20), (80, 240, 120)), ((30, 8, 8), (255, 70, 60)), ((190, 204, 180), (30, 40, 30)),
             ((12, 16, 40), (120, 200, 255)))
        )  # fmt: skip
        pen.rounded_rectangle(
            canvas.scaled(*self.box), round(6 * canvas.zoom), fill=back, outline=(90, 90, 90), width=2
        )
        high = (y1 - y0) * 0.62
        width, x, y = high * 0.52, x0 + (y1 - y0) * 0.3, y0 + (y1 - y0) * 0.19
        thick = high * rng.uniform(0.1, 0.15)
        for char in self.shown:
            if char in ".:":
                for dot in (0.94,) if char == "." else (0.3, 0.7):
                    cy = y + high * dot
                    pen.rectangle(canvas.scaled(x, cy - thick * 0.6, x + thick, cy + thick * 0.6), fill=ink)
                step = thick * 2.4
            else:
                for on, bar in zip(_SEGMENTS[char], _bars(x, y, width, high, thick), strict=True):
                    if on == "1":
                        pen.rectangle(canvas.scaled(*bar), fill=ink)
                step = width + thick * 1.7
            canvas.mark(char, (x, y, x + step, y + high))
            x += step


def _bars(x: float, y: float, w: float, h: float, t: float) -> list[Box]:
    half, gap = h / 2, t * 0.2
    return [
        (x + gap, y, x + w - gap, y + t),
        (x + w - t, y + gap, x + w, y + half - gap),
        (x + w - t, y + half + gap, x + w, y + h - gap),
        (x + gap, y + h - t, x + w - gap, y + h),
        (x, y + half + gap, x + t, y + h - gap),
        (x, y + gap, x + t, y + half - gap),
        (x + gap, y + half - t / 2, x + w - gap, y + half + t / 2),
    ]


def compose(rng: random.Random, made: Scene, tones: tuple[Rgb, ...], world: World) -> None:
    """One instrument. A needle stands on a tick or half way between two."""
    form = rng.choices(FORMS, (40, 20, 15, 25))[0]
    size, font, look = rng.uniform(15, 22), world.font(rng), rng.getrandbits(30)
    if form == "display":
        clock = rng.random() < 0.2
        value = entries.decimal(rng) if rng.random() < 0.6 else Decimal(rng.randint(0, 99999))
        shown = entries.time(rng) if clock else str(value)
        wide = min(made.width - 10.0, rng.uniform(0.35, 0.9) * made.width)
        high = min(wide / (0.42 * len(shown) + 0.6), made.height * 0.5)
        wide = high * (0.42 * len(shown) + 0.6)
        box = placed(rng, made, wide, high)
        made.parts.append(Meter(form, value, shown, 0, 0, 0, "clock" if clock else "", font, size, box, look))
        made.named.append(("display", box))
        return
    step = rng.choice((1, 2, 5, 10, 10, 20, 50)) if form != "thermometer" else rng.choice((2, 5, 5, 10))
    ticks = rng.choice((5, 6, 8, 10)) if form != "dial" else rng.choice((6, 8, 10, 10, 12))
    low = -step * rng.randint(1, 3) if form == "thermometer" and rng.random() < 0.5 else 0
    if form == "scale":
        size = min(size, (made.width - 30) / (ticks * 2.2))
        size = max(size, 14.0)
    steps = rng.randint(0, ticks) if rng.random() < 0.7 or step % 2 else Decimal(rng.randint(0, 2 * ticks)) / 2
    value = low + step * Decimal(steps)
    value = value.quantize(Decimal(1)) if value == value.to_integral_value() else value
    if form == "dial":
        side = min(made.width, made.height) * rng.uniform(0.5, 0.92)
        wide, high = max(side, size * 9), max(side, size * 9)
    elif form == "thermometer":
        high = made.height * rng.uniform(0.65, 0.95)
        wide = max(size * 5.5, high * 0.3)
    else:
        wide, high = made.width * rng.uniform(0.7, 0.96), size * 5
    unit = rng.choice(("", "", "bar", "km/h", "rpm", "V", "kg")) if form == "dial" else ""
    box = placed(rng, made, wide, high)
    if form == "dial":  # the scene may be narrower
        side = min(box[2] - box[0], box[3] - box[1])
        box = (box[0], box[1], box[0] + side, box[1] + side)
    made.parts.append(Meter(form, value, "", low, low + step * ticks, step, unit, font, size, box, look))
    made.named.append((form if form != "scale" else "instrument", box))
