"""Random crowds on tiny pools: every answer equals that of the request alone, and every invariant holds at every step.

The fake runner raises where a row would see another history than its own, so what is fuzzed here is all of it: shared
prefixes, partial tails, windows, chunks, evictions, preemptions, cancellations, failing steps, and steps planned while
the last one's values are not there.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from photocall.questions import Choice, Noul, Number, Option, Question, Score, Text
from photocall_engine.engine import Answered, Cancelled, Outcome, Refused
from photocall_engine.fake_runner import FakeRunner
from photocall_engine.reads import Values
from photocall_engine.rows import RowBatch
from photocall_engine.runner import PatchImage
from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.harness import Bench, bench, picture

GRIDS = ((3, 3), (6, 9), (9, 12), (3, 24))


class Stumbles(FakeRunner):
    """Fails now and then, before or after it has written, or when its values are wanted."""

    def __init__(self, chance: random.Random, rate: float, **sizes: Any) -> None:
        super().__init__(**sizes)
        self.chance = chance
        self.rate = rate
        self.stumbled = 0

    def forward(self, batch: RowBatch) -> None:
        self._may_stumble("before")
        super().forward(batch)
        self._may_stumble("after")

    def collect(self, reading: object) -> Values:
        self._may_stumble("late")
        return super().collect(reading)

    def _may_stumble(self, when: str) -> None:
        if self.chance.random() < self.rate / 3:
            self.stumbled += 1
            raise RuntimeError(when)


def some_question(chance: random.Random, name: str) -> Question:
    words = "Is this it or img-a perhaps? " * chance.randint(1, 2)
    kind = chance.choice(("choice", "choice", "noul", "score", "many", "number", "text"))
    if kind == "choice":
        return Choice(name, words, tuple(Option(f"o{i}") for i in range(chance.randint(1, 6))))
    if kind == "noul":
        return Noul(name, words)
    if kind == "score":
        return Score(name, words, ("low", "mid", "high"))
    if kind == "many":
        return Choice(name, "Which?", tuple(Option(f"{i}") for i in range(28)))
    if kind == "number":
        return Number(name, "How many?", 0, chance.choice((5, 30, 400)), 1)
    return Text(name, "Say.", chance.choice((1, 20, 90)))


def some_request(chance: random.Random) -> tuple[Any, list[Question], dict[str, PatchImage]]:
    state: dict[str, Any] = {"rules": "Look well. " * chance.choice((0, 1, 4))}
    images = {}
    for key in ("img-a", "img-b")[: chance.randint(0, 2)]:
        state[key[-1]] = key
        grid = chance.choice(GRIDS)
        images[key] = picture(chance.randint(0, 2), *grid)
    if "img-a" not in images:
        images["img-a"] = picture(9)  # questions may mention it
    state["n"] = chance.randint(0, 2)
    return state, [some_question(chance, f"q{i}") for i in range(chance.randint(1, 4))], images


def alone(tokenizer: ChatTokenizer, asked: tuple[Any, list[Question], dict[str, PatchImage]], **fields: Any) -> Outcome:
    made = bench(tokenizer, num_pages=600, sliding_pages=599, token_budget=2048, overlaps=False, **fields)
    state, questions, images = asked
    made.ask("alone", state, *questions, images=images)
    return made.run()["alone"]


@pytest.mark.parametrize("seed", range(24))
def test_a_crowd_changes_no_answer(tokenizer: ChatTokenizer, seed: int) -> None:
    chance = random.Random(seed)
    window = chance.choice((0, 16, 33, 64, 200))
    model = {"sliding_window": window, "bidirectional_images": chance.random() < 0.6}
    pages = chance.choice((chance.randint(16, 30), chance.randint(30, 90)))
    runner = Stumbles(
        random.Random(seed + 1),
        0.0 if chance.random() < 0.6 else 0.02,
        overlaps=seed % 4 > 0,
        vocab_size=tokenizer.vocab_size,
        num_pages=pages,
        sliding_pages=chance.randint(20, 60) if window else 0,
        soft_capacity=chance.choice((24, 60)),
        **model,
    )
    made = Bench(
        runner,
        tokenizer,
        token_budget=chance.choice((40, 90, 300)),
        max_requests=chance.choice((1, 3, 8)),
        max_encoded=chance.choice((1, 12, None)),
    )
    asked = [some_request(chance) for _ in range(chance.randint(6, 14))]
    expected = {}
    for i, request in enumerate(asked):
        expected[f"job-{i}"] = alone(tokenizer, request, **model)
    cancelled: set[str] = set()
    to_send = list(enumerate(asked))
    for _ in range(3000):
        while to_send and chance.random() < 0.3:
            i, (state, questions, images) = to_send.pop()
            made.ask(
                f"job-{i}",
                state,
                *questions,
                images=images,
                owner=chance.choice("abc"),
                priority=chance.choice(("interactive", "batch")),
                deadline_at=chance.uniform(1, 100),
            )
        if chance.random() < 0.03:
            job = f"job-{chance.randrange(len(asked))}"
            if job not in made.outcomes:
                cancelled.add(job)
                made.taken_back.add(job)
        if not made.step() and not to_send and not made.incoming:
            break
    assert len(made.outcomes) == len(asked), "a request never ended"
    for job, outcome in made.outcomes.items():
        if isinstance(outcome, Cancelled):
            assert job in cancelled
        elif isinstance(outcome, Answered):
            lone = expected[job]
            assert isinstance(lone, Answered)
            assert outcome.body["answers"] == lone.body["answers"]
            assert outcome.body["usage"]["output_tokens"] == lone.body["usage"]["output_tokens"]
        elif isinstance(outcome, Refused) and outcome.code == "prompt_too_long":
            assert outcome.data["tokens"] > outcome.data["limit"] == made.engine.scheduler.limits.max_tokens
        else:
            assert runner.stumbled, outcome
    made.engine.scheduler.cache.clear()
    made.engine.check()
    assert made.engine.scheduler.pages.free == pages - 1
