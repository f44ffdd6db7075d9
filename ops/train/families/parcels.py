"""Parcels and number plates, whole or damaged."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ops.train.backgrounds import Rgb, shade
from ops.train.families import entries
from ops.train.families.world import World, placed
from ops.train.marks import Box

if TYPE_CHECKING:
    from ops.train.scene import Canvas, Scene

DAMAGES = {
    "parcel": ("torn", "wet", "dented", "punctured"),
    "plate": ("scratched", "rusty", "bent", "cracked"),
}
MEANINGS = {
    "torn": "a piece is ripped off",
    "wet": "a dark stain of water",
    "dented": "pressed in",
    "punctured": "a round hole",
    "scratched": "thin lines across it",
    "rusty": "brown spots",
    "bent": "its corner is folded",
    "cracked": "a dark crack runs through it",
}
_CARD: tuple[Rgb, ...] = ((190, 148, 100), (176, 134, 88), (204, 168, 122), (160, 120, 80), (226, 222, 214))


@dataclass(frozen=True, slots=True)
class Parcel:
    """A parcel or plate; `damage` is "" where it is whole, `level` 0 whole, 1 a little, 2 badly."""

    thing: str
    damage: str
    level: int
    spot: Box  # of the damage
    text: str
    font: str
    box: Box
    seed: int

    def paint(self, canvas: Canvas) -> None:
        """The thing, its print, then what happened to it."""
        rng = random.Random(self.seed)
        (self._parcel if self.thing == "parcel" else self._plate)(canvas, rng)
        if self.damage:
            getattr(self, f"_{self.damage}")(canvas, rng)
            canvas.mark("damage", self.spot)

    def _parcel(self, canvas: Canvas, rng: random.Random) -> None:
        x0, y0, x1, y1 = self.box
        pen, card = canvas.pen(), shade(rng, rng.choice(_CARD), 12)
        dark = (card[0] * 3 // 4, card[1] * 3 // 4, card[2] * 3 // 4)
        pen.rectangle(canvas.scaled(*self.box), fill=card, outline=dark, width=max(2, round(2 * canvas.zoom)))
        tape = shade(rng, rng.choice(((222, 196, 150), (150, 110, 70), (240, 240, 236))), 10)
        middle, wide = (x0 + x1) / 2, (x1 - x0) * rng.uniform(0.04, 0.08)
        if rng.random() < 0.8:
            pen.rectangle(canvas.scaled(middle - wide, y0, middle + wide, y1), fill=tape)
        if rng.random() < 0.4:
            level = y0 + (y1 - y0) * 0.3
            pen.line(canvas.scaled(x0, level, x1, level), fill=dark, width=max(1, round(canvas.zoom)))
        if self.text:
            size = min(24.0, (x1 - x0) * 0.5 / (0.62 * len(self.text)))
            wide, high = size * 0.66 * (len(self.text) + 1), size * 1.7
            left, top = x0 + (x1 - x0) * 0.08, y1 - high - (y1 - y0) * 0.08
            pen.rectangle(canvas.scaled(left, top, left + wide, top + high), fill=(250, 250, 248))
            canvas.print(self.text, left + wide / 2, top + high * 0.7, size, self.font, (20, 20, 20), "m")

    def _plate(self, canvas: Canvas, rng: random.Random) -> None:
        x0, y0, x1, y1 = self.box
        fill = shade(rng, rng.choice(((248, 248, 246), (246, 206, 40), (214, 220, 224))), 8)
        pen, corner = canvas.pen(), round((y1 - y0) * 0.1 * canvas.zoom)
        pen.rounded_rectangle(
            canvas.scaled(*self.box), corner, fill=fill, outline=(24, 24, 26), width=max(2, round(3 * canvas.zoom))
        )
        size = min((y1 - y0) * 0.62, (x1 - x0) * 0.86 / (0.66 * len(self.text)))
        canvas.print(self.text, (x0 + x1) / 2, (y0 + y1) / 2 + size * 0.35, size, self.font, (20, 20, 24), "m")

    def _blob(self, rng: random.Random, rough: float, corners: int = 14) -> list[float]:
        x0, y0, x1, y1 = self.spot
        points: list[float] = []
        for i in range(corners):
            r, turn = rng.uniform(1 - rough, 1), 2 * math.pi * i / corners
            points += [
                (x0 + x1) / 2 + (x1 - x0) / 2 * r * math.cos(turn),
                (y0 + y1) / 2 + (y1 - y0) / 2 * r * math.sin(turn),
            ]
        return points

    def _torn(self, canvas: Canvas, rng: random.Random) -> None:
        outline = canvas.scaled(*self._blob(rng, 0.5, 18))
        canvas.pen().polygon(outline, fill=shade(rng, (64, 50, 38), 10), outline=(236, 226, 208))
        canvas.pen().line([*outline, *outline[:2]], fill=(240, 230, 214), width=max(2, round(3 * canvas.zoom)))

    def _wet(self, canvas: Canvas, rng: random.Random) -> None:
        x0, y0, x1, y1 = canvas.scaled(*self.spot)
        patch = canvas.image.crop((x0, y0, x1, y1)).point([int(v * 0.62) for v in range(256)] * 3)
        mask = canvas.image.crop((x0, y0, x1, y1)).convert("L").point([0] * 256)
        from PIL import ImageDraw

        shape = canvas.scaled(*self._blob(rng, 0.25, 20))
        ImageDraw.Draw(mask).polygon([v - (x0, y0)[i % 2] for i, v in enumerate(shape)], fill=235)
        canvas.image.paste(patch, (x0, y0), mask)

    def _dented(self, canvas: Canvas, rng: random.Random) -> None:
        x0, y0, x1, y1 = self.spot
        pen = canvas.pen()
        for i, tone in enumerate(((96, 72, 48), (122, 94, 64), (150, 118, 82), (226, 200, 160))):
            f = i * 0.11
            w, h = (x1 - x0) * f, (y1 - y0) * f
            shift = (y1 - y0) * 0.05 * i
            pen.ellipse(canvas.scaled(x0 + w, y0 + h + shift, x1 - w, y1 - h + shift), fill=tone)

    def _punctured(self, canvas: Canvas, rng: random.Random) -> None:
        canvas.pen().ellipse(canvas.scaled(*self.spot), fill=(16, 12, 10), outline=(230, 214, 190), width=2)

    def _scratched(self, canvas: Canvas, rng: random.Random) -> None:
        x0, y0, x1, y1 = self.spot
        for _ in range(4 + 5 * self.level):
            y = rng.uniform(y0, y1)
            line = canvas.scaled(x0 + rng.uniform(0, 0.3) * (x1 - x0), y, x1, y + rng.uniform(-0.5, 0.5) * (y1 - y0))
            canvas.pen().line(line, fill=shade(rng, (120, 120, 124), 40), width=max(1, round(1.4 * canvas.zoom)))

    def _rusty(self, canvas: Canvas, rng: random.Random) -> None:
        x0, y0, x1, y1 = self.spot
        for _ in range(10 + 14 * self.level):
            x, y, r = rng.uniform(x0, x1), rng.uniform(y0, y1), rng.uniform(2, 3 + 4 * self.level)
            canvas.pen().ellipse(canvas.scaled(x - r, y - r, x + r, y + r), fill=shade(rng, (140, 70, 26), 24))

    def _bent(self, canvas: Canvas, rng: random.Random) -> None:
        x0, y0, x1, y1 = self.spot
        right = (x0 + x1) / 2 > (self.box[0] + self.box[2]) / 2
        corner, far = (x1, x0) if right else (x0, x1)
        canvas.pen().polygon(canvas.scaled(corner, y0, far, y0, corner, y1), fill=(90, 92, 96))
        canvas.pen().polygon(canvas.scaled(far, y0, corner, y1, far, y1), fill=(190, 192, 196), outline=(60, 60, 60))

    def _cracked(self, canvas: Canvas, rng: random.Random) -> None:
        x0, y0, x1, y1 = self.spot
        steps = 7
        points = [v for i in range(steps + 1) for v in (x0 + (x1 - x0) * i / steps, rng.uniform(y0, y1))]
        canvas.pen().line(canvas.scaled(*points), fill=(12, 12, 14), width=max(2, round((1 + self.level) * 1.3)))


def compose(rng: random.Random, made: Scene, tones: tuple[Rgb, ...], world: World) -> None:
    """One thing; whole every third time."""
    thing = rng.choices(("parcel", "plate"), (65, 35))[0]
    wide = made.width * rng.uniform(0.5, 0.9)
    high = min(made.height * 0.9, wide * rng.uniform(0.55, 0.95)) if thing == "parcel" else wide * 0.26
    x0, y0, x1, y1 = box = placed(rng, made, wide, high)
    damage = rng.choice(DAMAGES[thing]) if rng.random() < 0.64 else ""
    level = rng.randint(1, 2) if damage else 0
    part = rng.uniform(0.12, 0.2) if level == 1 else rng.uniform(0.34, 0.5)
    w, h = (x1 - x0) * part, (y1 - y0) * (part if thing == "parcel" else min(0.9, part * 2))
    x, y = rng.uniform(x0 + 4, x1 - w - 4), rng.uniform(y0 + 4, y1 - h - 4)
    if damage == "bent":  # a corner
        x, y = rng.choice((x0, x1 - w)), y0
    text = entries.code(rng) if thing == "plate" or rng.random() < 0.5 else ""
    if thing == "parcel" and rng.random() < 0.3:
        text = rng.choice(("FRAGILE", "EXPRESS", "THIS SIDE UP", "GLASS"))
    spot = (x, y, x + w, y + h)
    made.parts.append(Parcel(thing, damage, level, spot, text, world.font(rng), box, rng.getrandbits(30)))
    made.named.append((rng.choice(("parcel", "package", "box")) if thing == "parcel" else "number plate", box))
    if damage:
        made.named.append(("damage", spot))
