"""What is asked: `-q` and the options behind it, which are about the question before them; or a file of questions."""

from __future__ import annotations

import json
from argparse import Action, ArgumentError, ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from photocall.cli.errors import Unable

IMAGE = "[image 1]"


def add_questions(parser: ArgumentParser) -> None:
    """`-q` with all that may follow it, `--questions` and `--state`."""
    group = parser.add_argument_group(
        "questions", "Options about a question stand behind its -q; without one: yes or no."
    )
    group.add_argument("-q", "--question", action=_Ask, metavar="TEXT", help="what is asked; may stand several times")
    group.add_argument("--name", action=_Name, metavar="N", help="the question's name in the answers; q1, q2, ... else")
    for flag, kind, field, parse, metavar, words in _FIELDS:
        if parse is None:
            group.add_argument(flag, action=_Kind, nargs=0, const=kind, help=words)
        else:
            made = _field(kind, field, parse)
            group.add_argument(flag, action=made, metavar=metavar, help=words)
    group.add_argument("--abstain", action=_Abstain, nargs=0, help="rather no answer than a wrong one")
    group.add_argument("--questions", type=Path, metavar="FILE", help="questions as JSON, as docs/api.md has them")
    group.add_argument("--state", metavar="TEXT", help=f"what is known; {IMAGE} in it stands for the picture")


def questions_of(options: Namespace) -> dict[str, Any]:
    """The questions by name. Raises Unable, and OSError for the file."""
    found: dict[str, Any] = {}
    if options.questions is not None:
        found = read_object(options.questions, "questions")
    for number, question in enumerate(options.question or [], 1):
        fields = dict(question)
        name = fields.pop("name", None) or f"q{number}"
        if name in found:
            raise Unable(f"two questions are named {name}: give one of them another --name")
        found[name] = {"type": "noul", **fields}
    if not found:
        raise Unable("there is no question: ask one with -q 'Is it damaged?', or name a file with --questions")
    return found


def state_of(options: Namespace, num_images: int) -> str:
    """The text around the pictures: every picture stands in it, in front where it did not say so."""
    state = options.state or ""
    missing = [mark for mark in map(marker, range(1, num_images + 1)) if mark not in state]
    return "\n".join([*missing, *([state] if state else [])])


def marker(number: int) -> str:
    """What stands for a picture in the state, from 1."""
    return f"[image {number}]"


def read_object(file: Path, what: str) -> dict[str, Any]:
    """A JSON object. Raises Unable and OSError."""
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise Unable(f"{file} is no JSON ({error}): correct it") from None
    if not isinstance(found, dict) or not found:
        raise Unable(f"{file} is no JSON object of {what}: correct it")
    return found


def _list(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


_FIELDS: tuple[tuple[str, str | None, str, Callable[[str], Any] | None, str, str], ...] = (
    ("--choices", "choice", "criteria", _list, "A,B,C", "one of these"),
    ("--levels", "score", "criteria", _list, "A,B,C", "a place on this scale, the lowest first"),
    ("--number", "number", "", None, "", "a number"),
    ("--min", "number", "min", float, "X", "a number, not below"),
    ("--max", "number", "max", float, "X", "a number, not above"),
    ("--step", "number", "step", float, "X", "a number in steps"),
    ("--unit", "number", "unit", str, "UNIT", "a number of these"),
    ("--text", "text", "", None, "", "a short text"),
    ("--one-of", "text", "one_of", _list, "A,B,C", "one of these texts, each with its exact probability"),
    ("--pattern", "text", "pattern", str, "REGEX", "a text that this allows"),
    ("--max-tokens", "text", "max_tokens", int, "N", "a text of so many tokens at most"),
    ("--box", "box", "", None, "", "where it is: edges as fractions of the picture"),
    ("--order", None, "order", str, "WORD", "debias or auto: does the order of the options matter?"),
)


class _Ask(Action):
    """A new question."""

    def __call__(self, parser: ArgumentParser, options: Namespace, values: Any, flag: str | None = None) -> None:
        if not values.strip():
            raise ArgumentError(None, f"{flag} is empty: say what is asked")
        asked = {"instructions": values}
        if "->" in values:
            from photocall.client.shorthand import question_of

            try:
                asked = question_of(values)
            except ValueError as error:
                raise ArgumentError(None, f"{flag}: {error}") from None
        options.question = [*(options.question or []), asked]

    def last(self, options: Namespace, flag: str | None) -> dict[str, Any]:
        """The question that an option is about."""
        if not options.question:
            raise ArgumentError(None, f"{flag} is about a question: put it behind its -q")
        last: dict[str, Any] = options.question[-1]
        return last


class _Name(_Ask):
    def __call__(self, parser: ArgumentParser, options: Namespace, values: Any, flag: str | None = None) -> None:
        self.last(options, flag)["name"] = values


class _Abstain(_Ask):
    def __call__(self, parser: ArgumentParser, options: Namespace, values: Any, flag: str | None = None) -> None:
        self.last(options, flag)["abstain"] = True


class _Kind(_Ask):
    def __call__(self, parser: ArgumentParser, options: Namespace, values: Any, flag: str | None = None) -> None:
        set_kind(self.last(options, flag), str(self.const), flag)


def _field(kind: str | None, field: str, parse: Callable[[str], Any]) -> type[Action]:
    class Field(_Ask):
        def __call__(self, parser: ArgumentParser, options: Namespace, values: Any, flag: str | None = None) -> None:
            question = self.last(options, flag)
            if kind is not None:
                set_kind(question, kind, flag)
            try:
                question[field] = parse(values)
            except ValueError:
                raise ArgumentError(None, f"{flag}: {values!r} is no number") from None

    return Field


def set_kind(question: dict[str, Any], kind: str, flag: str | None) -> None:
    """Say which type a question is of; once. Raises ArgumentError."""
    before = question.setdefault("type", kind)
    if before != kind:
        raise ArgumentError(None, f"{flag} makes a {kind} of a question that is a {before}: leave one of them out")


def words_of(answer: dict[str, Any]) -> tuple[str, float | None]:
    """An answer as a person would say it, and how probable it is; None where nothing says so."""
    kind = answer["type"]
    if kind == "noul":
        return ("yes", answer["noul"]) if answer["noul"] >= 0.5 else ("no", 1 - answer["noul"])
    if kind == "choice":
        return answer["choice"], answer["probabilities"][answer["choice"]]
    if kind == "score":
        level = max(answer["probabilities"], key=answer["probabilities"].__getitem__)
        return str(answer["legend"][level]), answer["probabilities"][level]
    if kind == "number":
        return f"{answer['number']:g}", answer["confidence"]
    if kind == "text":
        return answer["text"], answer.get("probability")
    if kind == "box":
        edges: Sequence[str] = ("left", "top", "right", "bottom")
        return " ".join(f"{edge} {answer['box'][edge]:.2f}" for edge in edges), answer["confidence"]
    return f"({kind.replace('_', ' ')}: {answer.get('message', '')})", None
