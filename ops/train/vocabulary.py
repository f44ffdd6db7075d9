"""The tokenizer of models/mini: a byte-fallback BPE of 4,096 tokens, trained on what requests look like.

No normalizer, so decoding gives back every text; digits stand alone; a space belongs to the word behind it. Control
tokens have Gemma 4's names.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from pydoc_data import topics

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from ops.train import splits
from ops.train.compose import Composer
from ops.train.fonts import FontBook
from ops.train.requests import Requester
from photocall_engine.prompt import question_pieces, state_pieces

SIZE = 4096
SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>", "<|turn>", "<turn|>", "<|image>", "<image|>", "<|image|>")
_SPLIT = r"\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s"
_BYTES = [f"<0x{value:02X}>" for value in range(256)]
_ASCII = [chr(code) for code in range(32, 127)] + ["\n", "\t"]


def sample_texts(requests: int) -> Iterator[str]:
    """Prompts of the training split, the printed words, and general English: Python's own documentation topics."""
    composer, requester = Composer("train", FontBook(None, "train")), Requester("train")
    for seed in range(requests):
        rng = random.Random(seed)
        if seed % 12 == 0:
            request = requester.words_only(rng, 4)
        else:
            made, _ = composer.compose(rng, 384, 384, 0.25)
            request = requester.about(rng, [made], 8)
        pieces = state_pieces(request.state, request.keys)
        for asked in request.asked:
            pieces += question_pieces(asked.question, request.keys)
        yield "".join(piece for piece in pieces if isinstance(piece, str))
    for word in splits.words("train"):
        yield f"{word} {word.upper()} {word.capitalize()}\n{word.upper()}"
    yield from topics.topics.values()


def build(requests: int = 6000) -> Tokenizer:
    """Train it. Deterministic: the same code gives the same vocabulary."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    trainer = trainers.BpeTrainer(
        vocab_size=SIZE,
        special_tokens=[AddedToken(name, special=True, normalized=False) for name in (*SPECIAL, *_BYTES)],
        initial_alphabet=_ASCII,
        limit_alphabet=len(_ASCII),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sample_texts(requests), trainer)
    return _unmark_bytes(tokenizer)


def _unmark_bytes(tokenizer: Tokenizer) -> Tokenizer:
    """Byte tokens are ordinary tokens of the model, not added ones: only the real control tokens stay special."""

    raw = json.loads(tokenizer.to_str())
    raw["added_tokens"] = [token for token in raw["added_tokens"] if token["content"] in SPECIAL]
    return Tokenizer.from_str(json.dumps(raw, ensure_ascii=False))


def save(directory: Path) -> None:
    """tokenizer.json alone; the other files of a checkpoint are written by `checkpoint.py`."""
    directory.mkdir(parents=True, exist_ok=True)
    build().save(str(directory / "tokenizer.json"))
