"""From an ask to a request the scheduler can run: token ids, spans, readers; refused here if it can never run.

The one place where the prompt, the tokenizer and the calibration meet. It does not look at what else is running.
"""

from __future__ import annotations

from collections.abc import Callable

from photocall.asks import Ask
from photocall.errors import PhotocallError
from photocall.questions import Number, Question, Text
from photocall_engine.calibration import Calibration
from photocall_engine.digits import NoNumber
from photocall_engine.edges import EngineRequest
from photocall_engine.limits import Limits
from photocall_engine.number_tree import NumberReader
from photocall_engine.prefix_cache import PageKeys, PictureSpan
from photocall_engine.prompt import RunTooLong, TokenRun, branch_run, prefix_run
from photocall_engine.readout import LetterReader, Reader, TextReader
from photocall_engine.sequence import Branch, Request, Sequence
from photocall_engine.tokenizer import ChatTokenizer
from photocall_engine.window import BlockTable


class PromptTooLong(PhotocallError):
    """The state and the longest question do not fit, whatever else is running."""

    code = "prompt_too_long"

    def __init__(self, tokens: int, limit: int) -> None:
        message = f"state plus the longest question is {tokens} tokens, limit {limit}"
        super().__init__(message, tokens=tokens, limit=limit)


class PictureTooLarge(PhotocallError):
    """One picture has more soft tokens than a step can take at once."""

    code = "request_too_big"

    def __init__(self, tokens: int, limit: int) -> None:
        super().__init__(f"a picture is {tokens} tokens, limit {limit}", tokens=tokens, limit=limit)


class Unanswerable(PhotocallError):
    """A question that no answer can meet."""

    code = "unanswerable"


class Composer:
    """`root` names model, prompt version, mask kind and numerics for the prefix cache; `table` makes an empty one."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        calibration: Calibration,
        limits: Limits,
        root: bytes,
        table: Callable[[], BlockTable],
    ) -> None:
        self._tokenizer = tokenizer
        self._calibration = calibration
        self._limits = limits
        self._root = root
        self._table = table

    def compose(self, origin: EngineRequest) -> Request:
        """Raises PromptTooLong, PictureTooLarge or Unanswerable, with the numbers."""
        ask = origin.ask
        soft = {key: origin.images[sha256].num_soft for key, sha256 in ask.assets.items()}
        for tokens in soft.values():
            if tokens > self._limits.max_picture:
                raise PictureTooLarge(tokens, self._limits.max_picture)
        try:
            run = prefix_run(self._tokenizer, ask.state, soft, self._limits.max_tokens)
            prefix = Sequence(None, run.ids, self._spans(origin, run, 0), self._table())
            branches = [self._branch(origin, question, soft, prefix) for question in ask.questions]
        except RunTooLong as error:
            raise PromptTooLong(error.tokens, self._limits.max_tokens) from None
        longest = max(branch.base.end + branch.reader.longest() for branch in branches)
        if longest > self._limits.max_tokens:
            raise PromptTooLong(longest, self._limits.max_tokens)
        return Request(origin, prefix, branches, PageKeys(self._root, run.ids, prefix.spans))

    def _branch(self, origin: EngineRequest, question: Question, soft: dict[str, int], prefix: Sequence) -> Branch:
        run = branch_run(self._tokenizer, question, soft, self._limits.max_tokens)
        base = Sequence(prefix, run.ids, self._spans(origin, run, prefix.end), self._table())
        return Branch(question, self._reader(question), base)

    def _reader(self, question: Question) -> Reader:
        if isinstance(question, Text):
            return TextReader(question, self._tokenizer)
        temperature = self._calibration.temperature(question.type)
        if isinstance(question, Number):
            try:
                return NumberReader(question, self._tokenizer, temperature)
            except NoNumber as error:
                loc = ["questions", question.name, question.type]
                raise Unanswerable(f"question {question.name!r}: {error}", question=question.name, loc=loc) from None
        return LetterReader(question, self._tokenizer.letters, temperature)

    @staticmethod
    def _spans(origin: EngineRequest, run: TokenRun, start: int) -> tuple[PictureSpan, ...]:
        return tuple(
            PictureSpan(_picture_key(origin, origin.ask, span.key), start + span.start, start + span.end)
            for span in run.spans
        )


def _picture_key(origin: EngineRequest, ask: Ask, asset: str) -> str:
    """Content and grid: the same bytes at another budget are another picture to the model."""
    sha256 = ask.assets[asset]
    image = origin.images[sha256]
    return f"{sha256}:{image.grid_height}x{image.grid_width}"
