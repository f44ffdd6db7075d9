"""How long a page of a list may be."""

from __future__ import annotations

import re

from photocall.questions import InvalidField


def read_limit(text: str, most: int) -> int:
    """The `limit` of a query, 1 to `most`. Raises InvalidField."""
    if not re.fullmatch(rf"[0-9]{{1,{len(str(most))}}}", text) or not 1 <= int(text) <= most:
        raise InvalidField(("limit",), f"Expected 1 to {most}", "out_of_range")
    return int(text)
