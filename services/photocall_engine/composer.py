"""From an ask to a request the scheduler can run: token ids, spans, readers; refused here if it can never run.

The one place where the prompt, the tokenizer and the calibration meet. It does not look at what else is running.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from photocall.answers import refusal
from photocall.errors import PhotocallError
from photocall.questions import Box, Choice, Noul, Number, Question, Score, Text
from photocall.recalibration import FittedFor, Recalibration
from photocall_engine.box_reader import BoxReader
from photocall_engine.calibration import Calibration
from photocall_engine.digits import NoNumber
from photocall_engine.edges import EngineRequest
from photocall_engine.inquiry import Inquiry
from photocall_engine.limits import Limits
from photocall_engine.number_tree import NumberReader
from photocall_engine.one_of_reader import NoText, OneOfReader
from photocall_engine.orders import in_order, orders_of
from photocall_engine.pattern_reader import PatternReader, Patterns
from photocall_engine.prefix_cache import PageKeys, PictureSpan
from photocall_engine.prompt import RunTooLong, TokenRun, branch_run, prefix_run
from photocall_engine.reading import Reader
from photocall_engine.readout import LetterReader, TextReader
from photocall_engine.sequence import Branch, Request, Sequence
from photocall_engine.tokenizer import ChatTokenizer
from photocall_engine.transcript import conversation
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


class CalibrationMismatch(PhotocallError):
    """The caller's own calibration was fitted to answers of another model, or to another prompt."""

    code = "calibration_mismatch"

    def __init__(self, calibration: Recalibration, wanted: FittedFor, here: FittedFor) -> None:
        message = (
            f"calibration {calibration.id} was fitted for model {wanted.model_sha256} with prompt "
            f"{wanted.prompt_version}, this is {here.model_sha256} with prompt {here.prompt_version}: fit it again"
        )
        super().__init__(message, calibration_id=calibration.id, loc=["calibration"])


class Composer:
    """`root` names model, prompt version, mask kind and numerics for the prefix cache; `table` makes an empty one."""

    def __init__(
        self,
        tokenizer: ChatTokenizer,
        calibration: Calibration,
        limits: Limits,
        root: bytes,
        table: Callable[[], BlockTable],
        identity: FittedFor,
    ) -> None:
        self._tokenizer = tokenizer
        self._calibration = calibration
        self._limits = limits
        self._root = root
        self._table = table
        self._identity = identity
        self._patterns = Patterns(tokenizer)

    def compose(self, origin: EngineRequest) -> Request:
        """Raises PromptTooLong, PictureTooLarge or Unanswerable, with the numbers; or CalibrationMismatch.

        Where the ask wants it by question, one that cannot be answered is refused alone, as long as another one can.
        """
        ask, turn = origin.ask, origin.turn
        own = ask.calibration
        if own is not None and own.fitted_for not in (None, self._identity):
            assert own.fitted_for is not None
            raise CalibrationMismatch(own, own.fitted_for, self._identity)
        num_soft = {name: image.num_soft for name, image in origin.images.items()}
        for tokens in num_soft.values():
            if tokens > self._limits.max_picture:
                raise PictureTooLarge(tokens, self._limits.max_picture)
        soft = {key: num_soft[name] for key, name in ask.pictures.items()}
        hold_at = None
        try:
            if turn is None:
                run = prefix_run(self._tokenizer, ask.state, soft, self._limits.max_tokens)
                spans = self._spans(origin, run, 0, ask.pictures)
            else:
                talk = conversation(self._tokenizer, turn, ask, num_soft, self._limits.max_tokens)
                run, hold_at = talk.run, talk.hold_at
                spans = self._spans(origin, run, 0, {name: name for name in num_soft})
        except RunTooLong as error:
            raise PromptTooLong(error.tokens, self._limits.max_tokens) from None
        prefix = Sequence(None, run.ids, spans, self._table())
        inquiries: list[Inquiry] = []
        failures: dict[str, PhotocallError] = {}
        for question in ask.questions:
            try:
                inquiries.append(self._inquiry(origin, question, soft, prefix))
            except (PromptTooLong, Unanswerable) as error:
                failures[question.name] = error
        refused = {name: refusal(error.code, error.message) for name, error in failures.items()}
        request = Request(origin, prefix, inquiries, PageKeys(self._root, run.ids, prefix.spans), hold_at, refused)
        if failures and (request.done or not ask.by_question):  # done: what is left comes after what was refused
            raise max(failures.values(), key=lambda error: error.data.get("tokens", 0))
        return request

    def _inquiry(self, origin: EngineRequest, question: Question, soft: dict[str, int], prefix: Sequence) -> Inquiry:
        """A question in each order that it may be asked in."""
        trained = question.type not in self._calibration.untrained
        if isinstance(question, Choice | Noul | Score) and question.asking.order != "as_given":
            orders = orders_of(question)
            asked = [in_order(question, order) for order in orders]
            branches = [self._branch(origin, q, soft, prefix, question.type, i) for i, q in enumerate(asked)]
            return Inquiry(question, branches, orders, trained, origin.ask.calibration)
        branch = self._branch(origin, question, soft, prefix, question.type)
        return Inquiry(branch.question, [branch], (), trained, origin.ask.calibration)

    def _branch(
        self,
        origin: EngineRequest,
        question: Question,
        soft: dict[str, int],
        prefix: Sequence,
        calibrated: str,
        variant: int = 0,
    ) -> Branch:
        most = self._limits.max_tokens
        try:
            run = branch_run(self._tokenizer, question, soft, most, question.asking.cannot_tell)
        except RunTooLong as error:
            raise PromptTooLong(error.tokens, self._limits.max_tokens) from None
        base = Sequence(prefix, run.ids, self._spans(origin, run, prefix.end, origin.ask.pictures), self._table())
        if isinstance(question, Text) and origin.turn is not None:  # a reply may be as long as there is room for it
            room = max(1, self._limits.max_tokens - base.end + 1)
            question = replace(question, max_tokens=min(question.max_tokens, room))
        reader = self._reader(question, self._calibration.temperature(calibrated))
        if base.end + reader.longest() > self._limits.max_tokens:
            raise PromptTooLong(base.end + reader.longest(), self._limits.max_tokens)
        return Branch(question, reader, base, variant)

    def _reader(self, question: Question, temperature: float) -> Reader:
        try:
            if isinstance(question, Text):
                if question.one_of is not None:
                    return OneOfReader(question, question.one_of, self._tokenizer)
                if question.pattern is not None:
                    return PatternReader(question, self._patterns.matcher(question.pattern), self._tokenizer)
                return TextReader(question, self._tokenizer)
            if isinstance(question, Number):
                return NumberReader(question, self._tokenizer, temperature)
        except (NoNumber, NoText) as error:
            loc = ["questions", question.name, question.type]
            raise Unanswerable(f"question {question.name!r}: {error}", question=question.name, loc=loc) from None
        if isinstance(question, Box):
            return BoxReader(self._tokenizer, temperature, question.asking.abstain)
        return LetterReader(question, self._tokenizer.letters, temperature, question.asking.abstain)

    @staticmethod
    def _spans(origin: EngineRequest, run: TokenRun, start: int, names: Mapping[str, str]) -> tuple[PictureSpan, ...]:
        return tuple(
            PictureSpan(_picture_key(origin, names[span.key]), start + span.start, start + span.end)
            for span in run.spans
        )


def _picture_key(origin: EngineRequest, name: str) -> str:
    """Content, view and grid: the same bytes at another budget are another picture to the model."""
    image = origin.images[name]
    return f"{name}:{image.grid_height}x{image.grid_width}"
