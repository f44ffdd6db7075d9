"""Lists: how long a page may be, and whose things it shows."""

from __future__ import annotations

import re

from photocall.questions import InvalidField
from photocall_gateway.described import query

KEY = query("key", {"type": "string"}, "Those of the API key with this id; for a key with the scope `admin`.")


def read_limit(text: str, most: int) -> int:
    """The `limit` of a query, 1 to `most`. Raises InvalidField."""
    if not re.fullmatch(rf"[0-9]{{1,{len(str(most))}}}", text) or not 1 <= int(text) <= most:
        raise InvalidField(("limit",), f"Expected 1 to {most}", "out_of_range")
    return int(text)
