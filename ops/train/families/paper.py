"""Papers: receipts, forms, invoices, tickets and product labels, with lines to read and boxes to tick."""

from __future__ import annotations

import random
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from ops.train.backgrounds import Rgb, shade
from ops.train.families import entries
from ops.train.families.world import World, placed
from ops.train.marks import Box

if TYPE_CHECKING:
    from ops.train.scene import Canvas, Scene

KINDS = {
    "receipt": "a receipt",
    "form": "a form",
    "invoice": "an invoice",
    "ticket": "a ticket",
    "label": "a product label",
    "letter": "a letter",
}
_TEXTS = ("Name", "City", "Customer", "Country", "Brand", "Street", "Owner", "Product", "Team", "Status", "Driver")
_NUMBERS = ("Order", "Room", "Quantity", "Weight", "Page", "Gate", "Number", "Age", "Lot", "Table", "Persons", "Points")
_MONEY = ("Price", "Tax", "Deposit", "Amount", "Fee", "Discount", "Rent", "Balance", "Tip")
_DATES = ("Date", "Due", "Born", "Expires", "Issued", "Delivery", "Valid until", "Best before")
_CODES = ("Seat", "Plate", "Code", "Batch", "Ticket", "Flight")
_TITLES = {
    "receipt": ("RECEIPT", "Receipt", "SALE"),
    "form": ("FORM", "Application", "Questionnaire", "CHECK LIST", "Registration"),
    "invoice": ("INVOICE", "Invoice", "Bill"),
    "ticket": ("TICKET", "Ticket", "Boarding pass", "Admission"),
}
_INKS: tuple[Rgb, ...] = ((20, 20, 22), (30, 34, 60), (60, 60, 64), (26, 46, 90), (70, 24, 24))
_PAPERS: tuple[Rgb, ...] = ((252, 252, 250), (246, 242, 230), (238, 240, 244), (250, 246, 200), (226, 238, 226))


@dataclass(frozen=True, slots=True)
class Row:
    """One line with a name and a value. `value` is what the line says, as an answer would give it."""

    key: str
    shown: str
    value: str | int | Decimal
    sort: str  # text, date, code, number, money, item, total


@dataclass(frozen=True, slots=True)
class Check:
    """A box to tick with its label."""

    label: str
    ticked: bool


@dataclass(frozen=True, slots=True)
class Paper:
    """The sheet; `signed` is None where there is no line to sign on."""

    kind: str
    title: str
    rows: tuple[Row, ...]
    checks: tuple[Check, ...]
    signed: bool | None
    size: float  # of its letters, model pixels
    font: str
    box: Box
    look: int  # what is random about its painting

    def paint(self, canvas: Canvas) -> None:
        """Top to bottom, a line at a time."""
        _Press(self, canvas).all()


class _Press:
    """Paints one paper."""

    def __init__(self, paper: Paper, canvas: Canvas) -> None:
        self.paper, self.canvas = paper, canvas
        self.rng = random.Random(paper.look)
        self.ink = self.rng.choice(_INKS)
        self.pitch = paper.size * 1.5
        self.left, self.right = paper.box[0] + paper.size * 0.8, paper.box[2] - paper.size * 0.8
        self.y = paper.box[1] + paper.size * 0.3

    def all(self) -> None:
        pen, paper = self.canvas.pen(), self.paper
        edge = self.rng.choice((None, (150, 150, 150), self.ink))
        pen.rectangle(self.canvas.scaled(*paper.box), fill=shade(self.rng, self.rng.choice(_PAPERS), 8), outline=edge)
        if paper.title:
            self.y += self.pitch * 1.1
            middle = self.rng.random() < 0.6
            x = (self.left + self.right) / 2 if middle else self.left
            self.canvas.print(paper.title, x, self.y, paper.size * 1.2, paper.font, self.ink, "m" if middle else "l")
            if self.rng.random() < 0.4:
                self._rule(self.y + paper.size * 0.35)
        apart = paper.kind == "receipt" or self.rng.random() < 0.4
        colon = self.rng.choice((":", "", ":"))
        for row in paper.rows:
            self.y += self.pitch
            if row.sort == "total":
                self._rule(self.y - paper.size * 0.95)
            key = row.key if row.sort in ("item", "total") or apart else row.key + colon
            self.canvas.print(key, self.left, self.y, paper.size, paper.font, self.ink)
            x, anchor = (self.right, "r") if apart else (self.left + paper.size * 0.62 * self._widest(), "l")
            self.canvas.print(row.shown, x, self.y, paper.size, paper.font, self.ink, anchor)
        for check in paper.checks:
            self.y += self.pitch
            self._check(check)
        if paper.signed is not None:
            self._sign(paper.signed)
        if paper.kind == "label":
            self._bars()

    def _widest(self) -> int:
        return max(len(row.key) for row in self.paper.rows) + 2

    def _rule(self, y: float) -> None:
        line = self.canvas.scaled(self.left, y, self.right, y)
        self.canvas.pen().line(line, fill=self.ink, width=max(1, round(self.canvas.zoom)))

    def _check(self, check: Check) -> None:
        canvas, side, pen = self.canvas, self.paper.size * 0.86, self.canvas.pen()
        x, y = self.left, self.y - side * 0.9
        box = canvas.scaled(x, y, x + side, y + side)
        round_box = self.paper.look % 5 == 0
        (pen.ellipse if round_box else pen.rectangle)(box, outline=self.ink, width=max(1, round(canvas.zoom * 1.6)))
        if check.ticked:
            how, width = self.paper.look % 4, max(2, round(canvas.zoom * 2.2))
            color = self.ink if self.paper.look % 3 else (30, 60, 170)
            x0, y0, x1, y1 = box
            if how == 0:
                pen.line([x0, y0, x1, y1], fill=color, width=width)
                pen.line([x0, y1, x1, y0], fill=color, width=width)
            elif how == 1:
                inset = max(1, (x1 - x0) // 5)
                pen.rectangle([x0 + inset, y0 + inset, x1 - inset, y1 - inset], fill=color)
            else:
                knee = (x0 + (x1 - x0) * 0.4, y1 - 1)
                pen.line([(x0 + 1, (y0 + y1) / 2), knee, (x1 + (x1 - x0) * 0.2, y0 - 1)], fill=color, width=width)
        canvas.mark("tick" if check.ticked else "no tick", (x, y, x + side, y + side))
        canvas.print(check.label, x + side * 1.6, self.y, self.paper.size, self.paper.font, self.ink)

    def _sign(self, signed: bool) -> None:
        size = self.paper.size
        self.y += self.pitch * 1.5
        self.canvas.print("Signature", self.left, self.y, size * 0.9, self.paper.font, self.ink)
        start = self.left + size * 5.6
        self.canvas.pen().line(self.canvas.scaled(start, self.y + 2, self.right, self.y + 2), fill=self.ink)
        if signed:
            step = (self.right - start) / 14
            points = [(start + step * i, self.y - self.rng.uniform(0, size * 1.1)) for i in range(3, 13)]
            flat = [v for point in points for v in self.canvas.scaled(*point)]
            self.canvas.pen().line(flat, fill=(24, 40, 140), width=max(1, round(self.canvas.zoom * 1.5)), joint="curve")

    def _bars(self) -> None:
        size, x = self.paper.size, self.left
        y = self.y + size * 0.6
        while x < min(self.right, self.left + size * 7):
            width = self.rng.choice((1.5, 1.5, 3, 4))
            self.canvas.pen().rectangle(self.canvas.scaled(x, y, x + width, y + size * 1.6), fill=(20, 20, 20))
            x += width + self.rng.choice((1.5, 2, 3))


def _row(rng: random.Random, world: World, sort: str, taken: set[str], most: int) -> Row | None:
    """A row of at most `most` characters whose key is not taken."""
    if sort == "item":
        key = world.word(rng).capitalize()
    else:
        key = rng.choice({"text": _TEXTS, "date": _DATES, "code": _CODES, "number": _NUMBERS, "money": _MONEY}[sort])
    value: str | int | Decimal
    if sort == "text":
        value = shown = f"{world.word(rng)} {world.word(rng)}" if rng.random() < 0.12 else world.word(rng)
    elif sort == "date":
        value = shown = entries.date(rng) if rng.random() < 0.85 else entries.time(rng)
    elif sort == "code":
        value = shown = entries.code(rng)
    elif sort == "number":
        value = rng.randint(0, 10 ** rng.randint(1, 5) - 1)
        shown = str(value)
    else:
        value = entries.amount(rng, 2 if sort == "item" else 4)
        shown = str(value) if sort == "item" else entries.priced(rng, value)
    if key.lower() in taken or len(key) + len(shown) + 3 > most:
        return None
    taken.add(key.lower())
    return Row(key, shown, value, sort)


_SORTS = {
    "receipt": ("date", "item", "item", "item", "item", "item"),
    "form": ("text", "text", "date", "number", "text"),
    "invoice": ("date", "text", "number", "money", "money", "date"),
    "ticket": ("text", "date", "code", "number", "money", "date"),
    "label": ("number", "date", "money", "code", "text"),
    "letter": ("date", "text", "text", "number"),
}


def compose(rng: random.Random, made: Scene, tones: tuple[Rgb, ...], world: World) -> None:
    """One paper, as large as its lines need."""
    kind = rng.choices(tuple(KINDS), (26, 34, 14, 12, 10, 4))[0]
    size = rng.choices((rng.uniform(14, 17), rng.uniform(17, 22), rng.uniform(22, 30)), (30, 45, 25))[0]
    room = min(made.width - 12, size * rng.uniform(13, 24))
    most = int((room - 1.6 * size) / (0.6 * size))
    lines = int((made.height - 12) / (1.5 * size)) - 2
    taken: set[str] = set()
    rows: list[Row] = []
    wanted = rng.randint(1, 6) if kind != "receipt" else rng.randint(2, 7)
    for _ in range(wanted * 3):
        if len(rows) < min(wanted, lines - 1):
            row = _row(rng, world, rng.choice(_SORTS[kind]), taken, most)
            rows += [row] if row else []
    if kind == "receipt":
        rows.sort(key=lambda row: row.sort == "item")
        items = [row.value for row in rows if isinstance(row.value, Decimal)]
        if items and len(rows) < lines and rng.random() < 0.8:
            total = sum(items, Decimal(0))
            name = rng.choice(("Total", "TOTAL", "Sum"))
            rows.append(Row(name, entries.priced(rng, total), total, "total"))
    left = lines - len(rows)
    checks: list[Check] = []
    if kind == "form" and left > 1:
        labels: set[str] = set()
        for _ in range(rng.randint(2, min(6, left)) if rng.random() < 0.85 else 0):
            label = world.word(rng).capitalize()[: most - 3]
            labels.add(label)
        share = rng.choice((0.0, 0.3, 0.5, 0.5, 1.0))
        checks = [Check(label, rng.random() < share) for label in sorted(labels, key=lambda _: rng.random())]
        if checks and rng.random() < 0.4:  # exactly one, as where one of several is asked for
            one = rng.randrange(len(checks))
            checks = [Check(check.label, i == one) for i, check in enumerate(checks)]
    left -= len(checks)
    signed = rng.random() < 0.5 if kind in ("form", "letter", "invoice") and left > 2 and rng.random() < 0.5 else None
    if not rows and not checks:
        rows = [Row("Code", shown := entries.code(rng), shown, "code")]
    title = rng.choice(_TITLES[kind]) if kind in _TITLES else world.word(rng).upper()
    title = title if len(title) * 1.2 < most else ""
    height = size * 1.5 * (len(rows) + len(checks) + 1.1 + (1.2 if title else 0) + (2 if signed is not None else 0))
    height += size * 2.2 if kind == "label" else 0
    box = placed(rng, made, room, height)
    made.parts.append(
        Paper(kind, title, tuple(rows), tuple(checks), signed, size, world.font(rng), box, rng.getrandbits(30))
    )
    made.named.append((kind, box))
