"""Jobs, as the server shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from photocall.client.answer import Answer
from photocall.client.answers import Answers
from photocall.client.card import job_card
from photocall.client.errors import JobFailed
from photocall.client.pictures import Image
from photocall.provenance import Provenance


@dataclass(frozen=True, slots=True, repr=False)
class Shown:
    """An object as the server shows it, whole in `fields`; `ENDS` are the states that it ends in."""

    ENDS: ClassVar[tuple[str, ...]]
    fields: Mapping[str, Any]

    @property
    def id(self) -> str:
        return str(self.fields["id"])

    @property
    def status(self) -> str:
        return str(self.fields["status"])

    @property
    def ended(self) -> bool:
        return self.status in self.ENDS

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.status}>"


@dataclass(frozen=True, slots=True, repr=False)
class Job(Shown):
    """A job object. `job["damaged"]` is the answer to a question, `job.answer` that to the only one."""

    ENDS: ClassVar[tuple[str, ...]] = ("succeeded", "failed", "cancelled", "expired")
    images: Mapping[str, Image] = field(default_factory=dict, compare=False)  # those it was asked with, for its card

    @property
    def succeeded(self) -> bool:
        return self.status == "succeeded"

    @property
    def answers(self) -> Answers:
        """The answers by question. Raises JobFailed for a job without any."""
        if not self.succeeded:
            raise JobFailed(self.fields)
        return Answers(self.fields["result"]["answers"])

    @property
    def answer(self) -> Answer:
        """The answer to its only question. Raises JobFailed, and ValueError where there were several."""
        answers = self.answers
        if len(answers) != 1:
            raise ValueError(f"there are {len(answers)} answers: take one by its name, of {', '.join(answers)}")
        return next(iter(answers.values()))

    def __getitem__(self, question: str) -> Answer:
        return self.answers[question]

    @property
    def provenance(self) -> Provenance | None:
        """What its answers come from; None where `provenance=True` was not asked for, or there are no answers."""
        result = self.fields.get("result") or {}
        found: Provenance | None = result.get("provenance")
        return found

    @property
    def error(self) -> dict[str, Any] | None:
        """Why it failed: `code` and `message`; None for a job that did not."""
        found = self.fields.get("error")
        return None if found is None else dict(found)

    def _repr_html_(self) -> str:
        return job_card(self)

    def __repr__(self) -> str:
        head = Shown.__repr__(self)
        return f"{head}\n{self.answers!r}" if self.succeeded else head
