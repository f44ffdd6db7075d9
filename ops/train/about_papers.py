"""Questions about papers: what a line says, what is ticked, what it costs, what kind of paper it is."""

from __future__ import annotations

from decimal import Decimal

from ops.train.asker import Asker, Made, Maker
from ops.train.families import entries
from ops.train.families.paper import KINDS, Check, Paper, Row
from photocall.questions import Number, Text


def _paper(a: Asker) -> Paper:
    found = a.scene.parts[0]
    assert isinstance(found, Paper)
    return found


def _row(a: Asker, numeric: bool) -> Row | None:
    fit = [r for r in _paper(a).rows if isinstance(r.value, str) != numeric]
    return a.rng.choice(fit) if fit else None


def _key(a: Asker, row: Row) -> str:
    if row.sort == "total":
        return a.rng.choice(("total", "sum", "total amount"))
    return row.key if a.coin() else row.key.lower()


def paper_text(a: Asker) -> Made:
    row = _row(a, numeric=False)
    return (Text("q", a.say("paper_field", key=_key(a, row))), row.shown) if row else None


def paper_number(a: Asker) -> Made:
    row = _row(a, numeric=True)
    if row is None or isinstance(row.value, str):
        return None
    money = isinstance(row.value, Decimal)
    unit = a.rng.choice(("euros", "dollars", "EUR", None, None, None)) if money else None
    low, high = (0.0, 9999.0) if money and a.rng.random() < 0.2 else (None, None)
    step = a.rng.choice((0.01, None, None)) if money else a.rng.choice((1.0, None))
    said = a.say("paper_price", item=row.key) if row.sort == "item" else a.say("paper_field", key=_key(a, row))
    return Number("q", said, low, high, step, unit), row.value


def _like(a: Asker, row: Row) -> list[str]:
    """Other values of the same sort, some a digit off."""
    rng, shown = a.rng, row.shown
    if row.sort == "date":
        others = [entries.date(rng) for _ in range(3)]
    elif row.sort == "code":
        others = [entries.code(rng) for _ in range(4)]
    elif row.sort == "text":
        others = [rng.choice(a.words).capitalize() for _ in range(4)]
    else:
        others = []
    digits = [i for i, c in enumerate(shown) if c.isdigit()]
    for _ in range(3 if digits else 0):
        spot = rng.choice(digits)
        others.append(shown[:spot] + str(rng.randint(0, 9)) + shown[spot + 1 :])
    others += [r.shown for r in _paper(a).rows if r is not row and r.sort == row.sort]
    return [other for other in others if other != shown]


def paper_choice(a: Asker) -> Made:
    row = a.rng.choice(_paper(a).rows) if _paper(a).rows else None
    if row is None:
        return None
    kind = "paper_price" if row.sort == "item" else "paper_field"
    return a.one_of(kind, row.shown, _like(a, row), item=row.key, key=_key(a, row))


def paper_yes(a: Asker) -> Made:
    row = a.rng.choice(_paper(a).rows) if _paper(a).rows else None
    others = _like(a, row) if row else []
    if row is None or not others:
        return None
    truth = a.coin()
    shown = row.shown if truth else a.rng.choice(others)
    return a.yes_no(a.say("paper_yes", key=_key(a, row), value=shown), truth)


def paper_items(a: Asker) -> Made:
    if _paper(a).kind != "receipt":
        return None
    return Number("q", a.say("paper_items")), sum(r.sort == "item" for r in _paper(a).rows)


def paper_extreme(a: Asker) -> Made:
    items = [(r.value, r.key) for r in _paper(a).rows if r.sort == "item" and isinstance(r.value, Decimal)]
    most = a.coin()
    order = sorted(items, reverse=most)
    if len(items) < 2 or order[0][0] == order[1][0]:
        return None
    word = a.rng.choice(("most expensive", "dearest") if most else ("cheapest", "least expensive"))
    return a.one_of("paper_extreme", order[0][1], [key for _, key in items], least=len(items), extreme=word)


def paper_kind(a: Asker) -> Made:
    return a.one_of("paper_kind", KINDS[_paper(a).kind], list(KINDS.values()), least=3)


def paper_title(a: Asker) -> Made:
    return (Text("q", a.say("paper_title")), _paper(a).title) if _paper(a).title else None


def signed(a: Asker) -> Made:
    truth = _paper(a).signed
    return None if truth is None else a.yes_no(a.say("signed", paper=_paper(a).kind), truth)


def _checks(a: Asker) -> tuple[Check, ...]:
    return _paper(a).checks


def tick_yes(a: Asker) -> Made:
    if not _checks(a):
        return None
    check = a.rng.choice(_checks(a))
    return a.yes_no(a.say("tick_yes", label=check.label), check.ticked, "it is ticked", "it is not ticked")


def tick_which(a: Asker) -> Made:
    ticked = [c.label for c in _checks(a) if c.ticked]
    if len(ticked) != 1:
        return None
    return a.one_of("tick_which", ticked[0], [c.label for c in _checks(a)], least=len(_checks(a)))


def tick_text(a: Asker) -> Made:
    ticked = [c.label for c in _checks(a) if c.ticked]
    return (Text("q", a.say("tick_which")), ticked[0]) if len(ticked) == 1 else None


def tick_count(a: Asker) -> Made:
    return (Number("q", a.say("tick_count")), sum(c.ticked for c in _checks(a))) if _checks(a) else None


def missing_field(a: Asker) -> Made:
    """A line that is not on the paper: there is no answer."""
    keys = {row.key.lower() for row in _paper(a).rows}
    absent = [k for k in ("total", "date", "name", "city", "price", "order", "seat", "due", "room") if k not in keys]
    has_total = "sum" in keys or "total" in keys
    key = a.rng.choice([k for k in absent if k != "total" or not has_total] or ["page"])
    if key == "price" and any(row.sort == "item" for row in _paper(a).rows):
        return None
    said = a.say("paper_field", key=key)
    return (Number("q", said), None) if key in ("total", "price", "order", "room") else (Text("q", said), None)


MAKERS: dict[Maker, float] = {
    paper_text: 5.0,
    paper_number: 5.0,
    paper_choice: 1.6,
    paper_yes: 1.6,
    paper_items: 0.6,
    paper_extreme: 1.0,
    paper_kind: 0.7,
    paper_title: 0.6,
    signed: 0.8,
    tick_yes: 2.8,
    tick_which: 1.4,
    tick_text: 1.0,
    tick_count: 0.8,
    missing_field: 0.5,
}
