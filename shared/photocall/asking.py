"""How a question is asked, beside what it asks: in which order of its options, when to abstain, and whether at all.

One definition for the gateway (which refuses bad ones) and the engine (which keeps to them). A question that says
nothing of it is asked plainly, and stored as if there were no such fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias, get_args

from photocall.invalid import InvalidField, Json, Loc

Order: TypeAlias = Literal["as_given", "debias", "auto"]
ORDERS: tuple[Order, ...] = get_args(Order)


@dataclass(frozen=True, slots=True)
class Abstain:
    """When an answer is `abstained`: a slot "cannot tell" beside the options, and a floor of `label_mass`."""

    cannot_tell: bool = False
    label_mass: float | None = None


@dataclass(frozen=True, slots=True)
class After:
    """Ask only when the answer of another question of the request is this one."""

    question: str
    equals: bool | float | str


@dataclass(frozen=True, slots=True)
class Asking:
    """All of it for one question; PLAIN where nothing is said."""

    order: Order = "as_given"
    abstain: Abstain | None = None
    after: After | None = None

    @property
    def cannot_tell(self) -> bool:
        """Whether there is a slot for it beside the options."""
        return self.abstain is not None and self.abstain.cannot_tell

    @classmethod
    def from_content(cls, content: Mapping[str, Any] | None) -> Asking:
        """What `to_content` gave."""
        if content is None:
            return PLAIN
        abstain, after = content.get("abstain"), content.get("after")
        return cls(content["order"], Abstain(**abstain) if abstain else None, After(**after) if after else None)

    def to_content(self) -> dict[str, Any] | None:
        """As JSON; None for a plain one."""
        return None if self == PLAIN else asdict(self)


PLAIN = Asking()


def parse_order(value: Json, loc: Loc) -> Order | None:
    """The `order` of a question or of all; None where none is given. Raises InvalidField."""
    if value is None:
        return None
    for order in ORDERS:
        if value == order:
            return order
    raise InvalidField((*loc, "order"), f"Expected {', '.join(map(repr, ORDERS))}", "literal_error")


def parse_abstain(value: Json, loc: Loc) -> Abstain | None:
    """The `abstain` of a question or of all: true for the slot alone, or an object. Raises InvalidField."""
    if value is None or value is False:
        return None
    if value is True:
        return Abstain(cannot_tell=True)
    where = (*loc, "abstain")
    if not isinstance(value, Mapping):
        raise InvalidField(where, "Expected true, or an object with cannot_tell or label_mass", "dict_type")
    for name in value:
        if name not in ("cannot_tell", "label_mass"):
            raise InvalidField((*where, name[:80]), "Expected cannot_tell or label_mass", "extra_forbidden")
    cannot_tell, floor = value.get("cannot_tell", False), value.get("label_mass")
    if not isinstance(cannot_tell, bool):
        raise InvalidField((*where, "cannot_tell"), "Expected true or false", "bool_type")
    if floor is not None and (isinstance(floor, bool) or not isinstance(floor, int | float) or not 0 <= floor <= 1):
        raise InvalidField((*where, "label_mass"), "Expected a number from 0 to 1", "out_of_range")
    if not cannot_tell and floor is None:
        return None
    return Abstain(cannot_tell, None if floor is None else float(floor))


def parse_after(value: Json, loc: Loc) -> After | None:
    """The `after` of a question, by itself; whether the other question can be so answered is the caller's to check."""
    if value is None:
        return None
    where = (*loc, "after")
    if not isinstance(value, Mapping):
        raise InvalidField(where, "Expected an object with question and equals", "dict_type")
    for name in ("question", "equals"):
        if value.get(name) is None:
            raise InvalidField((*where, name), "Field required", "missing")
    question, equals = value["question"], value["equals"]
    if not isinstance(question, str):
        raise InvalidField((*where, "question"), "Expected the name of a question", "string_type")
    if not isinstance(equals, str | bool | int | float):
        raise InvalidField((*where, "equals"), "Expected a string, a number, true or false", "scalar_type")
    return After(question, equals if isinstance(equals, str | bool) else float(equals))
