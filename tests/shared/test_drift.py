"""The drift meter against a server of a few lines, into which one drift after another is planted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from photocall.client import Job, Picture
from photocall.drift import (
    CACHE,
    IMAGE,
    MATES,
    OPTION_ORDER,
    QUESTION_ORDER,
    Drift,
    Meter,
    NotComparable,
)

QUESTIONS: dict[str, Any] = {
    "kind": {"type": "choice", "instructions": "Which?", "criteria": ["a", "b", "c"]},
    "full": {"type": "noul", "instructions": "Is it?"},
}
PICTURES = {"one.jpg": b"one", "two.png": b"two"}
ENCODED = {"as PNG": {name: data + b"!" for name, data in PICTURES.items()}}
Planted = Callable[["FakeServer", dict[str, Any]], float]


class FakeServer:
    """Answers the same for equal pixels, and adds what `planted` says. Jobs run until somebody asks for their end."""

    def __init__(self, planted: Planted = lambda server, body: 0.0, transparent: bool = False) -> None:
        self.planted, self.transparent, self.numerics = planted, transparent, "invariant"
        self.seen: dict[str, int] = {}  # prompt -> times it was asked
        self.running: set[str] = set()
        self.jobs: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def submit(self, images: Any, questions: Any, *, state: Any = None, **fields: Any) -> Job:
        assert fields == {"provenance": True}
        [picture] = images.values() if images else [Picture(b"")]
        body = {"state": state, "questions": questions, "picture": picture.image, "background": picture.background}
        with self._lock:
            job_id = f"job_{len(self.jobs)}"
            self.running.add(job_id)
            pixels = picture.image.removesuffix(b"!").hex() + (str(picture.background) if self.transparent else "")
            cached = 9 if self.seen.get(prompt(body)) else 0
            moved = self.planted(self, body)
            answers: dict[str, Any] = {}
            for name, question in questions.items():
                if question["type"] == "choice":
                    shares = {"a": 0.5 + moved, "b": 0.25 - moved, "c": 0.25}
                    answers[name] = {"type": "choice", "choice": "a", "confidence": 0.5, "probabilities": shares}
                else:
                    answers[name] = {"type": "noul", "noul": 0.5}
            told = {"job": job_id, "numerics": self.numerics, "torch": "2", "truncation": {},
                    "pictures": {IMAGE: {"pixels_sha256": pixels}}}  # fmt: skip
            self.jobs[job_id] = {
                "id": job_id,
                "status": "succeeded",
                "result": {"answers": answers, "provenance": told},
                "usage": {"cached_rows": cached},
                "timings": {"prefill": 1.0, "readout": 1.0},
                "completed_at": time.time(),
            }
            self.seen[prompt(body)] = self.seen.get(prompt(body), 0) + 1
        return Job({"id": job_id, "status": "queued"})

    def wait(self, job: Job) -> Job:
        self.running.discard(job.id)
        return Job(self.jobs[job.id])


def prompt(body: dict[str, Any]) -> str:
    return repr([body["state"], body["picture"], body["background"]])


def measured(server: FakeServer, questions: dict[str, Any] | None = None) -> dict[str, Drift]:
    found = Meter(server, questions or QUESTIONS, crowd=8).measure(PICTURES, ENCODED)
    return {drift.what: drift for drift in found}


def moved(found: dict[str, Drift]) -> set[str]:
    return {what for what, drift in found.items() if drift.unequal}


def test_where_nothing_drifts_nothing_is_found() -> None:
    found = measured(FakeServer())
    assert list(found) == [MATES, CACHE, QUESTION_ORDER, OPTION_ORDER, "as PNG"]
    assert {what: drift.compared for what, drift in found.items()} == {
        MATES: 8,  # two questions about two pictures, with their prompt cached and without
        CACHE: 8,  # cold against warm, and against the first time
        QUESTION_ORDER: 4,
        OPTION_ORDER: 4,  # one choice about two pictures in two other orders
        "as PNG": 4,
    }
    assert not moved(found)
    assert not any(drift.above(0.0) for drift in found.values())
    assert found[CACHE].note == "0 positions found cold, 9 warm"
    assert found[MATES].note == "7 others in the engine meanwhile, in the median"


def test_more_pictures_than_a_crowd_come_one_crowd_after_another() -> None:
    server, told = FakeServer(), list[str]()
    most = 0

    def watch(_: FakeServer, body: dict[str, Any]) -> float:
        nonlocal most
        most = max(most, len(server.running))
        return 0.0

    server.planted = watch
    pictures = {f"{i}.png": f"picture {i}".encode() for i in range(7)}
    found = Meter(server, QUESTIONS, crowd=6, tell=told.append).measure(pictures, {})
    assert found[0].compared == 28
    assert most == 6
    assert [words for words in told if words.startswith(MATES)] == [f"{MATES}: {i} of 7" for i in (0, 3, 6)]


def backwards(body: dict[str, Any]) -> bool:
    return list(body["questions"]) == ["full", "kind"]


def options(body: dict[str, Any]) -> list[str]:
    return list(body["questions"].get("kind", {}).get("criteria", ["a", "b", "c"]))


def is_warm(server: FakeServer, body: dict[str, Any]) -> bool:
    return prompt(body) in server.seen


@pytest.mark.parametrize(
    ("planted", "where"),
    [
        (lambda server, body: 0.125 if len(server.running) > 1 else 0.0, {MATES}),
        (lambda server, body: 0.125 if backwards(body) else 0.0, {QUESTION_ORDER}),
        (lambda server, body: 0.125 if options(body) != ["a", "b", "c"] else 0.0, {OPTION_ORDER}),
        (lambda server, body: 0.125 if body["picture"].endswith(b"!") else 0.0, {"as PNG"}),
    ],
    ids=["mates", "order of questions", "order of options", "encoding"],
)
def test_what_moves_answers_is_found_and_nothing_else(planted: Planted, where: set[str]) -> None:
    found = measured(FakeServer(planted))
    assert moved(found) == where
    [drift] = [found[what] for what in where]
    assert drift.largest.size == 0.125
    assert (drift.largest.of, drift.largest.before, drift.largest.after) == ("a", 0.5, 0.625)
    assert drift.picture in PICTURES
    assert drift.question == "kind"
    assert drift.above(0.125) is drift.promised
    assert drift.above(0.1)


def test_a_cache_that_moves_answers_is_found() -> None:
    found = measured(FakeServer(lambda server, body: 0.125 if is_warm(server, body) else 0.0))
    assert CACHE in moved(found)
    assert found[CACHE].largest.size == 0.125


def test_one_bit_is_too_much_where_none_may_move() -> None:
    found = measured(FakeServer(lambda server, body: 2**-53 if len(server.running) > 1 else 0.0))
    assert found[MATES].above(1.0)
    assert found[MATES].largest.size < 1e-15


def test_fast_numerics_promise_nothing() -> None:
    server = FakeServer(lambda server, body: 2**-53 if len(server.running) > 1 else 0.0)
    server.numerics = "fast"
    found = measured(server)
    assert found[MATES].unequal
    assert not found[MATES].above(1e-9)
    assert found[MATES].above(0.0)


def test_a_picture_that_another_background_changes_is_not_asked_on_one() -> None:
    found = measured(FakeServer(transparent=True))
    assert not moved(found)
    assert "transparency" in found[CACHE].note


def test_two_engines_that_differ_are_not_compared() -> None:
    server = FakeServer()

    def changing(_: FakeServer, body: dict[str, Any]) -> float:
        server.numerics = "fast" if len(server.jobs) > 3 else "invariant"
        return 0.0

    server.planted = changing
    with pytest.raises(NotComparable, match="numerics"):
        measured(server)


def test_without_a_choice_there_is_no_order_of_options() -> None:
    found = measured(FakeServer(), {"full": QUESTIONS["full"]})
    assert list(found) == [MATES, CACHE, "as PNG"]
