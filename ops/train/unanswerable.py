"""Questions that a picture does not answer: those of another scene whose subject this one lacks."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from ops.train.asker import Asked
from ops.train.scene import Scene
from photocall.questions import Choice, Noul, Score

SLOTTED = 0.12  # share of ordinary questions that offer the slot too, so that its presence says nothing
_MOST_OPTIONS = 24
_PRINTED = frozenset({"sign", "tags", "label", "paper", "chart", "meter", "parcel", "roadsign"})


def _no_print(scene: Scene) -> bool:
    return not scene.boards and scene.kind not in _PRINTED


def _no_level(scene: Scene) -> bool:
    return scene.gauge is None and scene.kind not in ("chart", "meter")


def _lacks(*kinds: str) -> Callable[[Scene], bool]:
    return lambda scene: scene.kind not in kinds and (not scene.boards or "sign" not in kinds)


def _no_arrow(scene: Scene) -> bool:
    return all(item.shape != "arrow" for item in scene.items) and scene.kind not in ("roadsign", "emoji", "meter")


LACKING: dict[str, Callable[[Scene], bool]] = {
    **dict.fromkeys(("read_word", "which_word", "first_letter", "word_yes"), _no_print),
    **dict.fromkeys(("read_number", "number_choice", "number_yes"), _no_print),
    **dict.fromkeys(("level", "level_choice", "level_yes", "percent"), _no_level),
    **dict.fromkeys(("light", "light_yes", "may_go"), lambda s: s.light is None and s.kind != "roadsign"),
    **dict.fromkeys(("direction", "direction_yes"), _no_arrow),
    **dict.fromkeys(("paper_text", "paper_number", "paper_choice", "paper_yes"), _lacks("paper", "sign", "parcel")),
    **dict.fromkeys(("paper_items", "paper_extreme", "signed", "tick_yes", "tick_which"), _lacks("paper")),
    **dict.fromkeys(("chart_extreme", "chart_value", "chart_more", "chart_trend"), _lacks("chart", "paper")),
    **dict.fromkeys(("meter_value", "meter_yes", "meter_choice"), _lacks("meter", "chart", "sign", "paper", "gauge")),
    **dict.fromkeys(("damaged", "damage_kind", "damage_level", "damage_where"), _lacks("parcel")),
    "sign_number": _lacks("roadsign", "sign", "paper"),
}


def offered(asked: Sequence[Asked], rng: random.Random) -> list[Asked]:
    """The same questions, some with the slot."""
    return [replace(a, slot=True) if _lettered(a) and rng.random() < SLOTTED else a for a in asked]


def _lettered(asked: Asked) -> bool:
    question = asked.question
    return isinstance(question, Noul | Score) or (
        isinstance(question, Choice) and len(question.options) <= _MOST_OPTIONS
    )


def unanswerable(others: Sequence[Asked], scene: Scene, most: int) -> list[Asked]:
    """Those of another scene's questions that this one cannot answer, at most so many, with nothing as their answer."""
    fit = [a for a in others if a.kind in LACKING and LACKING[a.kind](scene) and not _too_many(a)]
    return [replace(a, answer=None, slot=_lettered(a), kind="cannot_tell") for a in fit[:most]]


def _too_many(asked: Asked) -> bool:
    return isinstance(asked.question, Choice) and len(asked.question.options) > _MOST_OPTIONS
