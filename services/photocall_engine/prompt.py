"""From a request to prompt pieces to token ids.

A request is one prefix (the turn header and the state) and one branch per question (the question and the turn
footer). Pieces are tokenized one by one, so the ids of the prefix never depend on the question behind it. This file
decides every word the model reads, in training as in serving; a change of any of them changes `PROMPT_VERSION`, which
is part of the prefix cache's key. It knows no tensors and no pages.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from photocall.asks import AssetKeys
from photocall.questions import Box, Choice, Json, Noul, Number, Question, Score, Text
from photocall_engine.tokenizer import LETTERS, ChatTokenizer

PROMPT_VERSION = "1"
CANNOT_TELL = "cannot tell"  # the label of the slot behind the options, where a question has one


@dataclass(frozen=True, slots=True)
class ImageRef:
    """The place of one picture in a prompt, by its asset key."""

    key: str


Piece: TypeAlias = str | ImageRef


@dataclass(frozen=True, slots=True)
class ImageSpan:
    """Soft tokens of one picture: positions [start, end) of the token list they stand in."""

    key: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TokenRun:
    """Token ids with their picture spans; span positions are relative to the run."""

    ids: tuple[int, ...]
    spans: tuple[ImageSpan, ...]


def state_pieces(state: Json, keys: Collection[str]) -> list[Piece]:
    """The state as compact JSON in the caller's key order (a bare string as it is), pictures in place of their keys."""
    return _merge([*_render(state, AssetKeys(keys), bare=True), "\n"])


def question_pieces(question: Question, keys: Collection[str], cannot_tell: bool = False) -> list[Piece]:
    """Everything of one question that the model reads, from the line break before it to the last word of the user.

    `cannot_tell` adds one more lettered line behind the options of a choice, a yes-no or a scale, for what the picture
    does not show. Numbers, texts and boxes need no such line: there the answer is an end of the turn at once.
    """
    assets = AssetKeys(keys)
    slot = int(cannot_tell)
    lines: list[list[Piece]] = []
    if question.instructions is not None:
        lines.append(_render(question.instructions, assets, bare=True))
    if isinstance(question, Choice):
        codes = option_codes(len(question.options) + slot)
        lines += [
            _option(code, o.label, o.description, assets) for code, o in zip(codes, question.options, strict=False)
        ]
        lines += [_option(codes[-1], CANNOT_TELL, None, assets)] * slot
        lines.append(["Answer with one letter." if len(codes) <= len(LETTERS) else "Answer with two letters."])
    elif isinstance(question, Noul):
        lines += [_option("A", "yes", question.true, assets), _option("B", "no", question.false, assets)]
        lines += [_option("C", CANNOT_TELL, None, assets)] * slot
        lines.append(["Answer with one letter."])
    elif isinstance(question, Score):
        codes = option_codes(len(question.levels) + slot)
        lines += [_option(code, None, level, assets) for code, level in zip(codes, question.levels, strict=False)]
        lines += [_option(codes[-1], CANNOT_TELL, None, assets)] * slot
        lines.append(["Answer with the level's letter." if len(codes) <= len(LETTERS) else "Answer with two letters."])
    elif isinstance(question, Number):
        unit = f" in {question.unit}" if question.unit else ""
        lines.append([f"Answer with a number{unit}."])
    elif isinstance(question, Text):
        lines.append(["Answer in a few words."])
    elif isinstance(question, Box):
        lines.append(["Answer with the edges of the box: T, B, L or R and two digits, hundredths from the top left."])
    pieces: list[Piece] = []
    for line in lines:
        pieces += ["\n", *line]
    return _merge(pieces)


def option_codes(count: int) -> list[str]:
    """What each option is called in the prompt: one letter up to 26 options, else two, 26 to a first letter."""
    if count <= len(LETTERS):
        return list(LETTERS[:count])
    return [LETTERS[i // len(LETTERS)] + LETTERS[i % len(LETTERS)] for i in range(count)]


class RunTooLong(ValueError):
    """The pictures of a run alone are more than may be: a short key that stands everywhere in a long text."""

    def __init__(self, tokens: int) -> None:
        super().__init__(f"{tokens} tokens of pictures")
        self.tokens = tokens


def prefix_run(tokenizer: ChatTokenizer, state: Json, soft: Mapping[str, int], most: int | None = None) -> TokenRun:
    """Token ids of the shared prefix. `soft` gives the number of soft tokens of each picture, by asset key.

    Raises RunTooLong for more than `most` of them, before they are made.
    """
    return _tokenize(tokenizer, state_pieces(state, soft.keys()), soft, most, before=tokenizer.marks.header)


def content_run(tokenizer: ChatTokenizer, state: Json, soft: Mapping[str, int], most: int | None = None) -> TokenRun:
    """The same without what opens the turn: the content of a later turn."""
    return _tokenize(tokenizer, state_pieces(state, soft.keys()), soft, most)


def branch_run(
    tokenizer: ChatTokenizer,
    question: Question,
    soft: Mapping[str, int],
    most: int | None = None,
    cannot_tell: bool = False,
) -> TokenRun:
    """Token ids of one branch, from the question to the place where the answer starts; `most` as for the prefix."""
    pieces = question_pieces(question, soft.keys(), cannot_tell)
    return _tokenize(tokenizer, pieces, soft, most, after=tokenizer.marks.footer)


def _tokenize(
    tokenizer: ChatTokenizer,
    pieces: Sequence[Piece],
    soft: Mapping[str, int],
    most: int | None,
    before: Sequence[int] = (),
    after: Sequence[int] = (),
) -> TokenRun:
    pictures = sum(soft[piece.key] for piece in pieces if isinstance(piece, ImageRef))
    if most is not None and pictures > most:
        raise RunTooLong(pictures)
    ids = list(before)
    spans: list[ImageSpan] = []
    for piece in pieces:
        if isinstance(piece, str):
            ids += tokenizer.encode(piece)
            continue
        ids.append(tokenizer.image_begin)
        spans.append(ImageSpan(piece.key, len(ids), len(ids) + soft[piece.key]))
        ids += [tokenizer.image] * soft[piece.key]
        ids.append(tokenizer.image_end)
    return TokenRun((*ids, *after), tuple(spans))


def _option(code: str, label: str | None, description: Json, assets: AssetKeys) -> list[Piece]:
    pieces: list[Piece] = [f"{code}) "]
    if label is not None:
        pieces.append(label)  # a label is a name: asset keys in it do not count
    if label is not None and description is not None:
        pieces.append(": ")
    if description is not None:
        pieces += _render(description, assets, bare=True)
    return pieces


def _render(value: Json, assets: AssetKeys, bare: bool = False) -> list[Piece]:
    """Compact JSON, not ASCII-escaped, with pictures in place of their keys. Object keys are not scanned."""
    if isinstance(value, str):
        return _render_string(value, assets, bare)
    pieces: list[Piece] = []
    if isinstance(value, Mapping):
        for key, item in value.items():
            pieces += [f"{',' if pieces else '{'}{json.dumps(key, ensure_ascii=False)}:", *_render(item, assets)]
        return [*pieces, "}"] if pieces else ["{}"]
    if isinstance(value, Sequence):
        for item in value:
            pieces += ["," if pieces else "[", *_render(item, assets)]
        return [*pieces, "]"] if pieces else ["[]"]
    return [json.dumps(value, ensure_ascii=False)]


def _render_string(text: str, assets: AssetKeys, bare: bool) -> list[Piece]:
    def plain(part: str) -> str:
        return part if bare else json.dumps(part, ensure_ascii=False)[1:-1]

    pieces: list[Piece] = [] if bare else ['"']
    start = 0
    for at, key in assets.find(text):
        pieces += [plain(text[start:at]), ImageRef(key)]
        start = at + len(key)
    pieces.append(plain(text[start:]))
    return pieces if bare else [*pieces, '"']


def _merge(pieces: Sequence[Piece]) -> list[Piece]:
    """Neighbouring texts joined and empty ones dropped, so that tokenization sees whole words."""
    merged: list[Piece] = []
    texts: list[str] = []
    for piece in (*pieces, None):  # None: what stands at the end is text or nothing
        if isinstance(piece, str):
            texts.append(piece)
            continue
        if text := "".join(texts):
            merged.append(text)
        texts = []
        if piece is not None:
            merged.append(piece)
    return merged
