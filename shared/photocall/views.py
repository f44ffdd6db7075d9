"""View: what of a picture file is shown to the model, and how large: what a request may say of each of its pictures.

The same file under two views is two pictures. Which of them a checkpoint can show is known to prep alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, Literal, Self, TypeAlias

Budget: TypeAlias = int | Literal["auto"]
AUTO: Final = "auto"
MIN_DPI, MAX_DPI = 18, 1200  # at which a page is drawn

_COLOUR = re.compile(r"#?[0-9a-fA-F]{6}")
_BUDGET_DIGITS = re.compile(r"[0-9]{1,4}")


@dataclass(frozen=True, slots=True)
class View:
    """None: as the server is set up, and the first frame or page."""

    frame: int | None = None  # from 0: a frame of an animation, a page of a document, a picture of a file of several
    dpi: int | None = None  # of a page that has no pixels of its own
    background: str | None = None  # rrggbb, behind what is transparent
    budget: Budget | None = None  # soft tokens at most

    def __str__(self) -> str:
        """`frame=2&budget=auto`, in one order, so that equal views are equal texts; empty for the default view."""
        told = ((item.name, getattr(self, item.name)) for item in fields(self))
        return "&".join(f"{name}={value}" for name, value in told if value is not None)

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of str(). Raises ValueError."""
        told = dict(pair.split("=", 1) for pair in text.split("&")) if text else {}
        return cls(
            frame=int(told["frame"]) if "frame" in told else None,
            dpi=int(told["dpi"]) if "dpi" in told else None,
            background=told.get("background"),
            budget=parse_budget(told["budget"]) if "budget" in told else None,
        )


PLAIN: Final = View()


def picture_name(sha256: str, view: str) -> str:
    """What stands for one picture in one view; for a plain view the hash alone."""
    return f"{sha256}?{view}" if view else sha256


def described_name(image: Mapping[str, Any]) -> str:
    """The same of a picture as prep describes it; older descriptions have no view."""
    return picture_name(str(image["sha256"]), str(image.get("view", "")))


def parse_budget(text: str) -> Budget:
    """The inverse of str() of a budget. Raises ValueError."""
    if text == AUTO:
        return AUTO
    if not _BUDGET_DIGITS.fullmatch(text):
        raise ValueError(f"{text!r} is no budget")
    return int(text)


def parse_colour(text: str) -> str | None:
    """A colour as rrggbb, with or without a #, in lower case; None for anything else."""
    return text.removeprefix("#").lower() if _COLOUR.fullmatch(text) else None
