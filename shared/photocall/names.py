"""What things are called: names, which callers choose, and ids, which they were given. It knows nothing of the things.

A name comes back in answers and lists, and is kept with what has it; an id becomes part of a Redis key.
"""

from __future__ import annotations

import re

from photocall.invalid import InvalidField, Loc

MAX_NAME_CHARS = 1024  # of a question: its caller's own, and opaque, but no place to keep a book in
SHOWN_CHARS = 80  # of a name or an id, in an error about it
# No colon: what stands behind one in a key is another part of the same thing.
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
_HALVES = re.compile("[\ud800-\udfff]")


def check_name(name: str, loc: Loc, least: int = 0, most: int = MAX_NAME_CHARS) -> None:
    """A name that a caller chose: `least` to `most` characters, whichever Unicode has. `loc` is where it stands.

    Raises InvalidField.
    """
    if not least <= len(name) <= most:
        bounds = f"{least} to {most}" if least else f"at most {most}"
        raise InvalidField(loc, f"A name has {bounds} characters, this one {len(name)}", "key_length")
    if _HALVES.search(name):  # JSON can write one, UTF-8 cannot: it could be read, and never be given back
        raise InvalidField(loc, "A name holds half of a surrogate pair", "key_characters")


def could_be_id(text: str) -> bool:
    """Whether anything can have this id: what does not look like one is not looked for."""
    return _ID.fullmatch(text) is not None
