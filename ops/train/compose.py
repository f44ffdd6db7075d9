"""Chooses what a picture shows: how many things, of which shape and colour, where, and which words are printed.

Everything is drawn from one random generator, so a seed is a picture.
"""

from __future__ import annotations

import math
import random

from ops.train import backgrounds, fonts, scene, shapes, splits
from ops.train.assets import Assets
from ops.train.backgrounds import COLORS, Rgb, distance, lightness
from ops.train.families import charts, entries, meters, paper, parcels, roadsigns, stickers
from ops.train.families.world import Family
from ops.train.marks import Box
from ops.train.scene import Backdrop, Board, Gauge, Item, Line, Scene

KINDS = ("things", "sign", "tags", "label", "gauge", "shelf", "light", "arrow")
_WEIGHTS = (18, 10, 8, 6, 3, 2, 2, 2)
FAMILIES: dict[str, tuple[Family, int]] = {
    "paper": (paper.compose, 18),
    "chart": (charts.compose, 14),
    "meter": (meters.compose, 6),
    "roadsign": (roadsigns.compose, 3),
    "parcel": (parcels.compose, 3),
    "emoji": (stickers.emoji, 6),
    "clothes": (stickers.clothing, 6),
    "unseen": (stickers.unseen, 0),  # of the held-out split, where it is asked for
}
PICTURED = ("emoji", "clothes", "unseen")  # families that need an asset directory
_MANY = ("scatter", "grid", "ring")  # layouts with room for twenty


def _legible(ink: Rgb, tone: Rgb) -> bool:
    return distance(ink, tone) > 150 and abs(lightness(ink) - lightness(tone)) > 55


class Composer:
    """Scenes of one split with the fonts of one book.

    `plain` is the world of the first weights: no family, up to eight things, words and whole numbers on boards.
    """

    def __init__(self, split: str, book: fonts.FontBook, assets: Assets | None = None, plain: bool = False) -> None:
        self.split, self.book, self.plain = split, book, plain
        self.assets = assets or Assets(None)
        without = () if self.assets.complete else PICTURED
        weights = {name: weight for name, (_, weight) in FAMILIES.items() if name not in without}
        self._odds = dict(zip(KINDS, _WEIGHTS, strict=True)) | ({} if plain else weights)
        self.layouts = splits.names(split, "layouts", scene.PLACED)
        self.backgrounds = splits.names(split, "backgrounds", backgrounds.BACKGROUNDS)
        self.boards = splits.names(split, "boards", scene.BOARDS)

    def compose(
        self, rng: random.Random, width: int, height: int, zoom: float, kind: str | None = None
    ) -> tuple[Scene, Backdrop]:
        """A scene of width x height model pixels, drawn at `zoom`."""
        kind = kind or rng.choices(list(self._odds), list(self._odds.values()))[0]
        made = Scene(width, height, zoom, kind, rng.choice(self.backgrounds), plain=self.plain)
        image, tones = backgrounds.paint(rng, made.background, round(width * zoom), round(height * zoom))
        backdrop = Backdrop(image, tuple(tones))
        taken: list[Box] = []
        roomy = width * height > 130_000
        if kind in FAMILIES:
            FAMILIES[kind][0](rng, made, backdrop.tones, self)
        elif kind == "things":
            most = 8 if roomy else 5
            count = rng.choices(range(most + 1), [1, 3, 4, 4, 4, 3, 3, 3, 3][: most + 1])[0]
            if roomy and not self.plain and rng.random() < 0.3:
                count = rng.randint(9, 20)
            self._things(rng, made, backdrop, count, taken)
        elif kind == "arrow":
            self._big_arrow(rng, made, backdrop, taken)
            self._scatter(rng, made, backdrop, rng.randint(0, 2), taken)
        elif kind == "gauge":
            self._gauge(rng, made, backdrop, taken)
            self._scatter(rng, made, backdrop, rng.choice((0, 0, 1, 2)), taken)
        elif kind == "shelf":
            self._shelf(rng, made, backdrop)
        elif kind == "light":
            self._light(rng, made, taken)
            self._scatter(rng, made, backdrop, rng.choice((0, 1, 2)), taken)
        else:
            self._boards(rng, made, backdrop, kind, taken, roomy)
            self._scatter(rng, made, backdrop, rng.choice((0, 0, 1, 2, 3)), taken)
        made.families = tuple(rng.choice(list(self.book.families)) for _ in made.boards)
        made.boards = [self._capitals(b, f) for b, f in zip(made.boards, made.families, strict=True)]
        return made, backdrop

    @staticmethod
    def _capitals(board: Board, family: str) -> Board:
        if family not in scene.CAPITALS_ONLY:
            return board
        lines = tuple(Line(line.text.upper(), line.number) for line in board.lines)
        return Board(board.form, board.color, board.ink, lines, board.box)

    def _color(
        self, rng: random.Random, tones: tuple[Rgb, ...], least: float = 105, but: frozenset[str] = frozenset()
    ) -> str:
        fit = [c for c, rgb in COLORS.items() if c not in but and all(distance(rgb, tone) >= least for tone in tones)]
        return rng.choice(fit or ["red", "blue"])

    def _things(self, rng: random.Random, made: Scene, backdrop: Backdrop, count: int, taken: list[Box]) -> None:
        """Few shapes and few colours now and then, so that counting needs looking at both."""
        fit = self.layouts if count < 10 else [name for name in self.layouts if name in _MANY] or list(_MANY)
        made.layout = rng.choice(fit)
        pool = rng.sample(shapes.SHAPES, rng.choice((1, 2, 3, 19)))
        tints = [self._color(rng, backdrop.tones) for _ in range(rng.choice((1, 2, 3, 8)))]
        spots = self._spots(rng, made, count)
        for x, y, radius in spots:
            shape = rng.choice(pool)
            made.items.append(Item(shape, rng.choice(tints), x, y, radius, rng.choice(shapes.DIRECTIONS)))
            taken.append((x - radius, y - radius, x + radius, y + radius))

    def _spots(self, rng: random.Random, made: Scene, count: int) -> list[tuple[float, float, float]]:
        """Middles and radii in the scene's layout, none overlapping, all inside."""
        w, h = made.width, made.height
        if made.layout in ("scatter", "cluster"):
            taken: list[Box] = []
            area = (0.0, 0.0, float(w), float(h))
            if made.layout == "cluster":
                cw, ch = w * rng.uniform(0.6, 0.8), h * rng.uniform(0.6, 0.8)
                x, y = rng.uniform(0, w - cw), rng.uniform(0, h - ch)
                area = (x, y, x + cw, y + ch)
            most = self._radius(rng, w, h) if count < 10 else rng.uniform(18, 34)
            sizes = [self._radius(rng, w, h) if count < 10 else most * rng.uniform(0.75, 1) for _ in range(count)]
            return [spot for size in sizes if (spot := self._free(rng, area, taken, size))]
        at: list[tuple[float, float]] = []
        n = max(count, 1)
        if made.layout == "row":
            y = h * rng.uniform(0.3, 0.7)
            at = [(w * (i + 0.5) / n, y) for i in range(count)]
        elif made.layout == "column":
            x = w * rng.uniform(0.3, 0.7)
            at = [(x, h * (i + 0.5) / n) for i in range(count)]
        elif made.layout == "diagonal":
            down = rng.random() < 0.5
            at = [(w * (i + 0.5) / n, h * ((i + 0.5) / n if down else 1 - (i + 0.5) / n)) for i in range(count)]
        elif made.layout == "arc":
            at = [(w * (i + 0.5) / n, h * (0.78 - 0.5 * math.sin(math.pi * (i + 0.5) / n))) for i in range(count)]
        elif made.layout == "ring":
            start = rng.uniform(0, 2 * math.pi)
            turn = [start + 2 * math.pi * i / n for i in range(count)]
            at = [(w / 2 + w * 0.33 * math.cos(t), h / 2 + h * 0.33 * math.sin(t)) for t in turn]
        else:
            columns = max(1, round(math.sqrt(n * w / h)))
            rows = max(1, math.ceil(n / columns))
            cells = [(c, r) for r in range(rows) for c in range(columns)]
            chosen = cells[:count] if rng.random() < 0.6 else rng.sample(cells, min(count, len(cells)))
            at = [(w * (c + 0.5) / columns, h * (r + 0.5) / rows) for c, r in chosen]
        room = min(w, h) / 2.3
        for i, a in enumerate(at):
            room = min([room, a[0] * 0.95, a[1] * 0.95, (w - a[0]) * 0.95, (h - a[1]) * 0.95])
            for b in at[i + 1 :]:
                room = min(room, max(abs(a[0] - b[0]), abs(a[1] - b[1])) * 0.47)
        base = min(room, self._radius(rng, w, h))
        varied = rng.random() < 0.5
        return [(x, y, max(15.0, base * (rng.uniform(0.6, 1) if varied else 1))) for x, y in at]

    @staticmethod
    def _radius(rng: random.Random, width: int, height: int) -> float:
        side = math.sqrt(width * height)
        return min(rng.choice((rng.uniform(20, 32), rng.uniform(32, 52), rng.uniform(52, 86))), side * 0.2)

    @staticmethod
    def _free(rng: random.Random, area: Box, taken: list[Box], radius: float) -> tuple[float, float, float] | None:
        """A place for a radius inside the area, clear of what is taken; smaller when it is crowded."""
        for attempt in range(60):
            r = max(16.0, radius * 0.96**attempt)
            if area[2] - area[0] < 2 * r or area[3] - area[1] < 2 * r:
                continue
            x, y = rng.uniform(area[0] + r, area[2] - r), rng.uniform(area[1] + r, area[3] - r)
            box = (x - r, y - r, x + r, y + r)
            if all(box[0] > t[2] + 5 or box[2] < t[0] - 5 or box[1] > t[3] + 5 or box[3] < t[1] - 5 for t in taken):
                taken.append(box)
                return x, y, r
        return None

    def _scatter(self, rng: random.Random, made: Scene, backdrop: Backdrop, count: int, taken: list[Box]) -> None:
        area = (0.0, 0.0, float(made.width), float(made.height))
        for _ in range(count):
            spot = self._free(rng, area, taken, self._radius(rng, made.width, made.height))
            if spot:
                shape, color = rng.choice(shapes.SHAPES), self._color(rng, backdrop.tones)
                made.items.append(Item(shape, color, *spot, rng.choice(shapes.DIRECTIONS)))

    def _big_arrow(self, rng: random.Random, made: Scene, backdrop: Backdrop, taken: list[Box]) -> None:
        radius = min(made.width, made.height) * rng.uniform(0.14, 0.34)
        spot = self._free(rng, (0.0, 0.0, made.width, made.height), taken, radius)
        if spot:
            color = self._color(rng, backdrop.tones)
            made.items.append(Item("arrow", color, *spot, rng.choice(shapes.DIRECTIONS)))

    def _gauge(self, rng: random.Random, made: Scene, backdrop: Backdrop, taken: list[Box]) -> None:
        form = rng.choice(scene.GAUGES)
        long, short = (0.62, 0.24) if form in ("bar", "battery") else (0.34, 0.55)
        w = min(made.width * long, made.height * 1.1) * rng.uniform(0.7, 1)
        h = min(made.height * short, made.width * 1.1) * rng.uniform(0.7, 1)
        x, y = rng.uniform(6, made.width - w - 16), rng.uniform(6, made.height - h - 6)
        color = rng.choice(("red", "orange", "green", "blue", "purple", "brown", "pink", "yellow"))
        made.gauge = Gauge(form, color, rng.randint(0, 4), (x, y, x + w, y + h))
        taken.append((x - 6, y - 6, x + w + 16, y + h + 6))

    def _shelf(self, rng: random.Random, made: Scene, backdrop: Backdrop) -> None:
        """Things standing on one to three boards; empty every fourth time."""
        boards = rng.randint(1, 3 if made.height > 380 else 2)
        gap = made.height * 0.86 / boards
        made.shelves = tuple(made.height * 0.08 + gap * (i + 1) - 12 for i in range(boards))
        if rng.random() < 0.25:
            return
        pool = rng.sample(("bottle", "cup", "square", "house", "flower", "heart", "car"), rng.choice((1, 2, 3)))
        tints = [self._color(rng, backdrop.tones) for _ in range(rng.choice((1, 2, 4)))]
        radius = min(gap * 0.36, rng.uniform(22, 46))
        places = [
            (x, y)
            for y in made.shelves
            for x in (made.width * 0.12 + i * radius * 2.3 for i in range(int(made.width * 0.76 / (radius * 2.3))))
        ]
        for x, y in sorted(rng.sample(places, min(len(places), rng.randint(1, 8)))):
            made.items.append(Item(rng.choice(pool), rng.choice(tints), x + radius * 0.5, y - radius * 0.98, radius))

    @staticmethod
    def _light(rng: random.Random, made: Scene, taken: list[Box]) -> None:
        h = min(made.height, made.width * 1.6) * rng.uniform(0.45, 0.85)
        w = h * 0.42
        x, y = rng.uniform(4, made.width - w - 4), rng.uniform(4, made.height - h - 4)
        made.light, made.light_box = rng.choice(("red", "yellow", "green")), (x, y, x + w, y + h)
        taken.append(made.light_box)

    def font(self, rng: random.Random) -> str:
        """A font file of the split, of a family that has small letters."""
        names = [name for name in self.book.families if name not in scene.CAPITALS_ONLY]
        return rng.choice(self.book.families[rng.choice(names)])

    def word(self, rng: random.Random) -> str:
        """A printed word: from the list, of the street, or letters at random; in one of three cases."""
        pick = rng.random()
        if pick < 0.62:
            word = rng.choice(splits.words(self.split))
        elif pick < 0.85:
            word = rng.choice(splits.sign_words())
        else:
            word = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 6)))
        return rng.choice((word.upper(), word.upper(), word.capitalize(), word))

    @staticmethod
    def number(rng: random.Random) -> int:
        """1 to 4 digits, each length as often as the others (one digit less)."""
        digits = rng.choices((1, 2, 3, 4), (2, 4, 4, 4))[0]
        return rng.randint(0 if digits == 1 else 10 ** (digits - 1), 10**digits - 1)

    def _lines(self, rng: random.Random, kind: str, roomy: bool) -> tuple[Line, ...]:
        word, number = Line(self.word(rng), False), Line(str(self.number(rng)), True)
        pick = rng.random()
        if pick < 0.08:
            number = Line(rng.choice(("$", "£", "No. ", "#")) + number.text, True)
        elif self.plain:
            pass
        elif pick < 0.28:
            number = Line(entries.priced(rng, entries.amount(rng)), True)
        elif pick < 0.36:
            number = Line(str(entries.decimal(rng)), True)
        elif pick < 0.4:
            number = Line(str(rng.randint(10_000, 999_999)), True)
        if pick > 0.7 and not self.plain:
            word = Line(rng.choice((entries.date, entries.date, entries.time, entries.code))(rng), False)
        if kind == "label":
            return rng.choice(((word, number), (number, word)))
        if kind == "sign" and roomy and rng.random() < 0.15:
            return (Line(f"{word.text} {self.word(rng)}", False),)
        return (word,) if rng.random() < 0.5 else (number,)

    def _boards(
        self, rng: random.Random, made: Scene, backdrop: Backdrop, kind: str, taken: list[Box], roomy: bool
    ) -> None:
        count = rng.randint(2, 4 if roomy else 2) if kind == "tags" else 1
        used: set[str] = set()
        for _ in range(count):
            lines = self._lines(rng, kind, roomy)
            form = rng.choice(self.boards)
            if kind == "tags":
                form = "rounded" if form == "bare" else form
            longest = max(len(line.text) for line in lines)
            glyph = rng.uniform(24, 64 if kind != "tags" else 42)  # height of a line
            room = made.width * (0.94 if kind != "tags" else 0.8)
            glyph = max(22.0, min(glyph, room / (longest * 0.62 + 1.0), made.height / (2.4 * len(lines))))
            margin = 1.15 if form == "bare" else 1.55
            w = min(
                made.width - 4.0, glyph * (longest * 0.66 + (0.5 if form in ("bare", "rectangle", "rounded") else 1.8))
            )
            h = min(made.height - 4.0, glyph * len(lines) * margin)
            box = self._clear(rng, made, taken, w, h)
            if box is None:
                continue
            color = self._color(rng, backdrop.tones, 70, frozenset(used))
            tones: tuple[Rgb, ...] = backdrop.tones if form == "bare" else (COLORS[color],)
            contrasting = ["black", "white"] if rng.random() < 0.6 else list(COLORS)
            inks = [c for c in contrasting if all(_legible(COLORS[c], tone) for tone in tones)]
            inks = inks or [max(("black", "white"), key=lambda c: min(distance(COLORS[c], tone) for tone in tones))]
            used.add(color)
            made.boards.append(Board(form, color, rng.choice(inks), lines, box))

    @staticmethod
    def _clear(rng: random.Random, made: Scene, taken: list[Box], w: float, h: float) -> Box | None:
        for _ in range(50):
            x, y = rng.uniform(2, made.width - w - 2), rng.uniform(2, made.height - h - 2)
            box = (x, y, x + w, y + h)
            if all(box[0] > t[2] + 6 or box[2] < t[0] - 6 or box[1] > t[3] + 6 or box[3] < t[1] - 6 for t in taken):
                taken.append(box)
                return box
        return None
