"""Drift: how far the probabilities of one question about one picture move when something else changes.

What must not matter, by the promise of equal bits: who else is answered at the time, what is cached, and in which order
the questions stand. What may matter, and is worth knowing of a model: the order of the options, and how the picture is
encoded. Everything is asked of a running server, as anybody would ask it. Pictures are encoded anew by the caller.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any, Protocol

from photocall.client import Job, JobFailed, Picture
from photocall.comparing import NONE, Change, change, said, same_bits
from photocall.provenance import OF_THE_RUN

IMAGE = "[image 1]"  # what stands for the picture in a state
SENDERS = 16  # threads that send a crowd
MATES, CACHE, QUESTION_ORDER, OPTION_ORDER = "batch mates", "cache", "order of questions", "order of options"

Questions = Mapping[str, Mapping[str, Any]]


class Server(Protocol):
    """What is needed of a server: two calls of the client. Threads share it."""

    def submit(self, images: Any, questions: Any, *, state: Any = None, **fields: Any) -> Job: ...

    def wait(self, job: Job) -> Job: ...


class NotComparable(Exception):
    """Answers came from engines that are not made alike, so nothing can be said of what else moves them."""


@dataclass
class Drift:
    """What one thing moved. `promised`: it must move nothing."""

    what: str
    promised: bool
    compared: int = 0  # answers
    moved: float = 0.0  # sum of the largest changes of each
    said_otherwise: int = 0  # answers that come down to something else
    unequal: int = 0  # answers with other bits
    largest: Change = NONE
    picture: str = ""  # of the largest
    question: str = ""
    note: str = ""

    def add(self, picture: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> None:
        """Compare the answers to all questions that both have."""
        for name in first.keys() & second.keys():
            one, other = first[name], second[name]
            found = change(one, other)
            self.compared += 1
            self.moved += found.size
            self.said_otherwise += said(one) != said(other)
            self.unequal += not same_bits(one, other)
            if found.size > self.largest.size:
                self.largest, self.picture, self.question = found, picture, name

    @property
    def mean(self) -> float:
        """Of the largest change of each answer."""
        return self.moved / self.compared if self.compared else 0.0

    def above(self, limit: float) -> bool:
        """Whether it moved more than it may: what must move nothing, by a single bit."""
        return self.unequal > 0 if self.promised else self.largest.size > limit


@dataclass
class _Seen:
    """One answer to a request, and what it took."""

    answers: Mapping[str, Any]
    job: Mapping[str, Any]
    provenance: Mapping[str, Any]

    @property
    def cached(self) -> int:
        """Positions of the prompt that were not computed for it."""
        return int(self.job["usage"]["cached_rows"])

    @property
    def pixels(self) -> str:
        return str(self.provenance["pictures"][IMAGE]["pixels_sha256"])

    @property
    def ran(self) -> tuple[float, float]:
        """From when to when it was in the engine's batch."""
        ended = float(self.job["completed_at"])
        return ended - self.job["timings"]["prefill"] - self.job["timings"]["readout"], ended


@dataclass
class Meter:
    """Asks `questions` about pictures. `crowd`: requests that run beside them when they are not alone."""

    server: Server
    questions: Questions
    state: str = IMAGE
    crowd: int = 24
    tell: Callable[[str], None] = lambda doing: None  # what is being done, for whoever waits
    made_by: dict[str, Any] = field(default_factory=dict, init=False)  # provenance that all answers share

    def measure(self, pictures: Mapping[str, bytes], encoded: Mapping[str, Mapping[str, bytes]]) -> list[Drift]:
        """By name the files as they are; by kind of encoding the same files encoded anew. Raises NotComparable, and
        what the server raises."""
        plain = {name: self._ask(data) for name, data in self._told("alone", pictures)}
        promised = self.made_by["numerics"] == "invariant"
        cache = Drift(CACHE, promised)
        fresh = {
            name: self._measure_cache(cache, name, data, plain[name]) for name, data in self._told(CACHE, pictures)
        }
        found = [self._mates(pictures, plain, fresh, promised), cache]
        if len(self.questions) > 1:
            turned = Drift(QUESTION_ORDER, promised)
            backwards = dict(reversed(list(self.questions.items())))
            for name, data in self._told(QUESTION_ORDER, pictures):
                turned.add(name, plain[name].answers, self._ask(data, questions=backwards).answers)
            found.append(turned)
        found += self._option_order(pictures, plain)
        for kind, files in encoded.items():
            drift = Drift(kind, False)
            for name, data in self._told(kind, files):
                drift.add(name, plain[name].answers, self._ask(data).answers)
            found.append(drift)
        return found

    def _told(self, what: str, pictures: Mapping[str, bytes]) -> Iterator[tuple[str, bytes]]:
        """The pictures one by one, each told before it is asked about."""
        for place, (name, data) in enumerate(pictures.items()):
            self.tell(f"{what}: {place} of {len(pictures)}")
            yield name, data

    def _measure_cache(self, drift: Drift, name: str, data: bytes, plain: _Seen) -> str | None:
        """Asked cold, then warm. Gives the background that was cold; None where each would show other pixels.

        Another background is another picture to the cache and the same pixels to the model, unless something is
        transparent: then the first time is as cold as it gets.
        """
        background: str | None = _colour()
        cold = self._ask(data, background)
        if cold.pixels != plain.pixels:
            background, cold = None, plain
        warm = self._ask(data, background)
        for other in (warm, plain):
            drift.add(name, cold.answers, other.answers)
        drift.note = f"{cold.cached} positions found cold, {warm.cached} warm"
        if background is None:
            drift.note += "; a picture with transparency is cold only when it is new"
        return background

    def _mates(
        self,
        pictures: Mapping[str, bytes],
        plain: Mapping[str, _Seen],
        fresh: Mapping[str, str | None],
        promised: bool,
    ) -> Drift:
        """Everything at once, some with their prompt cached and some without, among strangers."""
        drift = Drift(MATES, promised)
        company: list[int] = []
        names = list(pictures)
        at_once = max(1, self.crowd // 2)
        for start in range(0, len(names), at_once):
            some = names[start : start + at_once]
            self.tell(f"{MATES}: {start} of {len(names)}")
            asked: list[tuple[str, Callable[[], Job]]] = []
            for name in some:
                for background in (fresh[name], _colour() if fresh[name] else None):
                    asked.append((name, partial(self._submit, pictures[name], background)))
            strangers = max(0, self.crowd - len(asked))
            asked += [("", partial(_submit_stranger, self.server, i)) for i in range(strangers)]
            random.Random(0).shuffle(asked)
            with ThreadPoolExecutor(SENDERS) as senders:
                jobs = list(senders.map(lambda each: each[1](), asked))
            seen = [(name, self._seen(job)) for (name, _), job in zip(asked, jobs, strict=True)]
            times = [one.ran for _, one in seen]
            for name, one in seen:
                if name:
                    drift.add(name, plain[name].answers, one.answers)
                    begun, done = one.ran
                    company.append(sum(first < done and last > begun for first, last in times) - 1)
        drift.note = f"{median(company):g} others in the engine meanwhile, in the median"
        return drift

    def _option_order(self, pictures: Mapping[str, bytes], plain: Mapping[str, _Seen]) -> Iterable[Drift]:
        """The options of each choice backwards, and with the first one last."""
        chosen = {name: q for name, q in self.questions.items() if q["type"] == "choice" and len(q["criteria"]) > 1}
        if not chosen:
            return []
        drift = Drift(OPTION_ORDER, False)
        orders: list[dict[str, Any]] = [{}, {}]
        for name, question in chosen.items():
            options = _items(question["criteria"])
            for order, turned in zip(orders, (options[::-1], [*options[1:], options[0]]), strict=True):
                listed = dict(turned) if isinstance(question["criteria"], Mapping) else [label for label, _ in turned]
                order[name] = {**question, "criteria": listed}
        for picture, data in self._told(OPTION_ORDER, pictures):
            asked = {name: plain[picture].answers[name] for name in chosen}
            for order in orders:
                drift.add(picture, asked, self._ask(data, questions={**self.questions, **order}).answers)
        return [drift]

    def _ask(self, data: bytes, background: str | None = None, questions: Questions | None = None) -> _Seen:
        """Alone."""
        return self._seen(self._submit(data, background, questions))

    def _submit(self, data: bytes, background: str | None, questions: Questions | None = None) -> Job:
        picture = {IMAGE: Picture(data, background=background)}
        asked = self.questions if questions is None else questions
        return self.server.submit(picture, asked, state=self.state, provenance=True)

    def _seen(self, job: Job) -> _Seen:
        """Once it has its answers. Raises JobFailed and NotComparable."""
        job = self.server.wait(job)
        if not job.succeeded:
            raise JobFailed(job.fields)
        told = job.fields["result"]["provenance"]
        made_by = {name: value for name, value in told.items() if name not in (*OF_THE_RUN, "pictures")}
        if not self.made_by:
            self.made_by = made_by
        for name in made_by:
            if made_by[name] != self.made_by[name]:
                raise NotComparable(f"two engines answered, which differ: {name} {self.made_by[name]}, {made_by[name]}")
        return _Seen(job.fields["result"]["answers"], job.fields, told)


def _colour() -> str:
    return secrets.token_hex(3)


def _items(options: Any) -> Sequence[tuple[str, Any]]:
    return list(options.items()) if isinstance(options, Mapping) else [(label, None) for label in options]


def _submit_stranger(server: Server, number: int) -> Job:
    """A request that has nothing to do with the pictures; they are of different lengths and end at different times."""
    words = " ".join(f"word{number * 31 + i}" for i in range(5 + 17 * (number % 7)))
    texts = {"type": "text", "instructions": "Say something.", "max_tokens": 4 + 5 * (number % 4)}
    questions = {"text": texts, "yes": {"type": "noul", "instructions": "Is it long?"}}
    return server.submit(None, questions, state=words, provenance=True)
