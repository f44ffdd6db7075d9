"""JSON bodies: what Python's parser would let through and the rooms behind could not take."""

from __future__ import annotations

import pytest

from photocall.errors import CodedError
from photocall_gateway.json_body import MAX_DEPTH, load_json


def test_order_and_unicode_survive() -> None:
    value = load_json('\ufeff{"b": "é\U0001f600", "a": [1, 2.5, null, true]}'.encode())
    assert value == {"b": "é\U0001f600", "a": [1, 2.5, None, True]}
    assert isinstance(value, dict)
    assert list(value) == ["b", "a"]


def test_the_deepest_allowed_body_is_taken_and_one_more_is_not() -> None:
    assert load_json(b"[" * (MAX_DEPTH - 1) + b"1" + b"]" * (MAX_DEPTH - 1))
    with pytest.raises(CodedError, match="nests deeper"):
        load_json(b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "empty"),
        (b" \n\t", "empty"),
        (b"{", "line 1 column 2"),
        (b"state=photo", "line 1 column 1"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "-Infinity"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "too long"),
        (b"[" * 100_000, "nests deeper"),
        (b'{"a": "\xff"}', "UTF-8"),
        ('{"a": 1}'.encode("utf-16"), "UTF-8"),
        (b'{"q": {"red": 1, "blue": 2, "red": 3}}', "'red' twice"),
        (b'{"%s": 1, "%s": 2}' % (b"x" * 999, b"x" * 999), r"x\.\.\.' twice"),
        (rb'{"\ud800": 1, "\ud800": 1}', "twice"),
        (rb'{"a": "\ud800"}', "surrogate"),
        (rb'{"\udc00": 1}', "surrogate"),
    ],
)
def test_what_is_refused(body: bytes, message: str) -> None:
    with pytest.raises(CodedError, match=message) as caught:
        load_json(body)
    assert caught.value.code == "malformed"
