"""Names and ids: what may be one, wherever a caller chooses it."""

from __future__ import annotations

import pytest

from photocall.invalid import InvalidField
from photocall.names import MAX_NAME_CHARS, check_name, could_be_id


@pytest.mark.parametrize("name", ["", "a", "señal 道路 🙂", "x" * MAX_NAME_CHARS, "a\u2028b", "a\n\x00"])
def test_a_name(name: str) -> None:
    check_name(name, ("questions", name))


@pytest.mark.parametrize(
    ("name", "kind"), [("x" * (MAX_NAME_CHARS + 1), "key_length"), ("half \ud83d", "key_characters")]
)
def test_what_is_no_name(name: str, kind: str) -> None:
    with pytest.raises(InvalidField) as refused:
        check_name(name, ("questions", "it"))
    assert (refused.value.loc, refused.value.type) == (("questions", "it"), kind)
    assert name not in refused.value.msg


def test_bounds_of_its_own() -> None:
    for name in ("", "x" * 6):
        with pytest.raises(InvalidField, match=f"1 to 5 characters, this one {len(name)}"):
            check_name(name, (), 1, 5)
    check_name("x" * 5, (), 1, 5)


def test_ids() -> None:
    for made in ("job_0123456789abcdef01234567", "batch_x-1", "A"):
        assert could_be_id(made)
    for other in ("", "ses_1:held", "a b", "../x", "a\n", "job_é", "x" * 81):
        assert not could_be_id(other)
