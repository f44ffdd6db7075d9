"""JSON as a request body may carry it: what the prompt, msgpack and the next process could not take is refused here.

Python's own parser is laxer than the standard (NaN, lone surrogates) and recurses with the input, and so does every
renderer behind it; one walk settles all of that for good.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import NoReturn

from photocall.errors import CodedError
from photocall.questions import Json

MAX_DEPTH = 64
# As many commas and brackets as the longest text of the default may have, and some: 32 MiB of `[],` became 850 MiB.
MAX_VALUES = 1_010_000
_MARKS = (b",", b"[", b"{")


def load_json(data: bytes, max_values: int = MAX_VALUES) -> Json:
    """Raises CodedError `malformed`, naming the place, and never repeating what stood there.

    `max_values` bounds what becomes objects of their own, before any is made; commas within strings count too.
    """
    if not data.strip():
        raise CodedError("malformed", "The request body is empty")
    if sum(map(data.count, _MARKS)) > max_values:
        raise CodedError("malformed", f"The request body holds over {max_values} values", limit=max_values)
    try:
        value: Json = json.loads(data.decode("utf-8-sig"), parse_constant=_refuse_constant, object_pairs_hook=_object)
    except UnicodeDecodeError as error:
        raise CodedError("malformed", f"The request body is not UTF-8 (byte {error.start})") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise CodedError("malformed", f"The request body is not valid JSON: {error.msg} ({where})") from error
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:  # an integer of more digits than Python converts
        raise CodedError("malformed", "The request body holds a number that is too long") from error
    _check(value)
    return value


def _check(value: Json) -> None:
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Json] = []
        for item in level:
            if isinstance(item, str):
                _check_text(item)
            elif isinstance(item, float) and not math.isfinite(item):
                raise CodedError("malformed", "The request body holds a number that is too large")
            elif isinstance(item, dict):
                for key in item:
                    _check_text(key)
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        if not below:
            return
        level = below
    raise _too_deep()


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise CodedError("malformed", "The request body holds half of a surrogate pair") from error


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """An object as it stands; Python would keep the last of two equal names, and a question or an option be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        shown = ascii(twice if len(twice) <= 40 else twice[:40] + "...")
        raise CodedError("malformed", f"The request body names {shown} twice in one object")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise CodedError("malformed", f"The request body is not valid JSON: {name} is no JSON value")


def _too_deep() -> CodedError:
    return CodedError("malformed", f"The request body nests deeper than {MAX_DEPTH} levels")
