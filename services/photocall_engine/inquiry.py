"""One question of a request, from whether it applies to its answer: its branches, and what follows from them.

Most have one branch. A question that is asked in several orders has one for each, on the same prefix; one that comes
after another sleeps until that one is answered. It decides when its own branches wake; rows are not its business.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from photocall.answers import not_asked
from photocall.questions import Choice, Noul, Question, Score, num_options
from photocall.recalibration import Recalibration
from photocall_engine.branch import Branch
from photocall_engine.orders import Permutation, as_given, averaged, close, spread
from photocall_engine.readout import LetterReader, letter_answer
from photocall_engine.recalibrated import recalibrated


class Inquiry:
    """`orders` has one entry for each branch; none where the question is asked as it was given."""

    def __init__(
        self,
        question: Question,
        branches: Sequence[Branch],
        orders: Sequence[Permutation] = (),
        trained: bool = True,
        calibration: Recalibration | None = None,
    ) -> None:
        self.question = question
        self.branches = list(branches)
        self._orders = orders
        self._calibration = calibration  # the caller's own
        self._trained = trained  # whether the model was, for questions of this type
        self.answer: Mapping[str, Any] | None = None
        if question.asking.after is not None:
            self._sleep(self.branches)
        elif question.asking.order == "auto":
            self._sleep(self.branches[1:])

    def took(self) -> None:
        """One of its branches is done; `answer` is set once nothing is missing."""
        if self._orders and any(branch.asleep for branch in self.branches[1:]):
            if close(self._read(0)[: num_options(_lettered(self.question))]):
                self._wake(self.branches[1:])
            else:
                self._skip(self.branches[1:])
        if all(branch.done for branch in self.branches):
            self.answer = self._answer()

    def follow(self, question: str, answer: Mapping[str, Any]) -> None:
        """The question that this one comes after is answered: it is asked, or never will be."""
        after = self.question.asking.after
        assert after is not None, "it follows another"
        if self.answer is not None:
            return
        if equals(answer, after.equals):
            self._wake(self.branches[:1] if self.question.asking.order == "auto" else self.branches)
        else:
            self._skip(self.branches)
            self.answer = not_asked(question)

    def _answer(self) -> Mapping[str, Any]:
        answer = self.branches[0].answer()
        if self._orders:
            answer = self._over_orders()
        answer = recalibrated(self.question, answer, self._calibration)
        return answer if self._trained else {**answer, "answer_status": "untrained"}

    def _over_orders(self) -> Mapping[str, Any]:
        question = _lettered(self.question)
        asked = [i for i, branch in enumerate(self.branches) if not branch.skipped]
        read = [self._read(i) for i in asked]
        readers = [self._reader(i) for i in asked]
        masses = [found for reader in readers if (found := reader.label_mass()) is not None]
        label_mass = sum(masses) / len(masses) if masses else None
        answer = letter_answer(question, averaged(read), question.asking.abstain, label_mass)
        return {**answer, "order_spread": spread(read) if len(read) > 1 or len(self.branches) == 1 else None}

    def _read(self, index: int) -> list[float]:
        return as_given(self._orders[index], self._reader(index).probabilities())

    def _reader(self, index: int) -> LetterReader:
        reader = self.branches[index].reader
        assert isinstance(reader, LetterReader), "only lettered questions have an order"
        return reader

    @staticmethod
    def _sleep(branches: Sequence[Branch]) -> None:
        for branch in branches:
            branch.asleep = True

    @staticmethod
    def _wake(branches: Sequence[Branch]) -> None:
        for branch in branches:
            branch.asleep = False

    @staticmethod
    def _skip(branches: Sequence[Branch]) -> None:
        for branch in branches:
            branch.skip()


def equals(answer: Mapping[str, Any], wanted: bool | float | str) -> bool:
    """Whether an answer is this one. One that was abstained from, refused or never asked for is none."""
    if answer.get("answer_status") in ("abstained", "refused", "not_asked"):
        return False
    if answer["type"] == "noul":
        return (answer["noul"] >= 0.5) is wanted
    if answer["type"] == "score":
        probabilities: Mapping[str, float] = answer["probabilities"]
        return max(probabilities, key=lambda level: (probabilities[level], -int(level))) == str(int(wanted))
    return bool(answer[answer["type"]] == wanted)


def _lettered(question: Question) -> Choice | Noul | Score:
    assert isinstance(question, Choice | Noul | Score), "only lettered questions have an order"
    return question
