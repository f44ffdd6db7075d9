"""What is asked of the engine: model, state, questions, and which picture stands behind which asset key.

An Ask is what remains of a request body once the gateway has checked it and put the pictures away; it is stored in
the job record and read by the engine. It carries no picture, only hashes, and knows nothing of HTTP or of prompts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from photocall.questions import Choice, Json, Noul, Number, Option, Question, Score, Text


@dataclass(frozen=True, slots=True)
class Ask:
    """One checked request. `model` is the name the caller used, None for the default."""

    model: str | None
    state: Json
    questions: tuple[Question, ...]
    assets: dict[str, str] = field(default_factory=dict)  # asset key -> sha256 of its bytes, hex

    @property
    def images(self) -> tuple[str, ...]:
        """The distinct pictures, by hash, in the order their assets were given."""
        return tuple(dict.fromkeys(self.assets.values()))

    def to_content(self) -> dict[str, Any]:
        """A map that msgpack can carry. State and questions travel as JSON text: JSON's integers have no bound."""
        questions = [{"type": q.type, **asdict(q)} for q in self.questions]
        body = json.dumps({"state": self.state, "questions": questions}, ensure_ascii=False, separators=(",", ":"))
        return {"model": self.model, "body": body, "assets": dict(self.assets)}

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> Ask:
        body = json.loads(content["body"])
        questions = tuple(_question(fields) for fields in body["questions"])
        return cls(content["model"], body["state"], questions, dict(content["assets"]))


def asset_pattern(keys: Collection[str]) -> re.Pattern[str] | None:
    """Finds asset keys in a string; the longest wins where one key starts with another. None without keys."""
    if not keys:
        return None
    return re.compile("|".join(re.escape(key) for key in sorted(keys, key=len, reverse=True)))


def mentioned(keys: Collection[str], state: Json, questions: Sequence[Question]) -> set[str]:
    """The asset keys that stand as or inside a string of state, instructions or criteria; object keys do not count."""
    pattern = asset_pattern(keys)
    if pattern is None:
        return set()
    return {found.group() for text in _strings([state, *_contents(questions)]) for found in pattern.finditer(text)}


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


def _question(fields: dict[str, Any]) -> Question:
    kind = fields.pop("type")
    match kind:
        case "choice":
            options = tuple(Option(**option) for option in fields.pop("options"))
            return Choice(**fields, options=options)
        case "noul":
            return Noul(**fields)
        case "score":
            return Score(fields["name"], fields["instructions"], tuple(fields["levels"]))
        case "number":
            return Number(**fields)
        case "text":
            return Text(**fields)
    raise ValueError(f"unknown question type {kind!r} in a stored ask")
