"""What is asked of the engine: model, state, questions, and which picture stands behind which asset key.

An Ask is what remains of a request body once the gateway has checked it and put the pictures away; it is stored in
the job record and read by the engine. It carries no picture, only hashes, and knows nothing of HTTP or of prompts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from heapq import heapify, heappop, heapreplace
from typing import Any

from photocall.asking import Asking
from photocall.questions import Box, Choice, Json, Noul, Number, Option, Question, Score, Text
from photocall.recalibration import Recalibration, parse_recalibration
from photocall.views import PLAIN, Budget, View, picture_name


@dataclass(frozen=True, slots=True)
class Ask:
    """One checked request. `model` is the name the caller used, None for the default."""

    model: str | None
    state: Json
    questions: tuple[Question, ...]
    assets: dict[str, str] = field(default_factory=dict)  # asset key -> sha256 of its bytes in hex, or its URL
    by_question: bool = False  # a question that cannot be answered is refused by itself, not the whole request
    calibration: Recalibration | None = None  # the caller's own, on top of the model's
    budget: Budget | None = None  # soft tokens of each picture at most; None: as the server is set up
    views: dict[str, View] = field(default_factory=dict)  # asset key -> how it is shown, where that is said
    provenance: bool = False  # the answer says what it comes from, and what was asked is kept as long as the answer

    @property
    def images(self) -> tuple[str, ...]:
        """The distinct pictures, by hash, in the order their assets were given."""
        return tuple(dict.fromkeys(value for value in self.assets.values() if not is_url(value)))

    @property
    def pictures(self) -> dict[str, str]:
        """Asset key -> the picture as it is shown: its hash with its view; known once nothing is a URL any more."""
        return {key: picture_name(value, str(self.views.get(key, PLAIN))) for key, value in self.assets.items()}

    def views_of(self, sha256: str) -> tuple[View, ...]:
        """The distinct views of one picture, in the order of its assets; the plain one of a picture not named here."""
        found = dict.fromkeys(self.views.get(key, PLAIN) for key, value in self.assets.items() if value == sha256)
        return tuple(found) or (PLAIN,)

    @property
    def urls(self) -> tuple[str, ...]:
        """The distinct pictures that are still to be fetched; none once prep has seen the ask."""
        return tuple(dict.fromkeys(value for value in self.assets.values() if is_url(value)))

    def with_fetched(self, hashes: Mapping[str, str]) -> Ask:
        """The ask with the hash of what each URL gave in its place."""
        return replace(self, assets={key: hashes.get(value, value) for key, value in self.assets.items()})

    def to_content(self) -> dict[str, Any]:
        """A map that msgpack can carry. State and questions travel as JSON text: JSON's integers have no bound."""
        questions = [_fields(question) for question in self.questions]
        body = json.dumps({"state": self.state, "questions": questions}, ensure_ascii=False, separators=(",", ":"))
        how: dict[str, Any] = {"by_question": self.by_question, "budget": self.budget}
        if self.views:
            how["views"] = {key: str(view) for key, view in self.views.items()}
        if self.calibration is not None:
            how["calibration"] = {**self.calibration.to_content(), "part_of": self.calibration.part_of}
        if self.provenance:
            how["provenance"] = True
        return {"model": self.model, "body": body, "assets": dict(self.assets), **how}

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> Ask:
        body = json.loads(content["body"])
        questions = tuple(_question(fields) for fields in body["questions"])
        by_question, budget = bool(content.get("by_question", False)), content.get("budget")  # older asks have neither
        own = _calibration(content.get("calibration"))
        views = {key: View.parse(text) for key, text in content.get("views", {}).items()}
        return cls(
            model=content["model"],
            state=body["state"],
            questions=questions,
            assets=dict(content["assets"]),
            by_question=by_question,
            calibration=own,
            budget=budget,
            views=views,
            provenance=bool(content.get("provenance", False)),
        )


def _calibration(content: Any) -> Recalibration | None:
    own = parse_recalibration(content)
    return own and replace(own, part_of=content.get("part_of", ""))


def is_url(value: str) -> bool:
    """Whether an asset is named by its URL and not by its hash."""
    return ":" in value


class AssetKeys:
    """Finds asset keys in strings. Each is searched for by itself: a pattern of all goes back over what they share."""

    def __init__(self, keys: Collection[str]) -> None:
        self._keys = tuple(keys)
        self._shortest = min(map(len, self._keys), default=0)

    def find(self, text: str) -> Iterator[tuple[int, str]]:
        """Places and keys from left to right, none inside another; the longest where several start at one place."""
        if len(text) < self._shortest:
            return
        ahead = [(at, -len(key), key) for key in self._keys if (at := text.find(key)) >= 0]
        heapify(ahead)
        end = 0
        while ahead:
            at, _, key = ahead[0]
            if at >= end:
                yield at, key
                end = at + len(key)
            later = text.find(key, end)
            if later >= 0:
                heapreplace(ahead, (later, -len(key), key))
            else:
                heappop(ahead)


def mentioned(keys: Collection[str], state: Json, questions: Sequence[Question]) -> set[str]:
    """The asset keys that stand as or inside a string of state, instructions or criteria; object keys do not count."""
    finder, found = AssetKeys(keys), set[str]()
    for text in _strings([state, *_contents(questions)] if keys else None):
        for _, key in finder.find(text):
            found.add(key)
            if len(found) == len(keys):
                return found
    return found


def _contents(questions: Sequence[Question]) -> Iterator[Json]:
    for question in questions:
        yield question.instructions
        if isinstance(question, Choice):
            yield from (option.description for option in question.options)
        elif isinstance(question, Noul):
            yield from (question.true, question.false)
        elif isinstance(question, Score):
            yield from question.levels


def _strings(value: Json) -> Iterator[str]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            waiting.extend(item.values())
        elif isinstance(item, Sequence):
            waiting.extend(item)


def _fields(question: Question) -> dict[str, Any]:
    """A question as JSON. What only some questions have is left out where it is not: requests without it stay as
    they were, in length and in hash."""
    fields = {"type": question.type, **asdict(question)}
    fields["asking"] = question.asking.to_content()
    return {name: value for name, value in fields.items() if value is not None or name not in _SELDOM}


_SELDOM = ("asking", "one_of", "pattern")


def _question(fields: dict[str, Any]) -> Question:
    kind = fields.pop("type")
    fields["asking"] = Asking.from_content(fields.get("asking"))
    match kind:
        case "choice":
            options = tuple(Option(**option) for option in fields.pop("options"))
            return Choice(**fields, options=options)
        case "noul":
            return Noul(**fields)
        case "score":
            levels = tuple(fields.pop("levels"))
            return Score(**fields, levels=levels)
        case "number":
            return Number(**fields)
        case "text":
            one_of = fields.pop("one_of", None)
            return Text(**fields, one_of=None if one_of is None else tuple(one_of))
        case "box":
            return Box(**fields)
    raise ValueError(f"unknown question type {kind!r} in a stored ask")
