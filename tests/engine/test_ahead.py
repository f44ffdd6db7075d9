"""The step ahead: planned and issued before the last one's values are there. Answers are those without it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from photocall.questions import Noul, Number, Question, Text
from photocall_engine.engine import Answered, Cancelled, HandedBack, Refused
from photocall_engine.fake_runner import FakeRunner, drawn_logits
from photocall_engine.readout import Floats
from photocall_engine.reads import Values
from photocall_engine.rows import RowBatch
from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.harness import Bench, bench, choice, picture
from tests.engine.test_fuzz import Stumbles
from tests.engine.test_held import Talk


def scripted(tokenizer: ChatTokenizer, text: str) -> Any:
    """Says the text behind whatever is asked, then ends; letters are drawn."""
    said = [*(tokenizer.single(char) for char in text), tokenizer.end]

    def logits(history: int, tokens: list[int]) -> Floats:
        values = drawn_logits(history, tokenizer.vocab_size)
        done = 0
        while done < len(text) and tokens[len(tokens) - done - 1 :] == said[: done + 1]:
            done += 1
        values[said[min(done, len(text))]] = 50
        return values

    return logits


class LateFailure(FakeRunner):
    """The values of one step are lost."""

    fails = -1  # which `collect`, from 0

    def collect(self, reading: object) -> Values:
        self.fails -= 1
        if self.fails == -1:
            raise RuntimeError("late")
        return super().collect(reading)


def fake(made: Bench) -> FakeRunner:
    assert isinstance(made.runner, FakeRunner)
    return made.runner


def test_a_row_behind_the_end_of_a_text_is_thrown_away(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, logits=scripted(tokenizer, "q"))
    made.ask("job", "x", Text("t", "Say", 20), Text("u", "Say more", 20))
    made.run()
    body = made.body("job")
    assert [answer["text"] for answer in body["answers"].values()] == ["q", "q"]
    prompt, *decodes = fake(made).batches
    assert [batch.num_rows for batch in decodes] == [2, 2], "the last ones are those of the end of the turn"
    assert decodes[-1].tokens.tolist() == [tokenizer.end] * 2
    assert body["usage"]["decode_rows"] == 2, "nobody pays for them"
    assert body["usage"]["steps"] == 2
    assert len(prompt.from_row) == 0
    assert decodes[0].from_row.tolist() == [0, 1]
    assert decodes[0].from_pick.tolist() == [0, 1]


def test_no_row_is_issued_behind_the_last_token_there_may_be(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, logits=scripted(tokenizer, "q" * 20))
    made.ask("job", "x", Text("t", "Say", 4))
    made.run()
    assert made.body("job")["answers"]["t"]["text"] == "qqqq"
    assert [batch.num_rows for batch in fake(made).batches[1:]] == [1, 1, 1]


def test_whoever_needs_the_host_sits_the_next_step_out(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    made.ask("digits", "x", Number("n", "How many?", 0, 9999, 1))
    made.ask("talk", "y", Text("t", "Say", 60))
    expected = bench(tokenizer, overlaps=False)
    expected.ask("digits", "x", Number("n", "How many?", 0, 9999, 1))
    expected.ask("talk", "y", Text("t", "Say", 60))
    assert {name: outcome.body["answers"] for name, outcome in made.run().items()} == {  # type: ignore[union-attr]
        name: outcome.body["answers"]  # type: ignore[union-attr]
        for name, outcome in expected.run().items()
    }
    decodes = [batch.num_rows for batch in fake(made).batches if batch.decode]
    assert 1 in decodes[:2], "the text alone, while the digits wait for their values"


def test_few_rows_wait_for_whoever_comes_while_a_step_runs(tokenizer: ChatTokenizer) -> None:
    """Planned ahead, they would be a step of their own, and each such step costs the device as much as a full one."""
    for length, ahead in ((100, False), (380, True)):
        made = bench(tokenizer, token_budget=400)
        made.ask("first", "x" * 320, Noul("n", "Is it?"), deadline_at=5.0)
        made.ask("then", "y" * length, Noul("n", "Is it?"))
        made.engine.step()
        assert (made.engine._ahead is not None) == ahead
        made.run()


@pytest.mark.parametrize("fails", [0, 1, 2, 3])
def test_a_step_that_fails_late_takes_the_one_behind_it_along(tokenizer: ChatTokenizer, fails: int) -> None:
    """Nothing is answered from either, what they cached is gone, and all of it is done again."""

    def asked(runner: FakeRunner) -> Bench:
        made = Bench(runner, tokenizer, token_budget=90)
        made.ask("text", "state", Text("t", "Say", 9))
        for i in range(4):
            made.ask(f"same-{i}", "x" * 90, Noul("n", f"Is it {i}?"), choice("c", "x", "y"))
        return made

    plain = asked(FakeRunner(vocab_size=tokenizer.vocab_size, overlaps=False))
    expected = {name: outcome.body["answers"] for name, outcome in plain.run().items()}  # type: ignore[union-attr]
    runner = LateFailure(vocab_size=tokenizer.vocab_size)
    runner.fails = fails
    made = asked(runner)
    for _ in range(fails):
        made.step()
    cached, pending = set(made.engine.scheduler.cache._nodes), set(made.outcomes)
    made.step()
    assert set(made.engine.scheduler.cache._nodes) <= cached
    assert set(made.outcomes) == pending
    assert made.engine._ahead is None
    found = {name: outcome.body["answers"] for name, outcome in made.run().items()}  # type: ignore[union-attr]
    assert found == expected


def test_an_answer_is_given_though_the_step_behind_it_could_not_be_issued(tokenizer: ChatTokenizer) -> None:
    class Refuses(FakeRunner):
        def forward(self, batch: RowBatch) -> None:
            if len(self.batches) == 3:
                self.batches.append(batch)
                raise RuntimeError("no")
            super().forward(batch)

    made = Bench(Refuses(vocab_size=tokenizer.vocab_size, logits=scripted(tokenizer, "qqqq")), tokenizer)
    made.ask("short", "x", Text("t", "Say", 3))
    made.ask("long", "y", Text("t", "Say", 9))
    made.run()
    assert made.body("short")["answers"]["t"]["text"] == "qqq"
    assert made.body("long")["answers"]["t"]["text"] == "qqqq"


def test_a_request_that_leaves_while_a_step_runs_leaves_nothing_behind(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, logits=scripted(tokenizer, "q" * 90))
    made.ask("gone", "x", Text("t", "Say", 90))
    made.ask("late", "y", Text("t", "Say", 90), deadline_at=5.0)
    made.ask("stays", "z", Text("t", "Say", 9))
    made.step()
    made.taken_back.add("gone")
    made.clock.now = 6.0
    made.step()
    assert made.outcomes["gone"] == Cancelled()
    assert isinstance(made.outcomes["late"], Refused)
    made.run()
    assert made.body("stays")["answers"]["t"]["text"] == "q" * 9
    made.engine.scheduler.cache.clear()
    assert made.engine.scheduler.pages.free == fake(made).num_pages - 1


@pytest.mark.parametrize("seed", range(8))
def test_sessions_texts_and_the_rest_are_answered_as_without(tokenizer: ChatTokenizer, seed: int) -> None:
    """Turns that hold their prefixes, on few pages, beside texts and digits, with cancels and failing steps."""
    chance = random.Random(100 + seed)
    sizes: dict[str, Any] = {
        "num_pages": chance.randint(36, 80),
        "sliding_pages": chance.randint(34, 60),
        "sliding_window": 40,
    }
    runner = Stumbles(random.Random(seed), 0.03 * (seed % 2), vocab_size=tokenizer.vocab_size, **sizes)
    made = Bench(runner, tokenizer, token_budget=chance.choice((50, 120)), max_requests=chance.choice((2, 6)))
    talks = [Talk(made, f"s{i}", lease_s=chance.choice((5.0, 500.0))) for i in range(3)]
    kinds: list[Question] = [Noul("n", "Is it?"), Number("m", "How many?", 0, 300, 1), Text("t", "Say", 25)]
    waiting: dict[str, tuple[Talk, Any]] = {}
    asked: dict[str, Any] = {}
    for turn in range(50):
        made.clock.now += 1
        for talk in talks:
            if turn < 30 and talk.session_id not in waiting and chance.random() < 0.3:
                images = {"img": picture(chance.randint(0, 2))} if chance.random() < 0.4 else None
                state = f"img {turn}" if images else f"no picture {turn}"
                request = talk.ask(state, *chance.sample(kinds, chance.randint(1, 3)), images=images)
                waiting[talk.session_id] = talk, request
                asked[request.job_id] = request
        if turn < 30 and chance.random() < 0.3:
            asked[f"lone-{turn}"] = made.ask(f"lone-{turn}", "x" * chance.randint(0, 90), *chance.sample(kinds, 2))
        if waiting and chance.random() < 0.05:
            made.taken_back.add(chance.choice(list(waiting.values()))[1].job_id)
        for _ in range(chance.randint(1, 8)):
            made.step()
        for session, (talk, request) in list(waiting.items()):
            if request.job_id in made.outcomes:
                del waiting[session]
                if isinstance(made.outcomes[request.job_id], Answered):
                    talk.answered(request)
    if seed % 3 == 0:
        made.engine.hand_back("enough")
    made.run()
    kept = made.outcomes.items()
    assert len(kept) == len(asked) > 10
    assert seed % 2 == 0 or runner.stumbled
    for job_id, outcome in kept:
        if isinstance(outcome, Answered):
            alone = Bench(FakeRunner(vocab_size=tokenizer.vocab_size, **sizes, overlaps=False), tokenizer)
            alone.incoming.append(asked[job_id])
            alone.run()
            assert outcome.body["answers"] == alone.body(job_id)["answers"]
        else:
            too_long = isinstance(outcome, Refused) and outcome.code == "prompt_too_long"
            assert isinstance(outcome, Cancelled | HandedBack) or too_long or runner.stumbled, outcome
    assert sum(isinstance(outcome, Answered) for _, outcome in kept) > len(kept) // 2
    assert any(len(batch.from_row) for batch in runner.batches)
    made.engine.held.ask_release([talk.session_id for talk in talks])
    made.step()
    made.engine.scheduler.cache.clear()
    made.engine.check()
    assert made.engine.scheduler.pages.free == sizes["num_pages"] - 1
