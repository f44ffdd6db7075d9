"""Requests of exact lengths for benches, and a tokenizer to make them with.

The tokenizer has the checkpoint's vocabulary and none of its words: the few that prompts are made of, and one character
of its own for every other token, so that a text of n characters is n tokens drawn from the whole vocabulary. Nothing
here means anything; what is measured is the work.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models

from photocall.asks import Ask
from photocall.questions import Noul, Question, Text
from photocall_engine.edges import EngineRequest
from photocall_engine.prompt import branch_run, prefix_run
from photocall_engine.runner import PatchImage
from photocall_engine.tokenizer import ChatTokenizer

MARKS = {0: "<pad>", 1: "<eos>", 2: "<bos>"}
TURNS = ("<|turn>", "<turn|>")
FIRST_OTHER = 0x20000  # token i is this character + i unless it is one of the words
WORDS = (
    *(chr(code) for code in range(32, 127)),
    *("\n", "user", "model", "Answer", " with", " one", " letter", " in", " a", " few", " words", "yes"),
)
TEMPLATE = "<bos>{% for m in messages %}<|turn>{{ m.role }}\n{{ m.content }}<turn|>\n{% endfor %}<|turn>model\n"
KEY = "picture-1"  # how a state names its picture


def write_tokenizer(directory: Path, config: Mapping[str, Any]) -> Path:
    """tokenizer.json and its companions for a checkpoint of this config.json, which is written too."""
    size = int(config["text_config"]["vocab_size"])
    pieces = {i: chr(FIRST_OTHER + i) for i in range(size)}
    special = MARKS | {
        int(config["boi_token_id"]): "<|image>",
        int(config["eoi_token_id"]): "<image|>",
        int(config["image_token_id"]): "<|image|>",
    }
    places = (i for i in range(len(MARKS), size) if i not in special)
    special |= {next(places): mark for mark in TURNS}
    words = {next(places): word for word in WORDS}
    tokenizer = Tokenizer(models.BPE({piece: i for i, piece in (pieces | words | special).items()}, []))
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in special.values()])
    tokenizer.add_tokens([AddedToken(word, normalized=False) for word in words.values() if len(word) > 1])
    tokenizer.decoder = decoders.Fuse()
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<bos>", "eos_token": "<eos>"}))
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    return directory


@dataclass
class Prompts:
    """Makes requests; no two have a text or a picture in common unless they are asked to."""

    tokenizer: ChatTokenizer
    grid: tuple[int, int]  # of a picture, in patches
    random: random.Random = field(default_factory=lambda: random.Random(0))
    _numbers: count[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        plain = range(self.tokenizer.vocab_size)
        self._plain = [t for t in plain if self.tokenizer.decode([t]) == chr(FIRST_OTHER + t)]

    @property
    def num_soft(self) -> int:
        """Soft tokens of a picture."""
        return self.grid[0] * self.grid[1] // 9

    def text(self, tokens: int) -> str:
        """So many tokens, drawn."""
        return "".join(chr(FIRST_OTHER + token) for token in self.random.choices(self._plain, k=tokens))

    def picture(self) -> PatchImage:
        """Noise."""
        shape = (self.grid[0] * self.grid[1], 768)
        patches = np.random.default_rng(next(self._numbers)).integers(0, 256, shape, dtype=np.uint8)
        return PatchImage(patches, *self.grid)

    def yes_or_no(self, own: int) -> Noul:
        """A question of `own` tokens, from the line break before it to where its letter is read."""
        return Noul("q", self.text(own - self._length(Noul("q", ""))))

    def words(self, own: int, out: int) -> Text:
        """A question of `own` tokens that is answered with `out`."""
        return Text("q", self.text(own - self._length(Text("q", ""))), out)

    def state(self, tokens: int, *, pictured: bool) -> str:
        """A state with which the shared prefix has so many tokens, those of a picture included."""
        key = f"{KEY} " if pictured else ""
        return key + self.text(tokens - len(prefix_run(self.tokenizer, key, self._soft(pictured)).ids))

    def request(
        self, state: str, questions: tuple[Question, ...], image: PatchImage | None = None, **fields: Any
    ) -> EngineRequest:
        """One request; questions get names of their own."""
        number = next(self._numbers)
        named = tuple(replace(question, name=f"q{i}") for i, question in enumerate(questions))
        sha256 = None if image is None else image.patches[0, :16].tobytes().hex()
        ask = Ask(None, state, named, {} if sha256 is None else {KEY: sha256})
        images = {} if sha256 is None or image is None else {sha256: image}
        return EngineRequest(f"job-{number}", ask, images, **fields)

    def _soft(self, pictured: bool) -> dict[str, int]:
        return {KEY: self.num_soft} if pictured else {}

    def _length(self, question: Question) -> int:
        return len(branch_run(self.tokenizer, question, {}).ids)
