"""Emoji and pieces of clothing: small pictures with names, scattered over a scene."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageFilter, ImageOps

from ops.train.backgrounds import COLORS, Rgb, shade
from ops.train.families.world import World
from ops.train.marks import Box
from ops.train.things import CLOTHES, EMOJI, UNSEEN

if TYPE_CHECKING:
    from ops.train.scene import Canvas, Scene

LOOKS = ("plain", "plain", "turned", "mirrored", "outlined", "faded", "badge", "blocky")  # of emoji
DRAPES = ("panel", "bare", "inverted", "tinted", "framed")  # of clothing


@dataclass(frozen=True, slots=True)
class Sticker:
    """One of them. `sort` is emoji or clothing."""

    sort: str
    name: str
    picture: Image.Image
    look: str
    box: Box
    seed: int

    def paint(self, canvas: Canvas) -> None:
        """In its look."""
        x0, y0, x1, _ = canvas.scaled(*self.box)
        rng = random.Random(self.seed)
        tile = (self._emoji if self.sort == "emoji" else self._clothing)(max(8, x1 - x0), rng)
        canvas.image.paste(tile, (x0, y0), tile)
        if self.name not in UNSEEN:
            canvas.mark(self.name if self.sort == "emoji" else f"worn {self.name}", self._inner())

    @property
    def tight(self) -> Box:
        """What is covered by the thing itself, not by the square around it; a panel or badge counts as a whole."""
        cut = self.picture.getchannel("A") if self.sort == "emoji" else self.picture
        found = cut.getbbox() if self.look not in ("panel", "framed", "inverted", "badge") else None
        if found is None:
            return self.box
        x0, y0, x1, _ = self.box
        scale = (x1 - x0) / self.picture.width
        return x0 + found[0] * scale, y0 + found[1] * scale, x0 + found[2] * scale, y0 + found[3] * scale

    def _inner(self) -> Box:
        inset = (self.box[2] - self.box[0]) * 0.1
        return self.box[0] + inset, self.box[1] + inset, self.box[2] - inset, self.box[3] - inset

    def _emoji(self, side: int, rng: random.Random) -> Image.Image:
        if self.look == "blocky":
            few = self.picture.resize((22, 22), Image.Resampling.BOX)
            return few.resize((side, side), Image.Resampling.NEAREST)
        if self.look == "badge":
            tile = Image.new("RGBA", (side, side), (0, 0, 0, 0))
            disc = Image.new("L", (side, side), 0)
            mask = Image.radial_gradient("L").resize((side, side)).point([255 if v < 176 else 0 for v in range(256)])
            disc.paste(mask)
            tile.paste((*shade(rng, COLORS[rng.choice(("white", "gray", "blue", "green"))], 10), 255), (0, 0), disc)
            inner = self.picture.resize((round(side * 0.66),) * 2, Image.Resampling.BILINEAR)
            tile.alpha_composite(inner, (round(side * 0.17),) * 2)
            return tile
        tile = self.picture.resize((side, side), Image.Resampling.BILINEAR)
        if self.look == "turned":
            tile = tile.rotate(rng.uniform(-22, 22), Image.Resampling.BILINEAR)
        elif self.look == "mirrored":
            tile = ImageOps.mirror(tile)
        elif self.look == "outlined":
            inner = tile.resize((round(side * 0.86),) * 2)
            tile = Image.new("RGBA", (side, side), (0, 0, 0, 0))
            at = (round(side * 0.07),) * 2
            edge = Image.new("L", (side, side), 0)
            edge.paste(inner.getchannel("A"), at)
            edge = edge.filter(ImageFilter.MaxFilter(max(3, side // 16 * 2 + 1)))
            tile.paste((255, 255, 255, 255), (0, 0), edge)
            tile.alpha_composite(inner, at)
        elif self.look == "faded":
            red, green, blue, alpha = tile.split()
            grey = tile.convert("L")
            amount = rng.uniform(0.2, 0.8)
            channels = [Image.blend(c, grey, amount) for c in (red, green, blue)]
            tile = Image.merge("RGBA", (*channels, alpha))
        return tile

    def _clothing(self, side: int, rng: random.Random) -> Image.Image:
        grey = self.picture.resize((side, side), Image.Resampling.BICUBIC)
        if rng.random() < 0.5:
            grey = ImageOps.mirror(grey)
        if self.look in ("panel", "framed"):
            tile = Image.merge("RGBA", (grey, grey, grey, Image.new("L", (side, side), 255)))
            if self.look == "framed":
                color = (*shade(rng, COLORS[rng.choice(list(COLORS))], 12), 255)
                tile = ImageOps.expand(tile.resize((max(4, side - 2 * (side // 16)),) * 2), side // 16, color)
            return tile
        if self.look == "inverted":
            turned = ImageOps.invert(grey)
            return Image.merge("RGBA", (turned, turned, turned, Image.new("L", (side, side), 255)))
        mask = grey.point([min(255, max(0, (v - 10) * 12)) for v in range(256)])
        if self.look == "bare":
            lifted = grey.point([40 + v * 200 // 255 for v in range(256)])
            return Image.merge("RGBA", (lifted, lifted, lifted, mask))
        tint = shade(rng, COLORS[rng.choice(("red", "orange", "green", "blue", "purple", "pink", "brown"))], 20)
        tones = [grey.point([min(255, v * c // 190 + 20) for v in range(256)]) for c in tint]
        return Image.merge("RGBA", (*tones, mask))


def spots(rng: random.Random, made: Scene, count: int, side: float) -> list[Box]:
    """Squares of about a side, clear of one another; fewer where there is no room."""
    found: list[Box] = []
    for _ in range(count * 30):
        if len(found) == count:
            break
        s = side * rng.uniform(0.8, 1.2)
        x, y = rng.uniform(2, max(3.0, made.width - s - 2)), rng.uniform(2, max(3.0, made.height - s - 2))
        box = (x, y, x + s, y + s)
        if (
            x + s < made.width
            and y + s < made.height
            and all(box[0] > b[2] + 4 or box[2] < b[0] - 4 or box[1] > b[3] + 4 or box[3] < b[1] - 4 for b in found)
        ):
            found.append(box)
    return found


def name_alone(made: Scene) -> None:
    """The parts whose name stands once on the scene can be asked for by it."""
    names = [part.name for part in made.parts]
    made.named += [(part.name, part.tight) for part in made.parts if names.count(part.name) == 1]


def emoji(rng: random.Random, made: Scene, tones: tuple[Rgb, ...], world: World) -> None:
    """One to eight emoji, some of them the same, in the looks of the split."""
    _scatter(rng, made, world, list(EMOJI))


def unseen(rng: random.Random, made: Scene, tones: tuple[Rgb, ...], world: World) -> None:
    """The same with emoji that no training picture shows."""
    _scatter(rng, made, world, list(UNSEEN))


def _scatter(rng: random.Random, made: Scene, world: World, names: list[str]) -> None:
    count = rng.choices(range(1, 9), (6, 4, 4, 3, 2, 2, 1, 1))[0]
    shortest = min(made.width, made.height)
    side = min(rng.uniform(48, 130), shortest * 0.9 / max(1.0, count**0.5 * 0.85))
    own = ("badge", "blocky")
    looks = own if world.split == "heldout" else [look for look in LOOKS if look not in own]
    pool = rng.sample(names, min(len(names), rng.choice((1, 2, 3, count))))
    for box in spots(rng, made, count, max(44.0, side)):
        name = rng.choice(pool)
        picture = world.assets.emoji[name]
        made.parts.append(Sticker("emoji", name, picture, rng.choice(looks), box, rng.getrandbits(30)))
    name_alone(made)


def clothing(rng: random.Random, made: Scene, tones: tuple[Rgb, ...], world: World) -> None:
    """One to six pieces of the split's own."""
    pictures, labels = world.assets.clothes(world.split)
    count = rng.choices(range(1, 7), (7, 4, 3, 2, 1, 1))[0]
    shortest = min(made.width, made.height)
    side = min(rng.uniform(64, 230), shortest * 0.92 / max(1.0, count**0.5 * 0.9))
    drapes = ("framed", "panel") if world.split == "heldout" else [d for d in DRAPES if d != "framed"]
    look = rng.choice(drapes)
    for box in spots(rng, made, count, max(56.0, side)):
        number = rng.randrange(len(pictures))
        picture = Image.fromarray(np.ascontiguousarray(pictures[number]))
        made.parts.append(Sticker("clothing", CLOTHES[labels[number]], picture, look, box, rng.getrandbits(30)))
    name_alone(made)
