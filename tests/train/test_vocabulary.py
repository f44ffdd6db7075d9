"""The shipped tokenizer: every text comes back, digits and letters stand alone, control tokens cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from ops.train.vocabulary import SIZE, SPECIAL
from photocall_engine.tokenizer import LETTERS, ChatTokenizer

MINI = Path(__file__).parents[2] / "models" / "mini"
TEXTS = [
    "How many red circles are there?\nA) none\nB) one",
    '{"note":"lot 12","image":[1,2.5,null,true]}',
    "  two  spaces\tand\ttabs \n\n",
    "é ü ß 漢字 한국어 🙂 👩‍👩‍👧 \u0000 \u200b",
    "<|turn>user\n<0x41> ▁ <turn|>",
    "",
]


@pytest.fixture(scope="module")
def tokenizer() -> ChatTokenizer:
    return ChatTokenizer(MINI)


@pytest.mark.parametrize("text", TEXTS)
def test_every_text_comes_back_and_has_no_control_token(tokenizer: ChatTokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(i >= len(SPECIAL) for i in ids)


def test_digits_are_never_merged(tokenizer: ChatTokenizer) -> None:
    assert len(tokenizer.encode("2026")) == 4
    assert tokenizer.encode("7") == tokenizer.encode("77")[:1]


def test_every_printable_character_is_one_token(tokenizer: ChatTokenizer) -> None:
    assert {len(tokenizer.encode(chr(code))) for code in range(32, 127)} == {1}
    assert len(set(tokenizer.letters)) == len(LETTERS)


def test_a_question_is_few_tokens(tokenizer: ChatTokenizer) -> None:
    assert tokenizer.vocab_size == SIZE
    assert len(tokenizer.encode("Is there a red circle in the picture?")) <= 10
