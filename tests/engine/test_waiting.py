from __future__ import annotations

from typing import Any

import pytest

from photocall_engine.sequence import Request
from photocall_engine.tokenizer import ChatTokenizer
from photocall_engine.waiting import WaitingLine
from tests.engine.harness import Bench, bench, choice


@pytest.fixture
def made(tokenizer: ChatTokenizer) -> Bench:
    return bench(tokenizer)


def request(made: Bench, job_id: str, **fields: Any) -> Request:
    return made.engine.composer.compose(made.ask(job_id, fields.pop("state", job_id), choice("c", "x", "y"), **fields))


def served(line: WaitingLine) -> list[str]:
    """Everyone, in the order in which they may enter when nobody is served rows meanwhile."""
    order = []
    while (following := line.next(())) is not None:
        line.leave(following)
        order.append(following.job_id)
    return order


def test_class_then_seniority_then_deadline(made: Bench) -> None:
    line = WaitingLine()
    preempted = request(made, "preempted", deadline_at=99.0)
    preempted.order = 7
    batch = request(made, "batch", priority="batch", deadline_at=1.0)
    senior = request(made, "senior", priority="batch", deadline_at=50.0)
    senior.order = 3
    for waiting in (batch, request(made, "late", deadline_at=9.0), request(made, "soon", deadline_at=2.0)):
        line.join(waiting, [])
    line.rejoin(preempted)
    line.rejoin(senior)
    assert served(line) == ["preempted", "soon", "late", "senior", "batch"]


def test_the_owner_served_least_comes_first(made: Bench) -> None:
    line = WaitingLine()
    line.join(request(made, "a", owner="one", deadline_at=1.0), [])
    line.join(request(made, "b", owner="two", deadline_at=9.0), [])
    line.serve({"one": 10})
    assert served(line) == ["b", "a"]


def test_a_newcomer_starts_where_the_least_served_one_is(made: Bench) -> None:
    line = WaitingLine()
    running = request(made, "running", owner="one")
    line.join(running, [])
    line.leave(running)
    line.serve({"one": 1000})
    line.join(request(made, "new", owner="two", deadline_at=9.0), [running])
    line.join(request(made, "more", owner="one", deadline_at=1.0), [running])
    line.serve({"two": 1})
    assert served(line) == ["more", "new"]


def test_an_equal_prefix_being_computed_is_waited_for(made: Bench) -> None:
    line = WaitingLine()
    equal, other = request(made, "equal", state="same"), request(made, "other", deadline_at=9e9)
    running = request(made, "running", state="same")
    line.join(equal, [running])
    line.join(other, [running])
    assert line.next({running.prefix_key}) is other
    line.leave(other)
    assert line.next({running.prefix_key}) is None
    assert line.next(()) is equal
    line.leave(other)  # gone already
    assert len(line) == 1
