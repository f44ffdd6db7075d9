"""The checkpoint's tokenizer: ordinary text, the turn marks around it, and the letters that answers are read from.

Ordinary text can never produce a control token: a state that spells out `<turn|>` is encoded as those seven characters.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import jinja2
import numpy as np
from jinja2.sandbox import ImmutableSandboxedEnvironment
from numpy.typing import NDArray
from tokenizers import Tokenizer

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SENTINEL = "\x00content\x00"
SHORT = 2_000  # characters of a text that is remembered: the same questions are asked of picture after picture
REMEMBERED = 4_096


class TokenizerError(ValueError):
    """The checkpoint's tokenizer cannot be used for letter readout; the message says which rule it breaks."""


@dataclass(frozen=True, slots=True)
class TurnMarks:
    """Token ids around the user's content: `header` ends where it starts, `footer` where the answer starts.

    `between` leads from the end of an answer to the user's next content; None where the template has no second turn.
    """

    header: tuple[int, ...]
    footer: tuple[int, ...]
    between: tuple[int, ...] | None = None


class ChatTokenizer:
    """`tokenizer.json` and `chat_template.jinja` of a checkpoint directory.

    `letters[i]` is the single token id of the i-th letter at the end of the prompt; `end` the id that closes the
    model's turn; `image`, `image_begin` and `image_end` the placeholder and marks of a picture; `special` every control
    token.
    """

    def __init__(self, directory: Path) -> None:
        self._plain = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._plain.encode_special_tokens = True
        self._special = Tokenizer.from_file(str(directory / "tokenizer.json"))
        self._decode_token = lru_cache(maxsize=REMEMBERED)(lambda token: self.decode([token]))
        self._encode_short = lru_cache(maxsize=REMEMBERED)(self._encode)
        config = json.loads((directory / "config.json").read_text())
        self.vocab_size = self._plain.get_vocab_size(with_added_tokens=True)
        self.image = int(config["image_token_id"])
        self.image_begin = int(config["boi_token_id"])
        self.image_end = int(config["eoi_token_id"])
        self.end = self._id("<turn|>")
        self.marks = self._turn_marks((directory / "chat_template.jinja").read_text(), directory)
        self.letters = tuple(self.single(letter) for letter in LETTERS)
        self.special = frozenset(i for i, token in self._special.get_added_tokens_decoder().items() if token.special)

    def encode(self, text: str) -> list[int]:
        """Ordinary text to token ids; control tokens spelled out in it are ordinary characters."""
        return list(self._encode_short(text) if len(text) <= SHORT else self._encode(text))

    def decode(self, ids: list[int]) -> str:
        """Token ids to text, control tokens left out."""
        return str(self._special.decode(ids, skip_special_tokens=True))

    def decode_known(self, ids: list[int]) -> str:
        """The same; a token by itself is remembered."""
        return self._decode_token(ids[0]) if len(ids) == 1 else self.decode(ids)

    def serialized(self) -> str:
        """All of it, as `tokenizer.json` has it."""
        return str(self._special.to_str())

    def sayable(self) -> NDArray[np.bool_]:
        """[vocab_size] which ids an answer's text may hold: all but control tokens, of which only `end`."""
        allowed = np.ones(self.vocab_size, dtype=np.bool_)
        allowed[[i for i in self.special if i < self.vocab_size]] = False
        allowed[self.end] = True
        return allowed

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._plain.encode(text, add_special_tokens=False).ids)

    def _encode_marks(self, text: str) -> list[int]:
        return list(self._special.encode(text, add_special_tokens=False).ids)

    def _id(self, token: str) -> int:
        found = self._special.token_to_id(token)
        if found is None:
            raise TokenizerError(f"tokenizer.json has no token {token!r}")
        return int(found)

    def _turn_marks(self, template: str, directory: Path) -> TurnMarks:
        settings = json.loads((directory / "tokenizer_config.json").read_text())
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, undefined=jinja2.ChainableUndefined
        )
        environment.globals["raise_exception"] = _raise
        tokens = {name: settings.get(name, f"<{name[:3]}>") for name in ("bos_token", "eos_token")}

        def render(*roles: str) -> list[str]:
            messages = [{"role": role, "content": _SENTINEL} for role in roles]
            text = environment.from_string(template).render(messages=messages, add_generation_prompt=True, **tokens)
            return text.split(_SENTINEL)

        try:
            parts = render("user")
        except jinja2.TemplateError as error:
            raise TokenizerError(f"chat_template.jinja cannot be run: {error}") from error
        if len(parts) != 2:
            raise TokenizerError("chat_template.jinja does not show the user's content")
        header, footer = parts
        between = None
        for role in ("assistant", "model"):  # some templates rename the first, some print what they are given
            try:
                talk = render("user", role, "user")
            except (TokenizerError, jinja2.TemplateError):
                continue
            if len(talk) == 4 and talk[0] == header and talk[1].strip() == talk[3].strip() == footer.strip():
                between = tuple(self._encode_marks(talk[2]))
                break
        return TurnMarks(tuple(self._encode_marks(header)), tuple(self._encode_marks(footer)), between)

    def single(self, char: str) -> int:
        """The one token of a letter, digit or sign as an answer. Raises TokenizerError where it takes several."""
        ids = self.encode(char)
        if len(ids) != 1:
            raise TokenizerError(f"{char!r} is {len(ids)} tokens, not one")
        return ids[0]


def _raise(message: str) -> None:
    raise TokenizerError(f"chat_template.jinja: {message}")
