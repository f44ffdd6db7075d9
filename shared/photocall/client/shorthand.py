"""Shorthand: a question as one line of text, for notebooks and command lines.

    Is the parcel damaged?                          yes or no
    Which colour is it? -> red, green, blue         one of these
    How full is it? -> empty < half < full          a place on this scale
    How many bottles? -> number 0..20               a number; bounds and a unit may be left out: `number ..5.5 kg`
    What does the sign say? -> text
    Where is the label? -> box

What it cannot say (a single option, an option called "text") the functions of questions.py can.
"""

from __future__ import annotations

import re
from typing import Any

_NUMBER = r"[+-]?\d+(?:\.\d+)?"
_RANGE = re.compile(rf"number(?:\s+(?P<min>{_NUMBER})?\s*\.\.\s*(?P<max>{_NUMBER})?)?(?:\s+(?P<unit>[^\d.][^.,]*))?")
_LINE = re.compile(r"(?P<name>[^\W\d][\w-]*)\s*:\s*(?P<text>\S.*)")


def question_of(line: str) -> dict[str, Any]:
    """The question that a line is short for. Raises ValueError."""
    instructions, arrow, wanted = (part.strip() for part in line.rpartition("->"))
    if not arrow:
        instructions, wanted = wanted, "yes/no"
    if not instructions:
        raise ValueError(f"{line!r}: there is no question in this")
    if wanted in ("yes/no", "yes, no", "yes or no"):
        return {"type": "noul", "instructions": instructions}
    if wanted in ("text", "box"):
        return {"type": wanted, "instructions": instructions}
    if found := _RANGE.fullmatch(wanted):
        bounds = {name: _number(found[name]) for name in ("min", "max") if found[name] is not None}
        unit = {"unit": found["unit"]} if found["unit"] else {}
        return {"type": "number", "instructions": instructions, **bounds, **unit}
    for kind, between in (("score", "<"), ("choice", ",")):
        options = [option.strip() for option in wanted.split(between)]
        if len(options) > 1 and all(options):
            return {"type": kind, "instructions": instructions, "criteria": options}
    expected = "`red, green`, `low < high`, `number 0..20`, `text`, `box` or `yes/no`"
    raise ValueError(f"{line!r}: expected {expected} behind ->")


def questions_of(lines: str) -> dict[str, dict[str, Any]]:
    """Questions by name from lines `name: question`; without a name it is q1, q2, ... Empty lines and # do not count.

    Raises ValueError.
    """
    found: dict[str, dict[str, Any]] = {}
    for line in lines.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        name, text = (match["name"], match["text"]) if match else (f"q{len(found) + 1}", line.strip())
        if name in found:
            raise ValueError(f"the name {name!r} stands twice")
        found[name] = question_of(text)
    if not found:
        raise ValueError("there is no question: expected a line such as `damaged: Is the parcel damaged?`")
    return found


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)
