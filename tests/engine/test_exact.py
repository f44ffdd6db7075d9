"""Two-letter codes and boxes on a real runner, against brute force: every code or number spelled out as a prompt."""

from __future__ import annotations

import itertools
from collections.abc import Sequence as Items
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from transformers import Gemma4Config, Gemma4ForConditionalGeneration

from photocall.questions import Box, Choice, Json, Option, Question, Score
from photocall_engine.calibration import Calibration
from photocall_engine.edges import EngineRequest
from photocall_engine.prompt import option_codes
from photocall_engine.tokenizer import LETTERS, ChatTokenizer
from photocall_engine.torch_runner import TorchRunner
from tests.engine.checkpoints import DENSE, VISION, randomise
from tests.engine.harness import NUM_TOKENS, PICTURE_MARKS, Bench, picture, write_tokenizer
from tests.engine.rows_helper import Pager, Prompt, prefill, put_images

TEMPERATURE = 1.3
TOLERANCE = 1e-6  # float32 logits; the same sums, though perhaps not in the same order


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("exact")
    sizes = {"vocab_size": NUM_TOKENS, "vocab_size_per_layer_input": NUM_TOKENS}
    others = {"video_token_id": 300, "audio_token_id": 301, "boa_token_id": 302, "eoa_token_index": 303}
    settings: dict[str, Any] = PICTURE_MARKS | others
    torch.manual_seed(3)
    model = Gemma4ForConditionalGeneration(
        Gemma4Config(text_config=DENSE | sizes, vision_config=dict(VISION), **settings)
    )
    randomise(model)
    model.save_pretrained(directory)
    return write_tokenizer(directory)


def answer(
    checkpoint: Path, question: Question, state: Json = MappingProxyType({"photo": "img"}), pictures: int = 1
) -> tuple[dict[str, Any], EngineRequest, Bench]:
    """What the engine says to a question about a picture, or several: `img`, `img2` and so on."""
    runner = TorchRunner.load(checkpoint, num_pages=600, sliding_pages=599, max_rows=2048, soft_capacity=512, threads=1)
    temperatures = dict.fromkeys(("choice", "score", "number", "box"), TEMPERATURE)
    made = Bench(runner, ChatTokenizer(checkpoint), Calibration(temperatures), token_budget=512)
    images = {"img" if i == 1 else f"img{i}": picture(i, 6, 3 + 3 * i) for i in range(1, pictures + 1)}
    asked = made.ask("job", state, question, images=images)
    made.run()
    return dict(made.body("job")["answers"][question.name]), asked, made


class Speller:
    """Says what a model makes of the whole prompt of a request and a path behind it, in one plain sequence."""

    def __init__(self, checkpoint: Path, made: Bench, asked: EngineRequest) -> None:
        composed = made.engine.composer.compose(asked)
        self._runner = TorchRunner.load(
            checkpoint, num_pages=600, sliding_pages=599, max_rows=2048, soft_capacity=512, threads=1
        )
        self._prompt = [*composed.prefix.tokens, *composed.branches[0].base.tokens]
        shown = [*composed.prefix.spans, *composed.branches[0].base.spans]
        bases = put_images(self._runner, [composed.picture(span) for span in shown])
        self._spans = [(span.start, span.end - span.start, base) for span, base in zip(shown, bases, strict=True)]

    def spelled(self, path: Items[int], ids: Items[int]) -> NDArray[np.float64]:
        """Probabilities of some ids. Each time the same pages are written anew, from the first position on."""
        prompt = Pager(self._runner).place(Prompt([*self._prompt, *path], self._spans))
        values = prefill(self._runner, prompt)[-1][list(ids)].astype(np.float64)
        weights = np.exp(values / TEMPERATURE - (values / TEMPERATURE).max())
        return np.asarray(weights / weights.sum())


@pytest.mark.parametrize(("kind", "count"), [("choice", 30), ("score", 57)])
def test_two_letter_codes_are_the_product_of_both_letters(checkpoint: Path, kind: str, count: int) -> None:
    """The last group is short: its second letters are renormalised over those that name an option."""
    names = [f"o{i}" for i in range(count)]
    question: Question = Choice("q", "Which?", tuple(map(Option, names)))
    if kind == "score":
        question = Score("q", "Which?", tuple(names))
    found, asked, made = answer(checkpoint, question)
    letters = made.tokenizer.letters
    codes = option_codes(count)
    groups = [list(group) for _, group in itertools.groupby(codes, key=lambda code: code[0])]
    spelled = Speller(checkpoint, made, asked).spelled
    first = spelled((), letters[: len(groups)])
    wanted: list[float] = []
    for p, group in zip(first, groups, strict=True):
        mark = letters[LETTERS.index(group[0][0])]
        wanted += list(p * spelled((mark,), letters[: len(group)]))
    assert sum(wanted) == pytest.approx(1, abs=1e-9)
    assert list(found["probabilities"].values()) == pytest.approx(wanted, abs=TOLERANCE)
    if kind == "choice":
        assert found["choice"] == names[int(np.argmax(wanted))]
    else:
        assert found["score"] == pytest.approx(sum(i * p for i, p in enumerate(wanted)), abs=count * TOLERANCE)


@pytest.mark.parametrize(
    ("state", "instructions", "pictures", "spans"),
    [
        ("img", "the cup", 1, (1, 0)),
        ({"front": "img", "back": "img2"}, "the cup in the back", 2, (2, 0)),
        ({"front": "img", "back": "img2"}, "the cup in img2", 2, (2, 1)),
        ("A kitchen.", "the cup in img", 1, (0, 1)),
    ],
    ids=["alone", "one of two, by words", "one of two, shown again", "in the question only"],
)
def test_a_box_is_the_expectation_over_every_number_that_the_digits_spell(
    checkpoint: Path, state: Json, instructions: str, pictures: int, spans: tuple[int, int]
) -> None:
    """And its presence what names an edge where the turn could end; whatever pictures there are, and wherever."""
    found, asked, made = answer(checkpoint, Box("q", instructions), state, pictures)
    composed = made.engine.composer.compose(asked)
    assert (len(composed.prefix.spans), len(composed.branches[0].base.spans)) == spans
    marks = [made.tokenizer.single(mark) for mark in "TBLR"]
    spelled = Speller(checkpoint, made, asked).spelled
    *begun, nothing = spelled((), [*marks, made.tokenizer.end])
    assert found["presence"] == pytest.approx(sum(begun), abs=TOLERANCE)
    assert 0.01 < nothing < 0.99, "so that it counts"
    digits = [made.tokenizer.single(digit) for digit in "0123456789"]
    edges = []
    for mark in "TBLR":
        path = (made.tokenizer.single(mark),)
        first = spelled(path, digits)
        expected = 0.0
        for tens, p in enumerate(first):
            second = spelled((*path, digits[tens]), digits)
            expected += sum(p * q * (10 * tens + ones + 0.5) / 100 for ones, q in enumerate(second))
        edges.append(expected)
    top, bottom = sorted(edges[:2])
    left, right = sorted(edges[2:])
    wanted = {"top": top, "bottom": bottom, "left": left, "right": right}
    assert found["box"] == pytest.approx(wanted, abs=TOLERANCE)
    assert 0 <= found["confidence"] <= 1
    assert max(edges) - min(edges) > 100 * TOLERANCE  # another edge's digits would not have passed
