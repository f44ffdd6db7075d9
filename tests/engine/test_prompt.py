"""The words a model reads, and the places of pictures among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from photocall.questions import Choice, Json, Noul, Number, Option, Question, Score, Text
from photocall_engine.prompt import ImageRef, Piece, option_codes, question_pieces, state_pieces
from photocall_engine.tokenizer import ChatTokenizer, TokenizerError
from tests.engine.harness import TEMPLATE, write_tokenizer

KEYS = ("img-1", "img-10")


@pytest.mark.parametrize(
    ("state", "pieces"),
    [
        ("", ["\n"]),
        ("plain é", ["plain é\n"]),
        ("img-1", [ImageRef("img-1"), "\n"]),
        ("a img-10 b img-1", ["a ", ImageRef("img-10"), " b ", ImageRef("img-1"), "\n"]),
        ({"photo": "img-1"}, ['{"photo":"', ImageRef("img-1"), '"}\n']),
        ({"img-1": "the key stays"}, ['{"img-1":"the key stays"}\n']),
        ({"b": [1, 2.5, None, True], "a": {}}, ['{"b":[1,2.5,null,true],"a":{}}\n']),
        (['say "é"\n'], ['["say \\"é\\"\\n"]\n']),
        ([], ["[]\n"]),
    ],
)
def test_state_is_compact_json_in_the_callers_order(state: Json, pieces: list[Piece]) -> None:
    assert state_pieces(state, KEYS) == pieces


@pytest.mark.parametrize(
    ("question", "pieces"),
    [
        (
            Choice("q", "Which?", (Option("red"), Option("blue", {"like": "img-1"}))),
            ['\nWhich?\nA) red\nB) blue: {"like":"', ImageRef("img-1"), '"}\nAnswer with one letter.'],
        ),
        (Choice("q", None, (Option("img-1"),)), ["\nA) img-1\nAnswer with one letter."]),
        (Noul("q", "Is it?", None, "no img-1"), ["\nIs it?\nA) yes\nB) no: no ", ImageRef("img-1"),
                                                 "\nAnswer with one letter."]),
        (Score("q", "How?", ("low", "high")), ["\nHow?\nA) low\nB) high\nAnswer with the level's letter."]),
        (Number("q", "How many?", unit="kg"), ["\nHow many?\nAnswer with a number in kg."]),
        (Text("q", "What?"), ["\nWhat?\nAnswer in a few words."]),
    ],
)  # fmt: skip
def test_questions(question: Question, pieces: list[Piece]) -> None:
    assert question_pieces(question, KEYS) == pieces


def test_many_small_pieces_are_joined_at_once() -> None:
    """Joined one by one, a state of a million characters took the engine 20 s."""
    [text] = state_pieces([""] * 200_000, KEYS)
    assert text == "[" + ",".join(['""'] * 200_000) + "]\n"


def test_the_name_of_a_question_is_never_shown() -> None:
    assert "secret" not in str(question_pieces(Noul("secret", "Is it?"), ()))


def test_codes_are_letters_up_to_26_options_and_pairs_beyond() -> None:
    assert option_codes(3) == ["A", "B", "C"]
    assert option_codes(26)[-1] == "Z"
    assert option_codes(27)[:2] + option_codes(27)[-1:] == ["AA", "AB", "BA"]
    assert len(set(option_codes(255))) == 255


def test_a_checkpoints_template_runs_nothing(tmp_path: Path) -> None:
    proof = tmp_path / "ran"
    directory = write_tokenizer(tmp_path)
    (directory / "chat_template.jinja").write_text(
        f"{{{{ cycler.__init__.__globals__.os.system('touch {proof}') }}}}" + TEMPLATE
    )
    with pytest.raises(TokenizerError):
        ChatTokenizer(directory)
    assert not proof.exists()
