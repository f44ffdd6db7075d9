"""The engine as a whole, on a runner that notices every row that sees somebody else's history."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from photocall.questions import Choice, Noul, Number, Option, Question, Score, Text
from photocall_engine.calibration import Calibration
from photocall_engine.engine import Answered, Cancelled, EngineRequest, HandedBack, Outcome, Refused
from photocall_engine.fake_runner import FakeRunner, drawn_logits
from photocall_engine.number_tree import NumberReader
from photocall_engine.readout import Floats, Path, Want
from photocall_engine.rows import PAGE_SIZE, RowBatch
from photocall_engine.runner import DeviceLost
from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.harness import Bench, Clock, bench, choice, oracle, picture


def probabilities(answer: dict[str, Any]) -> list[float]:
    return list(answer["probabilities"].values()) if "probabilities" in answer else [answer["noul"], 1 - answer["noul"]]


def assert_as_oracle(made: Bench, job_id: str, expected: dict[str, list[float]]) -> None:
    answers = made.body(job_id)["answers"]
    assert list(answers) == list(expected)
    for name, answer in answers.items():
        assert probabilities(answer) == pytest.approx(expected[name], abs=1e-12), name


def test_every_lettered_type_is_answered_from_its_own_history(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    request = made.ask(
        "job",
        {"left": "one.jpg", "text": "between", "right": "two.jpg"},
        choice("c", "x", "y", "z"),
        Noul("n", "Is it like two.jpg?"),
        Score("s", "How much?", ("low", {"what": "middle"}, "high")),
        images={"one.jpg": picture(1), "two.jpg": picture(2, 9, 3)},
    )
    made.run()
    assert_as_oracle(made, "job", oracle(made, request))
    body = made.body("job")
    assert body["model"] == "tiny"
    assert body["answers"]["s"]["legend"] == {"0": "low", "1": {"what": "middle"}, "2": "high"}
    assert body["usage"]["output_tokens"] == 3
    assert body["usage"]["image_tokens"] == 6 + 3 + 3  # each picture once in the state, the second in a question too


def test_a_fresh_picture_with_twenty_questions_is_one_forward(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, token_budget=2048, num_pages=512, sliding_pages=400)
    questions = [Noul(f"q{i}", f"Is number {i} in it?") for i in range(20)]
    request = made.ask("job", {"photo": "img"}, *questions, images={"img": picture(3)})
    made.run()
    assert_as_oracle(made, "job", oracle(made, request))
    composed = made.engine.composer.compose(request)
    rows = composed.prefix.end + sum(len(branch.base.tokens) for branch in composed.branches)
    usage = made.body("job")["usage"]
    assert usage["steps"] == 1
    assert usage["prompt_rows"] == rows
    assert isinstance(made.runner, FakeRunner)
    [batch] = made.runner.batches
    assert batch.num_rows == rows
    assert len(batch.read) == 20
    assert len(batch.extra_row) == 20 * (composed.prefix.end % PAGE_SIZE)


def test_a_request_joins_the_next_step_of_one_that_decodes(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, logits=never_ends(tokenizer), overlaps=False)
    made.ask("a", "first", Text("t", "Say something", max_tokens=12))
    for _ in range(4):
        made.step()
    assert isinstance(made.runner, FakeRunner)
    before = len(made.runner.batches)
    made.ask("b", "second", choice("c", "x", "y"))
    made.step()
    assert "b" in made.outcomes
    assert len(made.runner.batches) == before + 1
    batch = made.runner.batches[-1]
    assert sorted(np.bincount(np.unique(batch.bt_off, return_inverse=True)[1]))[0] == 1  # a's one row beside b's
    assert batch.num_rows > 10
    assert len(batch.read) == 2
    made.run()
    assert len(made.body("a")["answers"]["t"]["text"]) == 12


def never_ends(tokenizer: ChatTokenizer) -> Any:
    """Always the letter q first, for texts of full length."""

    def logits(history: int, tokens: list[int]) -> Floats:
        values = np.zeros(tokenizer.vocab_size, dtype=np.float32)
        values[tokenizer.single("q")] = 5
        return values

    return logits


def test_a_cached_prefix_is_not_computed_again(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    state = {"photo": "img", "note": "x" * 40}
    made.ask("cold", state, choice("c", "x", "y"), images={"img": picture(4)})
    made.run()
    request = made.ask("warm", state, choice("c", "p", "q", "r"), images={"img": picture(4)})
    made.run()
    assert_as_oracle(made, "warm", oracle(made, request))
    prefix = made.engine.composer.compose(request).prefix.end
    assert made.body("cold")["usage"]["cached_rows"] == 0
    assert made.body("warm")["usage"]["cached_rows"] == prefix
    assert made.body("warm")["usage"]["prompt_rows"] == made.body("warm")["usage"]["input_tokens"] - prefix
    assert isinstance(made.runner, FakeRunner)
    assert made.runner.encoded == 1


def test_the_same_words_before_another_picture_are_found_up_to_the_picture(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    state = {"rules": "Only count what is red. " * 3, "photo": "img"}
    for job, seed in (("one", 5), ("two", 6)):
        request = made.ask(job, state, choice("c", "x", "y"), images={"img": picture(seed)})
        made.run()
        assert_as_oracle(made, job, oracle(made, request))
    assert made.body("two")["usage"]["cached_rows"] == made.engine.composer.compose(request).prefix.spans[0].start


def test_equal_prefixes_at_once_are_computed_once(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    expected = {}
    for i in range(6):
        request = made.ask(f"j{i}", {"photo": "img"}, choice("c", "x", "y"), images={"img": picture(7)})
        expected[f"j{i}"] = oracle(made, request)
    made.run()
    for job, wanted in expected.items():
        assert_as_oracle(made, job, wanted)
    assert sorted(made.body(f"j{i}")["usage"]["cached_rows"] > 0 for i in range(6)) == [False] + [True] * 5


def test_a_cancelled_request_leaves_at_the_next_step(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, logits=never_ends(tokenizer))
    made.ask("gone", "first", Text("t", "Say", max_tokens=100))
    made.ask("stays", "second", Text("t", "Say", max_tokens=20))
    for _ in range(5):
        made.step()
    made.taken_back.add("gone")
    made.step()
    assert made.outcomes == {"gone": Cancelled()}
    assert isinstance(made.runner, FakeRunner)
    assert made.runner.batches[-1].num_rows == 1
    made.run()
    assert len(made.body("stays")["answers"]["t"]["text"]) == 20


def test_a_request_that_can_never_fit_is_refused_with_the_numbers(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=20)
    made.ask("long", "x" * 400, choice("c", "x", "y"))
    made.ask("short", "x" * 40, choice("c", "x", "y"))
    made.run()
    refused = made.outcomes["long"]
    assert isinstance(refused, Refused)
    assert refused.code == "prompt_too_long"
    assert refused.data["limit"] == (20 - 1 - 2) * PAGE_SIZE
    assert 400 < refused.data["tokens"] < 500
    assert isinstance(made.outcomes["short"], Answered)


def test_a_picture_larger_than_a_step_is_refused_with_the_numbers(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, token_budget=50)
    made.ask("big", {"p": "img"}, choice("c", "x", "y"), images={"img": picture(1, 24, 24)})
    made.run()
    assert made.outcomes["big"] == Refused(
        "request_too_big", "a picture is 64 tokens, limit 50", {"tokens": 64, "limit": 50}
    )


def test_a_number_that_cannot_be_is_refused_by_name(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    made.ask("job", "x", Number("size", "How many?", min=0.2, max=0.4, step=0.5))
    made.ask("other", "x", choice("c", "x", "y"))
    made.run()
    refused = made.outcomes["job"]
    assert isinstance(refused, Answered)  # 0.2 itself stands on the grid min + k * step
    made.ask("none", "x", Number("size", "How many?", min=1e20))
    made.run()
    assert made.outcomes["none"] == Refused(
        "unanswerable",
        "question 'size': min, max and step have at most 15 digits before the point",
        {"question": "size", "loc": ["questions", "size", "number"]},
    )
    assert isinstance(made.outcomes["other"], Answered)


def test_a_deadline_that_passes_ends_the_request(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, logits=never_ends(tokenizer))
    made.ask("late", "x", Text("t", "Say", max_tokens=200), deadline_at=10.0)
    made.step()
    made.clock.now = 10.0
    made.step()
    assert isinstance(made.outcomes["late"], Refused)
    assert made.outcomes["late"].code == "deadline_exceeded"


def test_a_deadline_that_passed_before_it_ran_costs_no_row(tokenizer: ChatTokenizer) -> None:
    """Taken too late, and in the waiting line for too long: neither has a row of any step."""
    made = bench(tokenizer, logits=never_ends(tokenizer))
    made.clock.now = 10.0
    made.ask("taken late", "x", Text("t", "Say", max_tokens=2), deadline_at=9.0)
    made.step()
    assert made.outcomes["taken late"].code == "deadline_exceeded"  # type: ignore[union-attr]
    assert (made.engine.steps, made.engine.rows) == (0, 0)


def test_a_job_taken_again_while_it_runs_has_one_outcome_for_the_new_ticket(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, logits=never_ends(tokenizer))
    made.ask("job", "x", Text("t", "Say", max_tokens=9), ticket="lost")
    made.step()
    made.step()
    made.ask("job", "x", Text("t", "Say", max_tokens=9), ticket="new")
    tickets = []
    publish = made.publish

    def recording(request: EngineRequest, outcome: Outcome) -> None:
        tickets.append(request.ticket)
        publish(request, outcome)

    made.publish = recording  # type: ignore[method-assign]
    made.run()
    assert tickets == ["new"]


class Breaks(FakeRunner):
    """Raises whenever a row's token is in `poison`, after writing half of nothing."""

    poison = -1
    raises: type[Exception] = ValueError

    def forward(self, batch: RowBatch) -> None:
        if self.poison in batch.tokens:
            raise self.raises("bad row")
        super().forward(batch)


def test_a_step_that_raises_fails_only_the_request_that_fails_alone(tokenizer: ChatTokenizer) -> None:
    runner = Breaks(vocab_size=tokenizer.vocab_size)
    runner.poison = tokenizer.single("#")
    made = Bench(runner, tokenizer)
    expected = {}
    for name, text in (("a", "good"), ("bad", "bad #"), ("b", "fine"), ("c", "well")):
        request = made.ask(name, text, choice("q", "x", "y"), Noul("n", "Is it?"))
        expected[name] = oracle(made, request)
    made.run()
    assert isinstance(made.outcomes["bad"], Refused)
    assert made.outcomes["bad"].code == "internal"
    for name in ("a", "b", "c"):
        assert_as_oracle(made, name, expected[name])
    made.ask("later", "good again", choice("q", "x", "y"))
    made.run()
    assert isinstance(made.outcomes["later"], Answered)


def test_a_picture_the_tower_failed_on_is_encoded_again(tokenizer: ChatTokenizer) -> None:
    class Stumbles(FakeRunner):
        stumbled = False

        def encode_images(self, images: Any, bases: Any) -> None:
            if not self.stumbled:
                self.stumbled = True
                raise RuntimeError("once")
            super().encode_images(images, bases)

    made = Bench(Stumbles(vocab_size=tokenizer.vocab_size), tokenizer)
    request = made.ask("job", {"p": "img"}, choice("q", "x", "y"), images={"img": picture(8)})
    made.run()
    assert_as_oracle(made, "job", oracle(made, request))


def test_logits_that_are_no_numbers_fail_their_own_request(tokenizer: ChatTokenizer) -> None:
    def logits(history: int, tokens: list[int]) -> Floats:
        values = drawn_logits(history, tokenizer.vocab_size)
        return values * np.float32(np.nan) if tokenizer.single("#") in tokens else values

    made = bench(tokenizer, logits=logits)
    made.ask("nan", "#", choice("q", "x", "y"))
    made.ask("text", "#!", Text("t", "Say"))
    request = made.ask("fine", "x", choice("q", "x", "y"))
    made.run()
    for name in ("nan", "text"):
        assert isinstance(made.outcomes[name], Refused)
    assert_as_oracle(made, "fine", oracle(made, request))


def test_a_reader_that_raises_fails_only_its_request(tokenizer: ChatTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended the engine, and with it everybody's work, three times over."""
    whole = NumberReader.take

    def take(self: NumberReader, path: Path, values: Floats) -> list[Want]:
        if path:
            raise IndexError("list index out of range")
        return whole(self, path, values)

    monkeypatch.setattr(NumberReader, "take", take)
    made = bench(tokenizer)
    made.ask("bad", "x", Number("n", "How many?"), choice("q", "x", "y"), Text("t", "Say"))
    request = made.ask("fine", "x", choice("q", "x", "y"), Noul("n", "Is it?"))
    made.run()
    assert made.outcomes["bad"] == Refused("internal", "an answer cannot be read: IndexError")
    assert_as_oracle(made, "fine", oracle(made, request))


def test_a_sliding_map_the_runner_missed_is_sent_again(tokenizer: ChatTokenizer) -> None:
    class Misses(FakeRunner):
        missed = False

        def set_sliding_map(self, pages: Any, sliding: Any) -> None:
            if len(self.batches) == 3 and not self.missed:
                self.missed = True
                raise RuntimeError("once")
            super().set_sliding_map(pages, sliding)

    runner = Misses(vocab_size=tokenizer.vocab_size)
    made = Bench(runner, tokenizer, token_budget=64)
    request = made.ask("job", "x" * 300, choice("q", "x", "y"))
    made.run()
    assert runner.missed
    assert_as_oracle(made, "job", oracle(made, request))


def test_a_lost_device_ends_the_engine(tokenizer: ChatTokenizer) -> None:
    runner = Breaks(vocab_size=tokenizer.vocab_size)
    runner.poison, runner.raises = tokenizer.single("#"), DeviceLost
    made = Bench(runner, tokenizer)
    made.ask("job", "#", choice("q", "x", "y"))
    with pytest.raises(DeviceLost):
        made.step()
    assert made.outcomes == {}


def test_stopping_finishes_what_it_can_and_hands_back_the_rest(tokenizer: ChatTokenizer) -> None:
    class Ticking(Clock):
        def __call__(self) -> float:
            self.now += 1.0
            return self.now

    made = bench(tokenizer, logits=never_ends(tokenizer))
    made.engine._clock = Ticking()
    made.ask("short", "x", Text("t", "Say", max_tokens=4))
    made.ask("long", "y", Text("t", "Say", max_tokens=200))
    stops = iter([False, True])
    made.engine.run(lambda: next(stops), drain_s=60.0)
    assert isinstance(made.outcomes["short"], Answered)
    assert made.outcomes["long"] == HandedBack("the engine is shutting down")
    made.engine.check()


def test_text_is_sent_as_it_grows(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, logits=never_ends(tokenizer))
    made.ask("job", "x", Text("t", "Say", max_tokens=3), choice("c", "x", "y"))
    made.run()
    assert [event for event in made.events if event[1] == "stream"] == [
        ("job", "stream", {"question": "t", "offset": i, "text": "q"}) for i in range(3)
    ]
    progress = [event[2] for event in made.events if event[1] == "progress"]
    assert progress == [{"answered": 1, "questions": 2}, {"answered": 2, "questions": 2}]


def test_timings_follow_the_stages(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, logits=never_ends(tokenizer))
    made.clock.now = 100.0
    made.ask("job", "x", Text("t", "Say", max_tokens=3), arrived_at=98.5)
    made.step()
    made.clock.now = 101.0
    made.run()
    outcome = made.outcomes["job"]
    assert isinstance(outcome, Answered)
    assert outcome.timings == {"queue": 1.5, "prefill": 0.0, "readout": 1.0}


def test_temperatures_of_the_calibration_are_used(tokenizer: ChatTokenizer) -> None:
    plain, warm = bench(tokenizer), bench(tokenizer, calibration=Calibration({"choice": 2.0}))
    for made in (plain, warm):
        made.ask("job", "x", choice("c", "x", "y"), Noul("n", "Is it?"))
        made.run()
    p, q = (made.body("job")["answers"] for made in (plain, warm))
    assert p["n"] == q["n"]
    odds = p["c"]["probabilities"]["x"] / p["c"]["probabilities"]["y"]
    assert q["c"]["probabilities"]["x"] / q["c"]["probabilities"]["y"] == pytest.approx(odds**0.5)


@pytest.mark.parametrize("count", [27, 52, 100, 255])
def test_two_letter_codes_multiply_first_and_second(tokenizer: ChatTokenizer, count: int) -> None:
    made = bench(tokenizer, num_pages=1024, sliding_pages=1000)
    made.ask("job", "x", Choice("c", "Which?", tuple(Option(f"o{i}") for i in range(count))))
    made.run()
    body = made.body("job")
    found = list(body["answers"]["c"]["probabilities"].values())
    assert len(found) == count
    assert sum(found) == pytest.approx(1, abs=1e-9)
    groups = -(-count // 26)
    assert body["usage"]["decode_rows"] == groups
    alone = bench(tokenizer, num_pages=1024, sliding_pages=1000, token_budget=40)
    alone.ask("job", "x", Choice("c", "Which?", tuple(Option(f"o{i}") for i in range(count))))
    alone.run()
    assert alone.body("job")["answers"] == body["answers"]
    assert alone.body("job")["usage"]["steps"] > body["usage"]["steps"]


def test_questions_can_run_one_after_another_when_pages_are_few(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=14, sliding_pages=13, sliding_window=32)
    questions: list[Question] = [Noul(f"q{i}", f"Is {i} in it?") for i in range(12)]
    request = made.ask("job", "x" * 50, *questions)
    made.run()
    assert_as_oracle(made, "job", oracle(made, request))


def traced(made: Bench, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens, in order: calls of the runner that matter, takes that bring something, outcomes."""
    happened: list[str] = []

    def note(owner: Any, name: str, say: Any) -> None:
        original = getattr(owner, name)

        def noted(*args: Any) -> Any:
            result = original(*args)
            if said := say(args, result):
                happened.append(said)
            return result

        monkeypatch.setattr(owner, name, noted)

    note(made.runner, "forward", lambda args, _: "issued")
    note(made.runner, "collect", lambda args, _: "collected")
    note(made.engine.composer, "compose", lambda args, _: f"composed {args[0].job_id}")
    note(made.engine._outlet, "publish", lambda args, _: f"published {args[0].job_id}")
    return happened


def test_the_next_step_is_planned_and_issued_while_one_runs(
    tokenizer: ChatTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newcomers are composed, a text's next row is issued before its token is known, and answers are published while
    the device has something to do."""
    made = bench(tokenizer, logits=never_ends(tokenizer))
    happened = traced(made, monkeypatch)
    made.ask("text", "state", Text("t", "Say", max_tokens=5))
    made.engine.step()
    assert happened == ["composed text", "issued", "issued", "collected"]
    made.ask("late", "another", choice("c", "x", "y"))
    while made.engine.step():
        made.engine.check()
    assert happened[4:] == [
        *("composed late", "issued", "collected"),  # the text's second token
        *("issued", "collected", "published late"),  # the fourth is on its way
        *("issued", "collected", "collected", "published text"),  # nothing is issued behind the last
    ]
    assert made.body("text")["answers"]["t"]["text"] == "q" * 5
    assert made.body("text")["usage"]["decode_rows"] == 4


def test_answers_are_told_behind_the_next_step_where_it_hangs_on_them(
    tokenizer: ChatTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few rows are not planned ahead; then the device gets its next step before the last one's answers are told."""
    made = bench(tokenizer, token_budget=200, max_requests=2)
    happened = traced(made, monkeypatch)
    made.ask("a", "state", choice("c", "x", "y"))
    made.ask("b", "state", Number("n", "How many?", 0, 99, 1))
    while made.engine.step():
        made.engine.check()
    first = happened.index("published a")
    assert happened[first - 2 : first] == ["collected", "issued"]
    assert happened[-2:] == ["collected", "published b"], "the last one waits for nobody"


def test_answers_wait_for_no_forward_that_blocks(tokenizer: ChatTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU the next forward takes as long as the last: what is known is published before it."""
    made = bench(tokenizer, token_budget=24, max_requests=2)
    made.runner.overlaps = False
    happened = traced(made, monkeypatch)
    for name in ("a", "b"):
        made.ask(name, f"state {name}", choice("c", "x", "y"))
    while made.engine.step():
        pass
    published = [at for at, what in enumerate(happened) if what.startswith("published")]
    assert [happened[at - 1] for at in published] == ["collected", "collected"]
    assert "issued" in happened[published[0] : published[1]], "there was a next step"


def test_answers_of_the_last_step_are_told_when_the_device_is_lost(tokenizer: ChatTokenizer) -> None:
    """What was computed before the loss is published, and only that."""
    made = bench(tokenizer)
    made.ask("a", "state a", choice("c", "x", "y"))
    made.ask("b", "state b", Number("n", "How many?", 0, 99, 1))
    made.engine.step()
    assert made.engine._by_id.keys() == {"b"}
    assert not made.outcomes, "they wait until the device is busy"

    def lost(batch: RowBatch) -> None:
        raise DeviceLost("gone")

    made.runner.forward = lost  # type: ignore[method-assign]
    with pytest.raises(DeviceLost):
        made.engine.step()
    assert set(made.outcomes) == {"a"}


def test_the_step_on_its_way_is_settled_before_the_rest_is_handed_back(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, logits=never_ends(tokenizer))
    made.ask("two", "state", Text("t", "Say it.", 2))
    made.ask("nine", "state", Text("t", "Say it.", 9))
    made.engine.step()
    made.engine.hand_back("enough")
    assert {job_id: type(outcome) for job_id, outcome in made.outcomes.items()} == {"two": Answered, "nine": HandedBack}
    made.engine.check()
    assert not made.engine.step(take=False)


def test_a_step_begins_before_everything_that_waits_is_composed(tokenizer: ChatTokenizer) -> None:
    """Two steps' worth is taken, and no more until the next step is planned; all are answered in the end."""
    made = bench(tokenizer, max_requests=64, num_pages=512, sliding_pages=400)
    for i in range(60):
        made.ask(f"job{i}", f"state {i}: " + "word " * 20, Noul("q", "Is it?"))
    composed = made.engine.composer.compose(made.incoming[0])
    made.step()
    assert 8 * composed.input_tokens > 2 * made.token_budget
    assert len(made.incoming) == 60 - 8 - 8, "for a step, and for the one ahead of it"
    made.run()
    assert len(made.outcomes) == 60
