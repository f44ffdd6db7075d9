"""Text from tokens as they come: what has been said stays said.

Each token is decoded together with the few in front of it, not with all of them, so a long text costs no more per token
than a short one. A character that its tokens have only begun is held back.
"""

from __future__ import annotations

from photocall_engine.tokenizer import ChatTokenizer

_BROKEN = "\N{REPLACEMENT CHARACTER}"


class Detokenizer:
    """The text of one answer. `text` only ever grows."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self._tokenizer = tokenizer
        self._context: list[int] = []  # tokens already in the text that the next one may depend on
        self._before = ""  # what they are by themselves
        self._held: list[int] = []  # tokens not yet in the text
        self.text = ""

    def add(self, token: int) -> None:
        """One token more."""
        self._held.append(token)
        piece = self._piece()
        if piece and not piece.endswith(_BROKEN):
            self._say(piece)

    def finish(self) -> None:
        """Nothing follows: a character that was only begun stands as a replacement character."""
        self._say(self._piece())

    def _say(self, piece: str) -> None:
        self.text += piece
        self._context, self._held = self._held, []
        self._before = self._tokenizer.decode_known(self._context)

    def _piece(self) -> str:
        """What the held tokens add behind the context; by themselves where they would take some of it back."""
        before = self._before
        together = self._tokenizer.decode(self._context + self._held)
        return together[len(before) :] if together.startswith(before) else self._tokenizer.decode(self._held)
