"""One drawn picture: what is on it (the truth that questions are asked from) and how it is painted.

Lengths are in model pixels, the pixels that are left after the resize to the model's grid; `zoom` canvas pixels make
one. So a glyph of 24 stays readable whatever the size of the photograph.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

from PIL import Image, ImageDraw

from ops.train import fonts, shapes
from ops.train.backgrounds import COLORS, Rgb, distance, photograph, shade
from ops.train.marks import CLASS_OF, COLOR_OF, Box, glyph_class

PLACED = ("scatter", "row", "column", "grid", "ring", "cluster", "diagonal", "arc")
BOARDS = ("rectangle", "rounded", "pill", "bare", "banner", "octagon")
GAUGES = ("glass", "battery", "bar", "tank")
CAPITALS_ONLY = frozenset({"bebas", "bebasneue"})


@dataclass(frozen=True, slots=True)
class Item:
    """One thing; `radius` is half its square's side."""

    shape: str
    color: str
    x: float
    y: float
    radius: float
    direction: str = "up"


@dataclass(frozen=True, slots=True)
class Line:
    """One printed line; `number` when it is read as one."""

    text: str
    number: bool


@dataclass(frozen=True, slots=True)
class Board:
    """Something with printed lines on it."""

    form: str
    color: str
    ink: str
    lines: tuple[Line, ...]
    box: Box


@dataclass(frozen=True, slots=True)
class Gauge:
    """Something filled to `level` quarters."""

    form: str
    color: str
    level: int
    box: Box


@dataclass
class Scene:
    """Everything that is on one picture."""

    width: int  # model pixels
    height: int
    zoom: float
    kind: str
    background: str
    layout: str = "none"
    items: list[Item] = field(default_factory=list)
    boards: list[Board] = field(default_factory=list)
    gauge: Gauge | None = None
    light: str | None = None
    light_box: Box | None = None
    shelves: tuple[float, ...] = ()  # heights of the boards of a shelf
    families: tuple[str, ...] = ()  # font families in use
    parts: list[Any] = field(default_factory=list)  # what a family of `ops.train.families` put here
    named: list[tuple[str, Box]] = field(default_factory=list)  # things that one name means, for box questions
    marks: list[tuple[int, int, Box]] = field(default_factory=list)  # (class, colour, box), filled by `draw`
    plain: bool = False  # of the world of the first weights (`compose.Composer`)


@dataclass(frozen=True, slots=True)
class Backdrop:
    """A painted background and the tones in it; made first, because colours are chosen to stand out from it."""

    image: Image.Image
    tones: tuple[Rgb, ...]


class Canvas:
    """Paints one scene; random details come from its own generator, so that the truth never depends on them."""

    def __init__(self, scene: Scene, backdrop: Backdrop, book: fonts.FontBook, rng: random.Random) -> None:
        self.scene, self.book, self.rng = scene, book, rng
        self.zoom = scene.zoom
        self.image, self.tones = backdrop.image.copy(), backdrop.tones

    def _px(self, value: float) -> int:
        return round(value * self.zoom)

    def tint(self, color: str) -> Rgb:
        return shade(self.rng, COLORS[color], 14)

    def item(self, item: Item) -> None:
        side = max(8, 2 * self._px(item.radius))
        most = shapes.most_turn(item.shape)
        mask = shapes.silhouette(item.shape, side, self.rng.uniform(-most, most), item.direction)
        color = self.tint(item.color)
        at = self._px(item.x) - side // 2, self._px(item.y) - side // 2
        dark = tuple(round(c * 0.35 + 20) if sum(color) > 150 else c + 90 for c in color)
        self.image.paste(dark, at, mask.point([255 if v > 24 else 0 for v in range(256)]))
        self.image.paste(color, at, mask)
        reach = item.radius * 0.8
        box = (item.x - reach, item.y - reach, item.x + reach, item.y + reach)
        marks = self.scene.marks
        marks.append((CLASS_OF[item.shape], COLOR_OF[item.color], box))

    def board(self, board: Board, family: str) -> None:
        x0, y0, x1, y1 = board.box
        width, height = self._px(x1 - x0), self._px(y1 - y0)
        whole = width, height
        if self.rng.random() < 0.3:  # narrower or wider letters than the font has
            width = round(width * self.rng.uniform(0.82, 1.25))
        bold = 1 if self.rng.random() < 0.12 and height > 50 else 0
        tile = Image.new("RGBA", (width, height), (0, 0, 0, 0))
        draw = ImageDraw.Draw(tile)
        fill, ink = self.tint(board.color), self.tint(board.ink)
        self._plate(draw, board.form, width, height, fill, ink)
        self.scene.marks.append((0, COLOR_OF[board.color] if board.form != "bare" else 0, board.box))
        inset = 0.86 if board.form in ("rectangle", "rounded", "bare") else 0.74
        row = height * (0.94 if board.form == "bare" else 0.8) / len(board.lines)
        top = (height - row * len(board.lines)) / 2
        files = self.book.families[family]
        path = files[self.rng.randrange(len(files))]
        turn = self.rng.uniform(-5, 5) if self.rng.random() < 0.4 else 0.0
        for number, line in enumerate(board.lines):
            font = fonts.load(path, max(8, round(row * 0.98)))
            left, over, right, under = font.getbbox(line.text)
            fit = min(width * inset / max(1, right - left), row * 0.9 / max(1, under - over), 1.35)
            font = fonts.load(path, max(8, int(row * 0.98 * fit)))
            left, over, right, under = font.getbbox(line.text)
            x, y = (width - right - left) / 2, top + row * (number + 0.5) - (over + under) / 2
            draw.text((x, y), line.text, font=font, fill=(*ink, 255), stroke_width=bold)
            self._mark_glyphs(
                line.text, font, (x, y + over, y + under), (width / 2, height / 2), turn, board, whole[0] / width
            )
        if tile.size != whole:
            tile = tile.resize(whole, Image.Resampling.BICUBIC)
        if turn:
            tile = tile.rotate(turn, Image.Resampling.BICUBIC)
        self.image.paste(tile, (self._px(x0), self._px(y0)), tile)

    def _plate(self, draw: ImageDraw.ImageDraw, form: str, width: int, height: int, fill: Rgb, ink: Rgb) -> None:
        border = self.rng.choice((0, 0, max(2, height // 26)))
        whole = [1, 1, width - 2, height - 2]
        if form in ("rounded", "pill"):
            radius = height // 2 if form == "pill" else max(3, height // 6)
            draw.rounded_rectangle(whole, radius, fill=fill, outline=ink if border else None, width=border)
        elif form == "rectangle":
            draw.rectangle(whole, fill=fill, outline=ink if border else None, width=border)
        elif form == "banner":
            notch = height // 4
            draw.polygon(
                [
                    (1, 1),
                    (width - 2, 1),
                    (width - 2 - notch, height // 2),
                    (width - 2, height - 2),
                    (1, height - 2),
                    (1 + notch, height // 2),
                ],
                fill=fill,
            )
        elif form == "octagon":
            cut = min(width, height) // 4
            draw.polygon(
                [
                    (cut, 1),
                    (width - cut, 1),
                    (width - 2, cut),
                    (width - 2, height - cut),
                    (width - cut, height - 2),
                    (cut, height - 2),
                    (1, height - cut),
                    (1, cut),
                ],
                fill=fill,
            )

    def _mark_glyphs(
        self,
        text: str,
        font: fonts.Font,
        line: tuple[float, float, float],
        middle: tuple[float, float],
        turn: float,
        board: Board,
        stretch: float,
    ) -> None:
        x, y0, y1 = line
        cos, sin = math.cos(math.radians(turn)), math.sin(math.radians(turn))
        ends = [font.getlength(text[:i]) for i in range(len(text) + 1)]
        for glyph, start, end in zip(text, ends, ends[1:], strict=False):
            if glyph == " ":
                continue
            dx, dy = (x + (start + end) / 2 - middle[0]) * stretch, (y0 + y1) / 2 - middle[1]
            cx = board.box[0] + (middle[0] * stretch + dx * cos + dy * sin) / self.zoom
            cy = board.box[1] + (middle[1] - dx * sin + dy * cos) / self.zoom
            w, h = (end - start) * stretch / self.zoom / 2, (y1 - y0) / self.zoom / 2
            self.scene.marks.append((glyph_class(glyph), 0, (cx - w, cy - h, cx + w, cy + h)))

    def pen(self) -> ImageDraw.ImageDraw:
        """To draw with, in canvas pixels."""
        return ImageDraw.Draw(self.image)

    def scaled(self, *lengths: float) -> list[int]:
        """Model pixels as canvas pixels."""
        return [round(length * self.zoom) for length in lengths]

    def print(self, text: str, x: float, y: float, size: float, path: str, ink: Rgb, anchor: str = "l") -> None:
        """One line with its baseline at y; x is its left end, its middle ("m") or its right end ("r")."""
        pixels = max(6, round(size * self.zoom))
        font = fonts.load(path, pixels)
        self.pen().text((x * self.zoom, y * self.zoom), text, font=font, fill=ink, anchor=f"{anchor}s")
        widths = [fonts.advance(path, pixels, glyph) / self.zoom for glyph in text]
        at = x - {"l": 0.0, "m": 0.5, "r": 1.0}[anchor] * sum(widths)
        for glyph, width in zip(text, widths, strict=True):
            if glyph != " ":
                self.scene.marks.append((glyph_class(glyph), 0, (at, y - 0.74 * size, at + width, y + 0.06 * size)))
            at += width

    def mark(self, name: str, box: Box, color: str = "none") -> None:
        """What the patches of a box show."""
        self.scene.marks.append((CLASS_OF[name], COLOR_OF[color], box))

    def gauge(self, gauge: Gauge) -> None:
        x0, y0, x1, y1 = (self._px(v) for v in gauge.box)
        draw = ImageDraw.Draw(self.image)
        light = min(distance(tone, (255, 255, 255)) for tone in self.tones) > 150
        line: Rgb = (235, 235, 235) if light else (30, 30, 34)
        inside: Rgb = (70, 72, 78) if light else (248, 248, 250)
        pen = max(3, self._px(4))
        fill = self.tint(gauge.color)
        if gauge.form in ("bar", "battery"):
            draw.rectangle([x0, y0, x1, y1], fill=inside, outline=line, width=pen)
            end = x0 + pen + (x1 - x0 - 2 * pen) * gauge.level / 4
            if gauge.level:
                draw.rectangle([x0 + pen, y0 + pen, round(end), y1 - pen], fill=fill)
            if gauge.form == "battery":
                third = (y1 - y0) // 3
                draw.rectangle([x1, y0 + third, x1 + max(4, self._px(9)), y1 - third], fill=line)
        else:
            lean = (x1 - x0) // 7 if gauge.form == "glass" else 0
            draw.polygon([(x0, y0), (x1, y0), (x1 - lean, y1), (x0 + lean, y1)], fill=inside)
            if gauge.level:
                part = gauge.level / 4
                y, side = y1 - (y1 - y0) * part, lean * (1 - part)
                draw.polygon([(x0 + side, y), (x1 - side, y), (x1 - lean, y1), (x0 + lean, y1)], fill=fill)
            draw.line([(x0, y0), (x0 + lean, y1), (x1 - lean, y1), (x1, y0)], fill=line, width=pen)
            if gauge.form == "tank":
                draw.line([(x0, y0), (x1, y0)], fill=line, width=pen)

    def shelf(self) -> None:
        draw = ImageDraw.Draw(self.image)
        wood = self.rng.choice(((120, 84, 52), (90, 62, 40), (60, 60, 64), (168, 132, 92)))
        left, right = self._px(self.scene.width * 0.05), self._px(self.scene.width * 0.95)
        for y in self.scene.shelves:
            draw.rectangle([left, self._px(y), right, self._px(y + 9)], fill=wood)
        top = self._px(min(self.scene.shelves)) - self._px(self.scene.height * 0.3)
        for x in (left, right):
            draw.rectangle(
                [x - self._px(4), max(0, top), x + self._px(4), self._px(max(self.scene.shelves))], fill=wood
            )

    def light(self) -> None:
        if self.scene.light_box is None:
            return
        x0, y0, x1, y1 = (self._px(v) for v in self.scene.light_box)
        draw = ImageDraw.Draw(self.image)
        draw.rounded_rectangle([x0, y0, x1, y1], (x1 - x0) // 5, fill=(28, 30, 32), outline=(70, 72, 76), width=3)
        radius = (x1 - x0) * 0.34
        for i, lamp in enumerate(("red", "yellow", "green")):
            cx, cy = (x0 + x1) / 2, y0 + (y1 - y0) * (2 * i + 1) / 6
            fill = self.tint(lamp) if lamp == self.scene.light else (62, 64, 66)
            draw.ellipse([cx - radius, cy - radius, cx + radius, cy + radius], fill=fill)


def draw(scene: Scene, backdrop: Backdrop, book: fonts.FontBook, rng: random.Random, wear: float) -> Image.Image:
    """The scene as a picture of zoom times its size; `wear` is how much a camera did to it, 0 to 1."""
    canvas = Canvas(scene, backdrop, book, rng)
    if scene.shelves:
        canvas.shelf()
    canvas.light()
    if scene.gauge is not None:
        canvas.gauge(scene.gauge)
    for part in scene.parts:
        part.paint(canvas)
    for item in scene.items:
        canvas.item(item)
    for board, family in zip(scene.boards, scene.families, strict=True):
        canvas.board(board, family)
    return photograph(rng, canvas.image, wear)
