"""Two answers to one question compared: whether they are the same to the last bit, and how far probabilities moved.

Answers are JSON as any shape shows them. A float travels as msgpack's float64 and as JSON's shortest text that reads
back as the same float, so nothing is rounded between the engine and here, and bits can be compared.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Change:
    """By how much a probability moved, and which: `of` names it, with what it was and what it became."""

    size: float
    of: str = ""
    before: float = 0.0
    after: float = 0.0


NONE = Change(0.0)


def same_bits(first: Any, second: Any) -> bool:
    """Whether two pieces of JSON are the same: the same names, words and numbers, floats bit by bit."""
    if isinstance(first, float) and isinstance(second, float):
        return struct.pack("<d", first) == struct.pack("<d", second)
    if type(first) is not type(second):
        return False
    if isinstance(first, Mapping):
        return first.keys() == second.keys() and all(same_bits(first[name], second[name]) for name in first)
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same_bits, first, second))
    return bool(first == second)


def probabilities(answer: Mapping[str, Any]) -> dict[str, float]:
    """What an answer is sure of, and how much: labels, levels, numbers, texts; for a box its edges too, which are
    expected places. Empty for a question that was not answered."""
    kind, found = answer["type"], dict[str, float]()
    listed = answer.get("probabilities")
    if isinstance(listed, Mapping):
        found = {str(label): float(p) for label, p in listed.items()}
    elif isinstance(listed, list):  # Decisions'
        found = {f"{each['value']!r}": float(each["probability"]) for each in listed}
    elif kind == "noul":
        found = {"yes": answer["noul"]}
    elif kind == "predicate":
        found = {"yes": answer["probability"]}
    elif kind == "text":
        found = {answer["text"]: answer.get("probability", math.exp(min(0.0, answer["logprob"])))}
    elif kind == "box":
        found = {"confidence": answer["confidence"], **{f"edge {name}": edge for name, edge in answer["box"].items()}}
    for more in ("cannot_tell", "label_mass", "no_number", "presence"):
        if more in answer:
            found[more] = float(answer[more])
    return found


def change(first: Mapping[str, Any], second: Mapping[str, Any]) -> Change:
    """The largest change of a probability. One that only one of the answers has is 0 in the other; a question that
    only one of them answers has changed by 1."""
    before, after = probabilities(first), probabilities(second)
    if first["type"] != second["type"] or bool(before) != bool(after):
        return Change(1.0, f"{first['type']} became {second['type']}", 0.0, 1.0)
    largest = NONE
    for label in dict.fromkeys([*before, *after]):
        one, other = before.get(label, 0.0), after.get(label, 0.0)
        if abs(one - other) > largest.size:
            largest = Change(abs(one - other), label, one, other)
    return largest


def said(answer: Mapping[str, Any]) -> Any:
    """What the answer comes down to: a label, yes or no, a likeliest level, a number, a text; None for a box."""
    kind = answer["type"]
    if kind in ("noul", "predicate"):
        return answer["noul" if kind == "noul" else "probability"] >= 0.5
    if kind == "score":
        found = probabilities(answer)
        return max(found, key=lambda level: found[level]) if found else None
    return answer.get(kind) if kind != "box" else None


def by_name(answers: Any) -> dict[str, Mapping[str, Any]]:
    """The answers of a response by question; a list's (Decisions') by place, with the name where there is one."""
    if isinstance(answers, Mapping):
        return dict(answers)
    return {f"{i}: {each['name']}" if each.get("name") else str(i): each for i, each in enumerate(answers)}
