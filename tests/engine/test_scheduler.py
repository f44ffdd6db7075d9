"""Who runs when, and on how many pages."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from photocall.questions import Json, Noul, Text
from photocall_engine.engine import Answered
from photocall_engine.fake_runner import FakeRunner
from photocall_engine.limits import BREATHS
from photocall_engine.readout import Floats
from photocall_engine.scheduler import Scheduler
from photocall_engine.tokenizer import ChatTokenizer
from photocall_engine.window import pages_for, sliding_pages_during
from tests.engine.harness import Bench, bench, choice, execute, picture


def one_word(tokenizer: ChatTokenizer) -> Callable[[int, list[int]], Floats]:
    """Says q for ever."""
    return lambda history, tokens: np.eye(1, tokenizer.vocab_size, tokenizer.single("q"), dtype=np.float32)[0]


def finished_in_order(made: Bench) -> list[str]:
    made.run()
    return list(made.outcomes)


def sliding_held(scheduler: Scheduler) -> int:
    """Sliding pages that sequences hold, the cache's own left out."""
    return len({page for r in scheduler.requests() for s in r.sequences() for page in s.table.windowed})


def serve(made: Bench, arriving: dict[int, list[str]]) -> list[str]:
    """Run the scheduler alone: before step n, `arriving[n]` of what was asked is submitted. Who ended, in order."""
    asked = {origin.job_id: origin for origin in made.take(1000, 0)}
    scheduler, order = made.engine.scheduler, []
    for n in range(1000):
        for job_id in arriving.get(n, ()):
            scheduler.submit(made.engine.composer.compose(asked[job_id]))
        step = scheduler.plan(0.0)
        if step is None:
            assert n >= max(arriving)
            break
        order += [request.job_id for request in execute(made.runner, scheduler, step)]
        scheduler.check()
    return order


@pytest.mark.parametrize(("priority", "first"), [("interactive", "small"), ("batch", "huge")])
def test_a_huge_request_leaves_a_share_of_each_step(tokenizer: ChatTokenizer, priority: str, first: str) -> None:
    """A request of a thousand number questions kept everybody else from an answer for minutes."""
    made = bench(tokenizer)
    made.ask("huge", "x", *(Noul(f"q{i}", f"Is it number {i}?") for i in range(100)))
    for name in ("small", "small-2"):
        made.ask(name, name, choice("c", "x", "y"), priority=priority)
    order = serve(made, {0: ["huge"], 2: ["small", "small-2"]})
    assert order[0] == first
    assert sorted(order) == ["huge", "small", "small-2"]


def test_interactive_before_batch_and_earliest_deadline_first(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, max_requests=1)
    for name, priority, deadline in (
        ("batch-early", "batch", 5.0),
        ("late", "interactive", 90.0),
        ("early", "interactive", 50.0),
        ("batch-late", "batch", 60.0),
    ):
        made.ask(name, name, choice("c", "x", "y"), priority=priority, deadline_at=deadline)
    order = serve(made, {0: ["batch-early", "late", "early", "batch-late"]})
    assert order == ["early", "late", "batch-early", "batch-late"]


def test_owners_take_turns(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, max_requests=1)
    for i in range(4):
        made.ask(f"many-{i}", f"state {i}", choice("c", "x", "y"), owner="many", deadline_at=10.0 + i)
    for i in range(2):
        made.ask(f"few-{i}", f"state {i}!", choice("c", "x", "y"), owner="few", deadline_at=99.0 + i)
    order = serve(made, {0: [f"many-{i}" for i in range(4)] + ["few-0", "few-1"]})
    assert order == ["many-0", "few-0", "many-1", "few-1", "many-2", "many-3"]


def test_an_owner_is_not_paid_for_having_been_away(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, max_requests=1)
    for i in range(6):
        made.ask(f"a{i}", f"state {i}", choice("c", "x", "y"), owner="a")
    for i in range(3):
        made.ask(f"b{i}", f"state {i}!", choice("c", "x", "y"), owner="b")
    order = serve(made, {0: [f"a{i}" for i in range(6)], 3: ["b0", "b1", "b2"]})
    assert order == ["a0", "a1", "a2", "a3", "b0", "a4", "b1", "a5", "b2"]


def test_a_step_keeps_to_its_budget_and_decodes_go_on_beside_a_long_prompt(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, token_budget=64, logits=one_word(tokenizer))
    made.ask("talker", "hi", Text("t", "Say", 40))
    made.step()
    made.step()
    made.ask("long", "x" * 600, choice("c", "x", "y"))
    made.step()
    assert isinstance(made.runner, FakeRunner)
    for _ in range(6):
        made.step()
        assert made.runner.batches[-1].num_rows == 64
        assert len(np.unique(made.runner.batches[-1].bt_off)) == 2
    made.run()
    assert max(batch.num_rows for batch in made.runner.batches) <= 64


def test_the_oldest_gets_a_picture_as_large_as_the_budget_in_past_the_decodes(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, token_budget=64, soft_capacity=64, logits=one_word(tokenizer), overlaps=False)
    state: dict[str, Json] = {}
    for i in range(4):
        state |= {f"text {i}": "x" * 20, f"picture {i}": f"img-{i}"}
    images = {f"img-{i}": picture(i, 24, 24) for i in range(4)}
    made.ask("big", state, choice("c", "x", "y"), images=images)
    for i in range(6):
        made.ask(f"talker-{i}", f"{i}", Text("t", "S", 90))
    made.step()
    while "big" not in made.outcomes:
        made.step()
    assert list(made.outcomes) == ["big"]
    assert isinstance(made.runner, FakeRunner)
    beside = [batch for batch in made.runner.batches if batch.decode]
    assert len(made.runner.batches) < 40
    assert len(beside) <= 4 * BREATHS, "the texts go on between two pictures, and no longer than the tower waits"
    made.run()
    assert all(isinstance(outcome, Answered) for outcome in made.outcomes.values())


@pytest.mark.parametrize("window", [64, 200, 1024])
@pytest.mark.parametrize("budget", [100, 512])
def test_a_4k_prompt_holds_its_window_and_no_more(tokenizer: ChatTokenizer, window: int, budget: int) -> None:
    sliding = sliding_pages_during(window, budget) * 4
    made = bench(
        tokenizer,
        num_pages=600,
        sliding_pages=sliding,
        sliding_window=window,
        token_budget=budget,
        context=8192,
        logits=one_word(tokenizer),
    )
    made.ask("job", "x" * 4096, Text("t", "Say", 40))
    scheduler = made.engine.scheduler
    peaks = []
    while not scheduler.requests() or next(iter(scheduler.running)).prefix.remaining:
        peaks.append(len(next(iter(scheduler.running)).prefix.table.windowed) if scheduler.running else 0)
        made.step()
    assert max(peaks) <= pages_for(window) + 2
    while scheduler.running and next(iter(scheduler.running)).branches[0].base.remaining > 1:
        made.step()
    answering = 0
    while scheduler.requests():
        assert sliding_held(scheduler) <= pages_for(window) + 2
        assert scheduler.pages.window_holds.num_kept <= sliding // 2
        answering += 1
        made.step()
    assert answering > 30
    assert isinstance(made.outcomes["job"], Answered)


def test_during_a_chunk_a_sequence_takes_no_more_than_its_bound(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=200, sliding_pages=60, sliding_window=64, token_budget=100)
    made.ask("job", "x" * 1500, choice("c", "x", "y"))
    [origin] = made.take(1, 0)
    scheduler = made.engine.scheduler
    request = made.engine.composer.compose(origin)
    scheduler.submit(request)
    most = 0
    while not request.done:
        step = scheduler.plan(0.0)
        assert step is not None
        most = max(most, len(request.prefix.table.windowed))
        scheduler.advance(step)
        scheduler.account(step, [np.zeros(2, dtype=np.float32) for _ in step.readers], 0.0)
        scheduler.check()
    assert most <= sliding_pages_during(64, 100)
    assert most >= pages_for(100)


def talks(tokenizer: ChatTokenizer) -> FakeRunner:
    """Forty pages; every text runs to its limit."""

    def logits(history: int, tokens: list[int]) -> Floats:
        values = np.random.default_rng(history).normal(0, 1, tokenizer.vocab_size).astype(np.float32)
        values[tokenizer.end] = -50
        return values

    return FakeRunner(vocab_size=tokenizer.vocab_size, num_pages=40, sliding_pages=39, sliding_window=64, logits=logits)


def test_texts_that_outgrow_the_pool_take_pages_from_the_youngest(tokenizer: ChatTokenizer) -> None:
    made = Bench(talks(tokenizer), tokenizer)
    for i in range(6):
        made.ask(f"job-{i}", f"state {i}", Text("t", "Say", 120))
    order = finished_in_order(made)
    assert order[0] == "job-0"
    recomputed = [made.body(f"job-{i}")["usage"]["decode_rows"] for i in range(6)]
    assert recomputed[0] == 119
    assert max(recomputed) > 130, "nobody was preempted: the pool is too large for this test"
    for i in range(6):
        alone = Bench(talks(tokenizer), tokenizer)
        alone.ask("alone", f"state {i}", Text("t", "Say", 120))
        alone.run()
        assert made.body(f"job-{i}")["answers"] == alone.body("alone")["answers"]


def test_one_request_can_outgrow_the_pool_with_its_own_questions(tokenizer: ChatTokenizer) -> None:
    made = Bench(talks(tokenizer), tokenizer)
    made.ask("job", "state", *(Text(f"t{i}", f"Say {i}", 150) for i in range(5)))
    made.run()
    assert [len(answer["text"]) > 0 for answer in made.body("job")["answers"].values()] == [True] * 5
    assert made.body("job")["usage"]["decode_rows"] > 5 * 149


def test_an_interactive_request_takes_the_pages_of_a_batch_one(tokenizer: ChatTokenizer) -> None:
    made = Bench(talks(tokenizer), tokenizer, token_budget=100)
    made.ask("slow", "x" * 200, Text("t", "Say", 200), priority="batch")
    for _ in range(30):
        made.step()
    made.ask("quick", "y" * 400, Noul("n", "Is it?"))
    assert finished_in_order(made) == ["quick", "slow"]
    assert made.body("quick")["usage"]["steps"] <= 6


def test_an_interactive_request_takes_the_place_of_a_batch_one(tokenizer: ChatTokenizer) -> None:
    made = Bench(talks(tokenizer), tokenizer, max_requests=2)
    for i in range(2):
        made.ask(f"slow-{i}", f"x{i}", Text("t", "Say", 60), priority="batch")
    for _ in range(5):
        made.step()
    made.ask("quick", "y", Noul("n", "Is it?"))
    made.step()  # was on its way already
    made.step()
    assert list(made.outcomes) == ["quick"]
    made.run()
    assert made.body("slow-0")["usage"]["decode_rows"] == 59
    assert made.body("slow-1")["usage"]["decode_rows"] > 59


def test_batch_does_not_preempt_batch(tokenizer: ChatTokenizer) -> None:
    made = Bench(talks(tokenizer), tokenizer, token_budget=100)
    made.ask("first", "x" * 200, Text("t", "Say", 100), priority="batch")
    for _ in range(10):
        made.step()
    made.ask("second", "y" * 400, Noul("n", "Is it?"), priority="batch")
    assert finished_in_order(made) == ["first", "second"]
    assert made.body("first")["usage"]["decode_rows"] == 99


def test_a_picture_stays_encoded_between_requests_and_only_so_many_do(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, soft_capacity=12)
    assert isinstance(made.runner, FakeRunner)
    for round_ in range(2):
        for seed in (1, 2):
            made.ask(f"{round_}-{seed}", {"r": round_, "p": "img"}, Noul("n", "Is it?"), images={"img": picture(seed)})
            made.run()
    assert made.runner.encoded == 2
    made.ask("third", {"p": "img"}, Noul("n", "Is it?"), images={"img": picture(3)})
    made.run()
    made.ask("again", {"r": 9, "p": "img"}, Noul("n", "Is it?"), images={"img": picture(1)})
    made.run()
    assert made.runner.encoded == 4


def test_a_crowd_of_pictures_is_answered_one_by_one(tokenizer: ChatTokenizer) -> None:
    """One step encoded them all, so on a CPU the first answer came with the last, and all of them too late."""
    made = bench(tokenizer, token_budget=2048, max_encoded=6, num_pages=400, overlaps=False)
    assert isinstance(made.runner, FakeRunner)
    for seed in range(1, 7):
        made.ask(f"job-{seed}", {"p": "img"}, Noul("n", "Is it?"), images={"img": picture(seed)}, deadline_at=99 + seed)
    answered = []
    while made.step():
        answered.append(len(made.outcomes))
    assert answered == [1, 2, 3, 4, 5, 6]
    assert made.runner.encoded == 6


def test_new_pictures_leave_those_who_are_answering_their_steps(tokenizer: ChatTokenizer) -> None:
    """Every step of a number's walk ran the tower for somebody else, and so nobody in a crowd had an answer in time."""
    runner = talks(tokenizer)
    runner.overlaps = False  # as on a CPU
    made = Bench(runner, tokenizer, token_budget=2048, max_encoded=6)
    made.ask("talker", "x", Text("t", "Say", 30))
    for _ in range(3):
        made.step()
    for seed in range(1, 6):
        made.ask(f"job-{seed}", {"p": "img"}, Noul("n", "Is it?"), images={"img": picture(seed)}, deadline_at=99 + seed)
    encoded = []
    while len(made.outcomes) < 5:
        made.step()
        encoded.append(runner.encoded)
    assert encoded[0] == 1, "the first joins the next step"
    assert encoded == [1 + step // (1 + BREATHS) for step in range(len(encoded))]
    made.run()
    assert made.body("talker")["usage"]["decode_rows"] == 29


def test_a_picture_above_the_budget_goes_in_first(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, token_budget=2048, max_encoded=1, num_pages=400)
    state = {"p": "img-1 and img-2 and img-1"}
    made.ask("job", state, Noul("n", "Is it?"), images={"img-1": picture(1), "img-2": picture(2, 6, 9)})
    made.ask("word", "no picture", Noul("n", "Is it?"))
    made.step()
    assert list(made.outcomes) == ["word"], "rows without a new picture do not wait"
    made.run()
    assert made.body("job")["usage"]["steps"] == 2


def test_a_cached_prefix_needs_no_picture(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, soft_capacity=6)
    assert isinstance(made.runner, FakeRunner)
    for job, seed in (("a", 1), ("b", 2), ("c", 1)):
        made.ask(job, {"p": "img"}, Noul("n", "Is it?"), images={"img": picture(seed)})
        made.run()
    assert made.runner.encoded == 2
    assert made.body("c")["usage"]["cached_rows"] > 0
