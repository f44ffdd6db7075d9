"""The names the served model answers to."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

from photocall.errors import CodedError

DESCRIPTION = (
    "Typed questions about text and pictures: choice, yes-no, score, number, short text and box. "
    "An answer of a type that the model was not trained for has the answer_status `untrained`."
)
RELEASE_DATE = "2026-11-30"


class ModelNames:
    """One model, its own name and its aliases; an alias may hold `*`."""

    def __init__(self, name: str, aliases: Sequence[str]) -> None:
        self.name = name
        self.aliases = tuple(aliases)

    def check(self, asked: str | None) -> None:
        """Raises CodedError `unknown_model`; None asks for whatever is served."""
        if asked is None or asked == self.name or any(fnmatchcase(asked, alias) for alias in self.aliases):
            return
        shown = (asked or "an empty name") if len(asked) <= 80 else "a name that is too long"
        msg = f"Unknown model: {shown}; this server answers to {', '.join((self.name, *self.aliases))}"
        raise CodedError("unknown_model", msg, loc=["model"])

    def listing(self) -> dict[str, Any]:
        """Both lists in one body: `models` as System One's clients read it, `data` as OpenAI's do."""
        names = [(self.name, DESCRIPTION)]
        names += [(alias, f"Alias of {self.name}.") for alias in self.aliases if "*" not in alias]
        return {
            "object": "list",
            "models": [{"name": name, "description": text, "release_date": RELEASE_DATE} for name, text in names],
            "data": [{"id": name, "object": "model", "created": 0, "owned_by": "photocall"} for name, _ in names],
        }
