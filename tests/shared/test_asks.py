"""The Ask that a job record stores, and where an asset counts as mentioned."""

from __future__ import annotations

import re
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from photocall.asks import Ask, AssetKeys, mentioned
from photocall.questions import Box, Choice, Noul, Number, Option, Question, Score, Text
from photocall.recalibration import Correction, FittedFor, Recalibration
from photocall.views import View
from photocall.wire import pack, unpack

QUESTIONS: tuple[Question, ...] = (
    Choice("c", {"task": "pick"}, (Option("a", {"x": [1, None]}), Option("b"))),
    Noul("n", None, "yes side", ["no", "side"]),
    Score("s", "how", ("low", {"level": "high"})),
    Number("i", "count", 0.0, 20.0, 1.0, "pieces"),
    Text("t", "caption", 12),
    Box("b", {"find": "the red one"}),
)


def test_an_ask_survives_msgpack_with_every_question_type() -> None:
    ask = Ask(
        "photocall-mini",
        {"photo": "img", "n": [1, 2.5, True, None, "é\u2028"]},
        QUESTIONS,
        {"img": "ab" * 32},
        by_question=True,
        budget="auto",
        views={"img": View(2, 150, "aabbcc", 280), "all": View(budget="auto")},
    )
    assert Ask.from_content(msgpack.unpackb(msgpack.packb(ask.to_content()))) == ask


def test_a_calibration_keeps_its_id_and_what_it_was_fitted_for() -> None:
    """Though only what concerns the questions goes along."""
    whole = Recalibration({"a": Correction(2.0), "b": Correction(3.0)}, fitted_for=FittedFor("f" * 64, "1"))
    ask = Ask(None, "x", (Noul("a", "?"),), calibration=whole.for_questions({"a": "a"}))
    back = Ask.from_content(unpack(pack(ask.to_content()))).calibration
    assert back == ask.calibration
    assert back is not None
    assert (back.id, set(back.questions), back.fitted_for) == (whole.id, {"a"}, whole.fitted_for)


def test_integers_beyond_64_bits_survive_and_key_order_too() -> None:
    ask = Ask(None, {"b": 2**80, "a": -(2**70)}, QUESTIONS[:1])
    back = Ask.from_content(msgpack.unpackb(msgpack.packb(ask.to_content())))
    assert back == ask
    assert isinstance(back.state, dict)
    assert list(back.state) == ["b", "a"]


def test_images_are_distinct_and_in_order() -> None:
    assert Ask(None, "", (), {"x": "2", "y": "1", "z": "2"}).images == ("2", "1")


@pytest.mark.parametrize(
    ("state", "question", "found"),
    [
        ("img-1", Noul("q", "x"), {"img-1"}),
        ({"a": ["see <img-1>."]}, Noul("q", "x"), {"img-1"}),
        ({"img-1": "the key of an object"}, Noul("q", "x"), set()),
        ("", Noul("q", {"ref": "img-1"}), {"img-1"}),
        ("", Noul("q", "x", "like img-1"), {"img-1"}),
        ("", Score("q", None, ("a", {"k": "img-1"})), {"img-1"}),
        ("", Choice("q", "x", (Option("a", ["img-1"]),)), {"img-1"}),
        ("", Choice("q", "x", (Option("img-1"),)), set()),
        ("img-10", Noul("q", "x"), {"img-10"}),
        ("img-10 and img-1", Noul("q", "x"), {"img-10", "img-1"}),
    ],
)
def test_where_an_asset_is_mentioned(state: object, question: Question, found: set[str]) -> None:
    assert mentioned({"img-1", "img-10"}, state, [question]) == found  # type: ignore[arg-type]


def test_without_assets_nothing_is_mentioned() -> None:
    assert mentioned((), "img", QUESTIONS) == set()


@pytest.mark.parametrize(
    ("keys", "text", "found"),
    [
        (("ab", "abc"), "abcab", [(0, "abc"), (3, "ab")]),
        (("bc", "ab"), "abcbc", [(0, "ab"), (3, "bc")]),  # what stands inside another does not count
        (("aa",), "aaaaa", [(0, "aa"), (2, "aa")]),
        (("a", "é"), "éaé", [(0, "é"), (1, "a"), (2, "é")]),
        ((".*",), "x.*y", [(1, ".*")]),
        ((), "x", []),
        (("x",), "", []),
    ],
)
def test_keys_are_found_from_left_to_right(keys: tuple[str, ...], text: str, found: list[tuple[int, str]]) -> None:
    assert list(AssetKeys(keys).find(text)) == found


@given(
    keys=st.sets(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=6),
    text=st.text("abc", max_size=40),
)
def test_keys_are_found_as_a_pattern_of_all_finds_them(keys: set[str], text: str) -> None:
    pattern = re.compile("|".join(sorted(map(re.escape, keys), key=len, reverse=True)))
    assert list(AssetKeys(keys).find(text)) == [(match.start(), match.group()) for match in pattern.finditer(text)]


def test_keys_that_share_a_long_beginning_take_no_longer() -> None:
    """As one pattern this took 10 s, in which the gateway answered nobody."""
    keys = ["a" * (190 + i) + "b" for i in range(64)]
    steps = 0

    class Counted(str):
        def find(self, *arguments: Any) -> int:
            nonlocal steps
            steps += 1
            return super().find(*arguments)

    assert list(AssetKeys(keys).find(Counted("a" * 100_000))) == []
    assert steps == len(keys)
