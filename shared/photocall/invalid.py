"""What a request body is made of, and the one exception for a field of it that cannot be taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
Loc: TypeAlias = tuple[str | int, ...]


class InvalidField(Exception):
    """A field of a request body that cannot be taken. `loc` is its path from the body; `type` is for programs.

    `msg` names what was expected and never repeats what was sent: it may be a picture.
    """

    def __init__(self, loc: Loc, msg: str, type: str) -> None:  # noqa: A002
        super().__init__(f"{'.'.join(str(part) for part in loc)}: {msg}")
        self.loc = loc
        self.msg = msg
        self.type = type
