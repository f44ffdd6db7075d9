"""The Decisions shape, request side: what is asked becomes state and questions like any other's.

Pictures stand among the words of messages and instructions. What only this shape shows (names that may be missing or
equal, booleans as options, labels of levels) is kept aside as the request's `view`; `decisions_answer.py` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from photocall.asks import Ask
from photocall.errors import CodedError
from photocall.names import check_name
from photocall.questions import Choice, InvalidField, Json, Loc, Noul, Option, Question, Score
from photocall_gateway.body import Body, Limits, open_body
from photocall_gateway.parsing import ParsedRequest, calibrated, check_length, checked, model_name, provenance_of
from photocall_gateway.pictures import Gathered, from_url, stored
from photocall_gateway.viewing import view_of

MAX_QUESTIONS = 200
MAX_CHOICES = 255
MIN_LEVELS, MAX_LEVELS = 2, 10
MAX_PARTS = 1000  # of all messages together
MAX_NAME_CHARS = 256
ROLES = ("user", "system", "developer", "assistant")


def parse_decisions(body: Body, limits: Limits) -> ParsedRequest:
    """Raises InvalidField, or CodedError `malformed`, `unsupported_type`, `body_too_large`, `image_*` and others."""
    raw, parts = open_body(body, limits)
    if parts:
        raise CodedError("malformed", "Pictures are parts of type input_image here, not parts of a form")
    model = model_name(raw)
    gathered = Gathered("input_image", limits.max_image_bytes)
    state = _state(raw, gathered)
    asked = _list(_required(raw, "questions", ()), ("questions",), MAX_QUESTIONS, "question")
    questions: list[Question] = []
    views: list[dict[str, Any]] = []
    for i, item in enumerate(asked):
        question, view = _question(i, item, gathered)
        questions.append(question)
        views.append(view)
    check_length(Ask(model, state, tuple(questions)), limits)
    shown = {"questions": views}
    request, digest = checked(
        model,
        state,
        tuple(questions),
        gathered.pictures,
        limits,
        shown,
        loc=("input",),
        by_question=True,
        provenance=provenance_of(raw),
    )
    return calibrated(request, digest, raw)


def _state(raw: Mapping[str, Json], gathered: Gathered) -> Json:
    """A text as it is, the content of a single user's message, or else the messages with their roles."""
    value = _required(raw, "input", ())
    if isinstance(value, str):
        return value
    if not isinstance(value, Sequence):
        raise InvalidField(("input",), "Expected a string or a list of messages", "content_type")
    if not value:
        raise InvalidField(("input",), "At least one message is required", "too_short")
    if sum(_num_parts(message) for message in value) > MAX_PARTS:
        raise InvalidField(("input",), f"At most {MAX_PARTS} messages and parts", "too_long")
    messages = [_message(message, ("input", i), gathered) for i, message in enumerate(value)]
    if len(messages) == 1 and messages[0]["role"] == "user":
        return messages[0]["content"]
    return messages


def _num_parts(message: Json) -> int:
    content = message.get("content") if isinstance(message, Mapping) else None
    return 1 + (len(content) if isinstance(content, Sequence) and not isinstance(content, str) else 0)


def _message(raw: Json, loc: Loc, gathered: Gathered) -> dict[str, Json]:
    if not isinstance(raw, Mapping):
        raise InvalidField(loc, "Expected a message", "dict_type")
    if raw.get("type", "message") != "message":
        raise InvalidField((*loc, "type"), "Only messages are taken", "literal_error")
    role = _required(raw, "role", loc)
    if role not in ROLES:
        raise InvalidField((*loc, "role"), f"Expected one of {', '.join(ROLES)}", "literal_error")
    return {"role": role, "content": _content(_required(raw, "content", loc), (*loc, "content"), gathered)}


def _content(raw: Json, loc: Loc, gathered: Gathered) -> Json:
    """A text, or the parts of a message: one text, pictures in it by their keys, unless JSON stands among them."""
    if isinstance(raw, str):
        return raw
    if not isinstance(raw, Sequence):
        raise InvalidField(loc, "Expected a string or a list of parts", "content_type")
    if not raw:
        raise InvalidField(loc, "At least one part is required", "too_short")
    parts = [_part(part, (*loc, i), gathered) for i, part in enumerate(raw)]
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) == len(parts):
        return "\n".join(texts)
    return parts[0] if len(parts) == 1 else parts


def _part(raw: Json, loc: Loc, gathered: Gathered) -> Json:
    if not isinstance(raw, Mapping):
        raise InvalidField(loc, "Expected a part with a type", "dict_type")
    match _required(raw, "type", loc):
        case "input_text" | "output_text":
            return _text(_required(raw, "text", loc), (*loc, "text"))
        case "input_image":
            if raw.get("image_url") is None and raw.get("sha256") is not None:
                return gathered.put(stored(raw["sha256"], (*loc, "sha256")), loc, view_of(raw, loc))
            where = (*loc, "image_url")
            return gathered.add(from_url(_required(raw, "image_url", loc), where), where, view_of(raw, loc))
        case "input_json":
            data = _required(raw, "data", loc)
            if isinstance(data, str) or not isinstance(data, Mapping | Sequence):
                raise InvalidField((*loc, "data"), "Expected an object or an array", "content_type")
            return data
    raise InvalidField((*loc, "type"), "Expected input_text, input_image or input_json", "union_tag_invalid")


def _question(index: int, raw: Json, gathered: Gathered) -> tuple[Question, dict[str, Any]]:
    """A question under its place in the list as its name, and its view."""
    loc = ("questions", index)
    if not isinstance(raw, Mapping):
        raise InvalidField(loc, "Expected an object with a type", "dict_type")
    kind = _required(raw, "type", loc)
    name = raw.get("name")
    if name is not None:
        check_name(_text(name, (*loc, "name")), (*loc, "name"), most=MAX_NAME_CHARS)
    view: dict[str, Any] = {"type": kind, "name": name}
    asked: Json = None
    if kind == "predicate" or raw.get("instructions") is not None:
        asked = _content(_required(raw, "instructions", loc), (*loc, "instructions"), gathered)
    if kind == "predicate":
        return Noul(str(index), asked), view
    if kind == "choice":
        options, view["values"] = _choices(_required(raw, "choices", loc), (*loc, "choices"))
        return Choice(str(index), asked, options), view
    if kind == "score":
        levels, view["labels"] = _levels(_required(raw, "levels", loc), (*loc, "levels"))
        return Score(str(index), asked, levels), view
    raise InvalidField((*loc, "type"), "Expected predicate, choice or score", "union_tag_invalid")


def _choices(raw: Json, loc: Loc) -> tuple[tuple[Option, ...], list[tuple[str, str | bool]]]:
    """The options, and the caller's value of each label: the text "true" and the boolean are two values."""
    found: list[tuple[str | bool, str | None]] = []
    for i, item in enumerate(_list(raw, loc, MAX_CHOICES, "choice")):
        where = (*loc, i)
        if not isinstance(item, Mapping):
            raise InvalidField(where, "Expected an object with a value", "dict_type")
        value = _required(item, "value", where)
        if not isinstance(value, str | bool):
            raise InvalidField((*where, "value"), "Expected a string or a boolean", "string_type")
        found.append((value, _description(item, where)))
    texts = {value for value, _ in found if isinstance(value, str)}
    labels = [value if isinstance(value, str) else _boolean_label(value, texts) for value, _ in found]
    for i, label in enumerate(labels):
        if label in labels[:i]:
            raise InvalidField((*loc, i, "value"), "The same value stands twice", "duplicate")
    options = tuple(Option(label, text) for label, (_, text) in zip(labels, found, strict=True))
    return options, [(label, value) for label, (value, _) in zip(labels, found, strict=True)]


def _boolean_label(value: bool, texts: set[str]) -> str:
    label = "true" if value else "false"
    while label in texts:
        label += " (boolean)"
    return label


def _levels(raw: Json, loc: Loc) -> tuple[tuple[str, ...], list[str]]:
    """What the model reads of each level, and the caller's labels, lowest first."""
    levels: list[str] = []
    labels: list[str] = []
    items = _list(raw, loc, MAX_LEVELS, "level")
    if len(items) < MIN_LEVELS:
        raise InvalidField(loc, f"At least {MIN_LEVELS} levels are required, got {len(items)}", "too_short")
    for i, item in enumerate(items):
        where = (*loc, i)
        if not isinstance(item, Mapping):
            raise InvalidField(where, "Expected an object with a label", "dict_type")
        label = _text(_required(item, "label", where), (*where, "label"))
        description = _description(item, where)
        labels.append(label)
        levels.append(label if description is None else f"{label}: {description}")
    return tuple(levels), labels


def _description(raw: Mapping[str, Json], loc: Loc) -> str | None:
    text = raw.get("description")
    return None if text is None else _text(text, (*loc, "description"))


def _required(raw: Mapping[str, Json], field: str, loc: Loc) -> Json:
    if raw.get(field) is None:
        raise InvalidField((*loc, field), "Field required", "missing")
    return raw[field]


def _text(value: Json, loc: Loc) -> str:
    if not isinstance(value, str):
        raise InvalidField(loc, "Expected a string", "string_type")
    return value


def _list(value: Json, loc: Loc, most: int, noun: str) -> Sequence[Json]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidField(loc, f"Expected a list of {noun}s", "list_type")
    if not value:
        raise InvalidField(loc, f"At least one {noun} is required", "too_short")
    if len(value) > most:
        raise InvalidField(loc, f"At most {most} {noun}s, got {len(value)}", "too_long")
    return value
