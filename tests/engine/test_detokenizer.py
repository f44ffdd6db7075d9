"""Text grows token by token to what all tokens together say, and never takes anything back."""

from __future__ import annotations

import pytest

from photocall_engine.detokenizer import Detokenizer
from photocall_engine.tokenizer import ChatTokenizer


@pytest.mark.parametrize(
    "text", ["plain words", "né à Gödöllő", "日本語 and 🙂🙃!", "a\n\nb", " leading and trailing "]
)
def test_it_ends_as_the_whole_decodes(tokenizer: ChatTokenizer, text: str) -> None:
    said = Detokenizer(tokenizer)
    tokens = tokenizer.encode(text)
    grown = [""]
    for token in tokens:
        said.add(token)
        assert said.text.startswith(grown[-1])
        grown.append(said.text)
    said.finish()
    assert said.text == tokenizer.decode(tokens) == text
    assert len(set(grown)) == len(text) + 1, "each character came by itself, whole"


def test_a_character_cut_off_is_shown_as_such_at_the_end_only(tokenizer: ChatTokenizer) -> None:
    said = Detokenizer(tokenizer)
    for token in tokenizer.encode("né")[:-1]:
        said.add(token)
    assert said.text == "n"
    said.finish()
    assert said.text == "n\N{REPLACEMENT CHARACTER}"


def test_broken_bytes_do_not_take_back_what_was_said(tokenizer: ChatTokenizer) -> None:
    """Decoded as one run, bytes that end broken lose the good characters in front of them as well."""
    first, second = tokenizer.encode("é")
    said = Detokenizer(tokenizer)
    for token in (first, second, first, *tokenizer.encode("x")):
        said.add(token)
    said.finish()
    assert said.text == "é\N{REPLACEMENT CHARACTER}x"
