"""An answer, of whatever type: what every one of them has, and what happens when something else is read of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from photocall.client.errors import NoAnswer

ANSWERED = "answered"


class Alternative(NamedTuple):
    """Another value that was probable."""

    value: Any
    probability: float


class Box(NamedTuple):
    """Edges as fractions of the picture's width (left, right) and height (top, bottom), from its top left."""

    left: float
    top: float
    right: float
    bottom: float

    def pixels(self, width: int, height: int) -> tuple[int, int, int, int]:
        """Left, top, right and bottom in a picture of this size, as Pillow's `crop` takes them."""
        edges = (self.left * width, self.top * height, self.right * width, self.bottom * height)
        left, top, right, bottom = (round(edge) for edge in edges)
        return left, top, right, bottom


@dataclass(frozen=True, slots=True, repr=False)
class Answer:
    """The answer to one question. `name` is the question's, `fields` what the server gave, whole."""

    name: str
    fields: Mapping[str, Any]

    @property
    def type(self) -> str:
        """`choice`, `noul`, `score`, `number`, `text`, `box`; `refusal` or `not_asked` in place of one."""
        return str(self.fields["type"])

    @property
    def status(self) -> str:
        """`answered`; `abstained`: the model would rather not say; `untrained`: it never learned such questions, so
        this is worth nothing; `refused`: it could not be answered; `not_asked`: it comes after another answer."""
        return str(self.fields.get("answer_status", ANSWERED))

    @property
    def answered(self) -> bool:
        """It may be taken as an answer: it is none of the others."""
        return self.status == ANSWERED

    @property
    def value(self) -> Any:
        """What it says: a label, True or False, a number, a text, a Box; None where it is abstained, refused or not
        asked. What an abstained one would have been is still in the field of its type."""
        return self._said if self.status in (ANSWERED, "untrained") else None

    @property
    def probability(self) -> float | None:
        """Of what it says; for yes or no, of yes. None where the answer has none (a box, a text that may be any)."""
        return None

    @property
    def probabilities(self) -> dict[str, float]:
        """Of each option, level, number or text; empty where the answer has none."""
        return dict(self.fields.get("probabilities") or {})

    @property
    def probabilities_raw(self) -> dict[str, float]:
        """The same before your own calibration, where one was applied."""
        return dict(self.fields.get("probabilities_raw") or self.probabilities)

    @property
    def confidence(self) -> float:
        """From 0 to 1, for putting the least sure ones first: 0 where there is no answer."""
        return float(self.fields.get("confidence", 0.0))

    @property
    def alternatives(self) -> list[Alternative]:
        """What else it might be, the likeliest first."""
        return []

    @property
    def calibration(self) -> str | None:
        """The id of your own calibration, where one was applied."""
        found = self.fields.get("calibration")
        return None if found is None else str(found)

    @property
    def cannot_tell(self) -> float | None:
        """The probability that the picture does not say, where `abstain` asked for it."""
        return self._optional("cannot_tell")

    @property
    def label_mass(self) -> float | None:
        """How much of all that the model might have said the labels hold, where `abstain` asked for it."""
        return self._optional("label_mass")

    @property
    def order_spread(self) -> float | None:
        """By how much the order of the options moved a probability, where `order` had several asked."""
        return self._optional("order_spread")

    @property
    def shown(self) -> str:
        """What it says, for a person."""
        return self.status.replace("_", " ") if self.value is None else self._written

    @property
    def _said(self) -> Any:
        return None

    @property
    def _written(self) -> str:
        return str(self._said)

    @property
    def _sure(self) -> float | None:
        """The probability of what is said."""
        return self.probability

    def _optional(self, field: str) -> float | None:
        found = self.fields.get(field)
        return None if found is None else float(found)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name in ("name", "fields"):  # asked of a class or of a copy half made
            raise AttributeError(name)
        raise NoAnswer(self.name, self.fields, name)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}: {self}>"

    def __str__(self) -> str:
        sure = self._sure if self.answered else None
        return self.shown if sure is None else f"{self.shown} ({sure:.0%})"
