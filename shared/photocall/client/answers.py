"""Typed answers: what the server said of each question, with names for what a program asks of it.

An answer of any type has `value` (what it says, None where it says nothing), `status`, `probability`, `probabilities`
and `fields`, which is all that the server gave (answer.py). What it has by its type stands in its class; reading
anything else of it raises NoAnswer, which says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from photocall.client.answer import Alternative, Answer, Box


class ChoiceAnswer(Answer):
    """One of the options."""

    __slots__ = ()

    @property
    def choice(self) -> str:
        """The likeliest label."""
        return str(self.fields["choice"])

    @property
    def probability(self) -> float:
        return self.probabilities[self.choice]

    @property
    def alternatives(self) -> list[Alternative]:
        return _others(self.probabilities, self.choice)

    @property
    def _said(self) -> str:
        return self.choice


class YesNoAnswer(Answer):
    """Yes or no."""

    __slots__ = ()

    @property
    def yes(self) -> bool:
        """Whether yes is at least as likely as no."""
        return self.noul >= 0.5

    @property
    def noul(self) -> float:
        """The probability of yes, by the name that it has in the API."""
        return float(self.fields["noul"])

    @property
    def probability(self) -> float:
        return self.noul

    @property
    def probabilities(self) -> dict[str, float]:
        return {"yes": self.noul, "no": 1.0 - self.noul}

    @property
    def probabilities_raw(self) -> dict[str, float]:
        found = self.fields.get("probabilities_raw")
        return self.probabilities if not found else {_SIDES.get(side, side): p for side, p in found.items()}

    @property
    def confidence(self) -> float:
        return abs(2.0 * self.noul - 1.0) if self.status != "abstained" else 0.0

    @property
    def _said(self) -> bool:
        return self.yes

    @property
    def _written(self) -> str:
        return "yes" if self.yes else "no"

    @property
    def _sure(self) -> float:
        return max(self.noul, 1.0 - self.noul)


class ScoreAnswer(Answer):
    """A place on a scale."""

    __slots__ = ()

    @property
    def score(self) -> float:
        """The expected level, counted from 0."""
        return float(self.fields["score"])

    @property
    def level(self) -> int:
        """The likeliest level."""
        by_level = self.probabilities
        return int(max(by_level, key=lambda level: (by_level[level], -int(level))))

    @property
    def legend(self) -> list[Any]:
        """What each level was described as, the lowest first."""
        legend = self.fields["legend"]
        return [legend[level] for level in sorted(legend, key=int)]

    @property
    def probability(self) -> float:
        return self.probabilities[str(self.level)]

    @property
    def alternatives(self) -> list[Alternative]:
        return [
            Alternative(int(other.value), other.probability) for other in _others(self.probabilities, str(self.level))
        ]

    @property
    def _said(self) -> float:
        return self.score

    @property
    def _written(self) -> str:
        return f"{self.score:.2f}: {self.legend[self.level]}"


class NumberAnswer(Answer):
    """A number, and the distribution around it."""

    __slots__ = ()

    @property
    def number(self) -> int | float:
        """The likeliest number."""
        found: int | float = self.fields["number"]
        return found

    @property
    def expected(self) -> float:
        """The mean of the distribution."""
        return float(self.fields["expected"])

    @property
    def interval(self) -> tuple[int | float, int | float]:
        """The middle nine tenths of the distribution."""
        low, high = self.fields["interval"]
        return low, high

    @property
    def no_number(self) -> float | None:
        """How much of what the model might have said begins no number that is allowed: near 1, this is a guess."""
        return self._optional("no_number")

    @property
    def probability(self) -> float:
        likeliest = max(self.probabilities.values(), default=0.0)
        return self.confidence if self.answered else likeliest

    @property
    def alternatives(self) -> list[Alternative]:
        return [Alternative(other["number"], other["probability"]) for other in self.fields["alternatives"]]

    @property
    def _said(self) -> int | float:
        return self.number


class TextAnswer(Answer):
    """A short text."""

    __slots__ = ()

    @property
    def text(self) -> str:
        return str(self.fields["text"])

    @property
    def logprob(self) -> float:
        """The logarithm of the text's probability, token by token."""
        return float(self.fields["logprob"])

    @property
    def truncated(self) -> bool:
        """It was cut, so it need not match its pattern."""
        return bool(self.fields["truncated"])

    @property
    def probability(self) -> float | None:
        return self._optional("probability")

    @property
    def confidence(self) -> float:
        """Of a text that is bound, its probability; of one that may be any, 1: there is nothing to tell it by."""
        return 0.0 if self.status == "abstained" else float(self.fields.get("probability", 1.0))

    @property
    def alternatives(self) -> list[Alternative]:
        return _others(self.probabilities, self.text)

    @property
    def _said(self) -> str:
        return self.text


class BoxAnswer(Answer):
    """Where something is."""

    __slots__ = ()

    @property
    def box(self) -> Box:
        return Box(**self.fields["box"])

    @property
    def presence(self) -> float:
        """How probable it is that it is there at all."""
        return float(self.fields["presence"])

    @property
    def _said(self) -> Box:
        return self.box

    @property
    def _written(self) -> str:
        left, top, right, bottom = self.box
        return f"{left:.0%} to {right:.0%} across, {top:.0%} to {bottom:.0%} down"


class Refused(Answer):
    """This question could not be answered; others of the same request were. `code` is one of the error table."""

    __slots__ = ()

    @property
    def code(self) -> str:
        return str(self.fields["code"])

    @property
    def message(self) -> str:
        return str(self.fields["message"])


class NotAsked(Answer):
    """The question comes after another one, whose answer was not the one it comes after."""

    __slots__ = ()

    @property
    def message(self) -> str:
        return str(self.fields["message"])


_SIDES = {"true": "yes", "false": "no"}
_TYPES: dict[str, type[Answer]] = {
    "choice": ChoiceAnswer,
    "noul": YesNoAnswer,
    "score": ScoreAnswer,
    "number": NumberAnswer,
    "text": TextAnswer,
    "box": BoxAnswer,
    "refusal": Refused,
    "not_asked": NotAsked,
}


def answer_of(name: str, fields: Mapping[str, Any]) -> Answer:
    """An answer as the class of its type; of a type that is newer than this client, an Answer."""
    return _TYPES.get(str(fields.get("type")), Answer)(name, fields)


class Answers(Mapping[str, Answer]):
    """The answers of one request by question, in the order in which they were asked."""

    ENOUGH: ClassVar[int] = 12  # lines of a repr

    def __init__(self, fields: Mapping[str, Mapping[str, Any]]) -> None:
        self._answers = {name: answer_of(name, answer) for name, answer in fields.items()}

    def __getitem__(self, name: str) -> Answer:
        return self._answers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)

    def __repr__(self) -> str:
        lines = [f"{name}: {answer}" for name, answer in list(self.items())[: self.ENOUGH]]
        more = len(self) - len(lines)
        return "\n".join([*lines, *([f"... and {more} more"] if more else [])])


def _others(probabilities: Mapping[str, float], best: str) -> list[Alternative]:
    ranked = sorted(probabilities.items(), key=lambda item: -item[1])
    return [Alternative(value, probability) for value, probability in ranked if value != best]
