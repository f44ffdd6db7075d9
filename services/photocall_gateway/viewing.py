"""How a request wants a picture of its to be shown: the fields that stand beside the picture, in every shape.

Whether a picture can be shown so is found by prep, which alone looks into it.
"""

from __future__ import annotations

from collections.abc import Mapping

from photocall.grid import BUDGETS
from photocall.questions import InvalidField, Json, Loc
from photocall.views import AUTO, MAX_DPI, MIN_DPI, Budget, View, parse_colour

FIELDS = ("frame", "page", "dpi", "background", "budget")
MAX_FRAME = 1_000_000


def view_of(raw: Json, loc: Loc) -> View:
    """The view of a picture that stands in an object; the plain one for anything else. Raises InvalidField."""
    if not isinstance(raw, Mapping):
        return View()
    frame = _whole(raw, "frame", loc, 0, MAX_FRAME)
    page = _whole(raw, "page", loc, 1, MAX_FRAME)
    if frame is not None and page is not None:
        raise InvalidField((*loc, "page"), "Either `frame`, from 0, or `page`, from 1", "exclusive")
    if page is not None:
        frame = page - 1
    dpi = _whole(raw, "dpi", loc, MIN_DPI, MAX_DPI)
    background = raw.get("background")
    shown = parse_colour(background) if isinstance(background, str) else None
    if background is not None and shown is None:
        raise InvalidField((*loc, "background"), "Expected a colour as rrggbb", "colour")
    return View(frame or None, dpi, shown, budget_of(raw.get("budget"), (*loc, "budget")))


def budget_of(raw: Json, loc: Loc) -> Budget | None:
    """Soft tokens that a request asks for. Raises InvalidField."""
    if raw is None:
        return None
    if raw == AUTO:
        return AUTO
    if isinstance(raw, bool) or not isinstance(raw, int) or raw not in BUDGETS:
        raise InvalidField(loc, f"Expected {AUTO} or one of {', '.join(map(str, BUDGETS))}", "literal_error")
    return raw


def _whole(raw: Mapping[str, Json], name: str, loc: Loc, least: int, most: int) -> int | None:
    value = raw.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidField((*loc, name), f"Expected an integer from {least} to {most}", "out_of_range")
    return value
