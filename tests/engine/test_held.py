"""Turns of sessions in the engine: what is held between them, when it is reused, and what is said when it is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from photocall.asks import Ask
from photocall.questions import Json, Noul, Number, Question, Score, Text
from photocall_engine.edges import Answered, EngineRequest, Refused
from photocall_engine.runner import PatchImage
from photocall_engine.tokenizer import ChatTokenizer, TurnMarks
from photocall_engine.transcript import Exchange, Turn, said
from tests.engine.harness import Bench, bench, choice, histories, picture

YES = Noul("yes", "Is it so?")
TALK = Text("reply", "Say something.", 5)


class Talk:
    """A session over a bench: keeps the transcript as the gateway does."""

    def __init__(self, made: Bench, session_id: str = "s1", base: Json = "Be brief.", lease_s: float = 100.0) -> None:
        self.made = made
        self.session_id = session_id
        self.base = base
        self.lease_s = lease_s
        self.history: list[Exchange] = []
        self.images: dict[str, PatchImage] = {}
        self.asked: list[EngineRequest] = []

    def ask(
        self, state: Json, *questions: Question, remember: bool = True, images: Mapping[str, PatchImage] | None = None
    ) -> EngineRequest:
        """Put a turn in, and do not run it."""
        hashes = {key: f"{self.session_id}-{key}-{len(self.asked)}" for key in images or {}}
        self.images |= {hashes[key]: image for key, image in (images or {}).items()}
        number = len(self.asked) + 1
        turn = Turn(self.session_id, number, self.base, tuple(self.history), remember, self.lease_s)
        ask = Ask(None, state, questions or (YES,), hashes)
        request = EngineRequest(f"{self.session_id}-{number}", ask, dict(self.images), turn=turn)
        self.asked.append(request)
        self.made.incoming.append(request)
        return request

    def answered(self, request: EngineRequest) -> dict[str, Any]:
        """The end of a turn that has run: its report; the transcript goes on."""
        outcome = self.made.outcomes[request.job_id]
        assert isinstance(outcome, Answered), outcome
        assert outcome.turn is not None
        if outcome.turn.said is not None:
            self.history.append(Exchange(request.ask, outcome.turn.said))
        return dict(outcome.body["session"])

    def turn(
        self, state: Json, *questions: Question, remember: bool = True, images: Mapping[str, PatchImage] | None = None
    ) -> dict[str, Any]:
        request = self.ask(state, *questions, remember=remember, images=images)
        self.made.run()
        return self.answered(request)


def fresh(tokenizer: ChatTokenizer, request: EngineRequest, **fields: Any) -> dict[str, Any]:
    """The answers to the same prompt in an engine that has seen nothing."""
    made = bench(tokenizer, **fields)
    made.incoming.append(request)
    made.run()
    return dict(made.body(request.job_id)["answers"])


def test_a_turn_goes_on_from_what_the_last_one_left(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=600, sliding_pages=400)
    talk = Talk(made)
    first = talk.turn("A picture: img-1", YES, choice("c", "red", "green"), images={"img-1": picture(1)})
    assert (first["turn"], first["reused"], first["notices"]) == (1, 0, ["Backend: fake (no model)"])
    assert first["held"]["tokens"] == first["prompt_tokens"]
    pages, sliding = -(-first["held"]["tokens"] // 16), -(-64 // 16)
    assert 512 * pages < first["held"]["bytes"] <= 512 * (pages + sliding + 1)
    assert made.engine.held.held_bytes == first["held"]["bytes"]
    second = talk.turn("And now: img-2", TALK, images={"img-2": picture(2)})
    assert (second["turn"], second["reused"]) == (2, first["held"]["tokens"])
    assert second["prompt_tokens"] > first["prompt_tokens"]
    assert second["batched_prefills"] >= 1
    third = talk.turn(None, Number("n", "How many?", 0, 20, 1))
    assert third["reused"] == second["held"]["tokens"]
    assert made.body("s1-3")["usage"]["cached_rows"] == second["held"]["tokens"]
    assert made.runner.encoded == 2  # type: ignore[attr-defined]  # no picture twice
    for request in talk.asked:
        assert fresh(tokenizer, request, num_pages=600, sliding_pages=400) == made.body(request.job_id)["answers"]


def test_what_the_model_reads_of_earlier_turns(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=600, sliding_pages=400)
    talk = Talk(made)
    talk.turn("One.", YES, choice("c", "red", "green"))
    request = talk.ask("Two.", TALK)
    composed = made.engine.composer.compose(request)
    text = tokenizer._special.decode(composed.prefix.tokens, skip_special_tokens=False)
    [exchange] = talk.history
    yes, colour = exchange.said
    assert yes is not None
    assert colour is not None
    assert yes in "AB"
    assert colour in "AB"
    user, model = "<|turn>user\n", "<turn|>\n<|turn>model"
    assert text == (
        f"<bos>{user}Be brief.\nOne.\n\nIs it so?\nA) yes\nB) no\nAnswer with one letter.{model}{yes}<turn|>\n"
        f"{user}\nWhich?\nA) red\nB) green\nAnswer with one letter.{model}{colour}<turn|>\n{user}Two.\n"
    )
    before = made.engine.composer.compose(talk.asked[0])
    assert composed.prefix.tokens[: before.prefix.end] == before.prefix.tokens


@pytest.mark.parametrize(
    ("question", "answer", "words"),
    [
        (choice("c", "red", "green"), {"type": "choice", "choice": "green"}, "B"),
        (YES, {"type": "noul", "noul": 0.25}, "B"),
        (YES, {"type": "noul", "noul": 0.5}, "A"),
        (Score("s", None, ("a", "b", "c")), {"type": "score", "probabilities": {"0": 0.1, "1": 0.2, "2": 0.7}}, "C"),
        (Number("n", None, 0, 9, 1), {"type": "number", "number": 4}, "4"),
        (TALK, {"type": "text", "text": "Hello."}, "Hello."),
    ],
)  # fmt: skip
def test_what_is_said(question: Question, answer: dict[str, Any], words: str) -> None:
    assert said(question, answer) == words


def test_a_turn_that_is_not_to_be_remembered_leaves_what_was_held(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=600, sliding_pages=400)
    talk = Talk(made, base="Watch the door, and say whether it is open.")
    frames = [talk.turn("img-1", remember=False, images={"img-1": picture(seed)}) for seed in range(1, 5)]
    assert talk.history == []
    assert [frame["reused"] for frame in frames] == [0, *[frames[0]["held"]["tokens"]] * 3]
    assert {frame["held"]["tokens"] for frame in frames} == {frames[0]["held"]["tokens"]}
    assert frames[0]["held"]["tokens"] < frames[0]["prompt_tokens"]


def test_a_prompt_that_does_not_extend_what_is_held_does_not_use_it(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=600, sliding_pages=400)
    talk = Talk(made)
    talk.turn("Something with many words in it, so that pages fill.")
    talk.base = "Be verbose."
    report = talk.turn("More.")
    assert report["reused"] == 0
    assert any("does not extend" in notice for notice in report["notices"])
    assert fresh(tokenizer, talk.asked[-1]) == made.body("s1-2")["answers"]


def test_pages_that_are_needed_are_taken_from_sessions_last_and_the_turn_says_so(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=60, sliding_pages=60)
    talk = Talk(made)
    held = talk.turn("Hold this. " * 15)["held"]["tokens"]
    for number in range(12):  # others come and go: the cache gives up theirs before the session's
        made.ask(f"small-{number}", f"{number} " + "words " * 40, YES)
        made.run()
    assert made.released_sessions == []
    assert talk.turn("Go on. ")["reused"] == held
    made.ask("large", "w" * 800, YES)
    made.run()
    made.step()
    assert made.released_sessions == ["s1"]
    report = talk.turn("And on.")
    assert report["reused"] == 0
    assert any("pages were needed" in notice and "prefilled again" in notice for notice in report["notices"])
    assert fresh(tokenizer, talk.asked[-1], num_pages=60, sliding_pages=60) == made.body("s1-3")["answers"]


def test_sessions_that_no_longer_fit_side_by_side_take_from_the_one_least_recently_used(
    tokenizer: ChatTokenizer,
) -> None:
    made = bench(tokenizer, num_pages=60, sliding_pages=60)
    talks = [Talk(made, f"s{number}", base=f"Session {number}.") for number in range(5)]
    for talk in talks:
        talk.turn("Each holds a dozen pages. " * 7)
    made.step()
    lost = made.released_sessions
    assert lost == [f"s{number}" for number in range(len(lost))]
    assert 0 < len(lost) < 5
    assert talks[-1].turn("more")["reused"] > 0


def test_a_lease_ends(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    talk = Talk(made, lease_s=50.0)
    made.clock.now = 1000.0
    assert talk.turn("One.")["held"]["until"] == 1050.0
    made.clock.now = 1049.0
    assert talk.turn("Two.")["reused"] > 0
    made.clock.now = 1099.0
    made.step()
    assert made.released_sessions == ["s1"]
    assert made.engine.held.held_bytes == 0
    report = talk.turn("Three.")
    assert report["reused"] == 0
    assert "its lease was over" in report["notices"][1]


def test_a_session_that_is_closed_lets_go(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    Talk(made).turn("One.")
    made.engine.held.ask_release(["s1", "of-another-engine"])
    made.step()
    assert made.released_sessions == ["s1"]
    assert made.engine.held.held_bytes == 0


def test_a_session_that_comes_from_another_engine_says_so(tokenizer: ChatTokenizer) -> None:
    talk = Talk(bench(tokenizer))
    talk.turn("One.")
    talk.made = bench(tokenizer)
    report = talk.turn("Two.")
    assert report["reused"] == 0
    assert report["notices"][0] == "Backend: fake (no model)"
    assert "another engine" in report["notices"][1]


def test_a_prompt_that_cannot_fit_is_refused_whole_with_both_numbers(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=20, sliding_pages=20)
    talk = Talk(made)
    talk.turn("One.")
    held = made.engine.held.held_bytes
    request = talk.ask("x" * 300, TALK)
    made.run()
    refused = made.outcomes[request.job_id]
    assert isinstance(refused, Refused)
    limit = made.engine.scheduler.limits.max_tokens
    assert (refused.code, refused.data["limit"]) == ("prompt_too_long", limit)
    assert refused.data["tokens"] > limit
    assert made.engine.held.held_bytes == held
    assert talk.turn("Two.")["reused"] > 0


def test_a_reply_has_as_much_room_as_there_is_left(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=20, sliding_pages=20)
    limit = made.engine.scheduler.limits.max_tokens
    talk = Talk(made, base=None)
    asked = talk.ask("x", Text("reply", "Go.", 4000))
    room = limit - made.engine.composer.compose(asked).branches[0].base.end + 1
    made.run()
    assert talk.answered(asked)["context_capped"]
    tokens = made.body("s1-1")["usage"]["output_tokens"]
    assert tokens == room or not made.body("s1-1")["answers"]["reply"]["truncated"]
    assert not talk.turn(None, YES)["context_capped"] or room < 40


def test_turns_of_many_sessions_share_steps_and_give_the_answers_they_get_alone(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, num_pages=600, sliding_pages=400)
    talks = [Talk(made, f"s{number}") for number in range(4)]
    for words in ("One.", "Two.", "Three."):
        asked = [talk.ask(f"{talk.session_id} {words}", TALK) for talk in talks]
        made.run()
        for talk, request in zip(talks, asked, strict=True):
            talk.answered(request)
    for talk in talks:
        for request in talk.asked:
            assert fresh(tokenizer, request) == made.body(request.job_id)["answers"]


def test_a_failing_step_keeps_what_is_held_and_is_noted(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    talk = Talk(made)
    talk.turn("One.")
    whole = made.runner.forward
    made.runner.forward = lambda batch: (_ for _ in ()).throw(RuntimeError("out of luck"))  # type: ignore[method-assign]
    request = talk.ask("Two.")
    made.run()
    refused = made.outcomes[request.job_id]
    assert isinstance(refused, Refused)
    assert refused.notices[0].startswith("Backend: ")
    assert "the model failed" in refused.notices[-1]
    made.runner.forward = whole  # type: ignore[method-assign]
    assert talk.turn("Three.")["reused"] > 0


def test_a_cancelled_turn_keeps_what_is_held(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    talk = Talk(made)
    held = talk.turn("One.")["held"]["tokens"]
    request = talk.ask("Two.", Text("reply", "Go on and on.", 200))
    made.step()
    made.step()
    made.taken_back.add(request.job_id)
    made.run()
    assert not isinstance(made.outcomes[request.job_id], Answered)
    assert talk.turn("Three.")["reused"] == held


def test_a_template_without_a_second_turn(tokenizer: ChatTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    marks: TurnMarks = tokenizer.marks
    assert marks.between is not None
    monkeypatch.setattr(tokenizer, "marks", replace(marks, between=None))
    made = bench(tokenizer)
    request = Talk(made).ask("One.")
    made.run()
    refused = made.outcomes[request.job_id]
    assert isinstance(refused, Refused)
    assert "no second turn" in refused.message


def test_the_history_of_a_turn_is_that_of_the_oracle(tokenizer: ChatTokenizer) -> None:
    """The answer depends on every word of the transcript."""
    made = bench(tokenizer)
    talk = Talk(made)
    talk.turn("One.")
    request = talk.ask("Two.")
    other = replace(request, turn=replace(request.turn, base="Be brief!"))  # type: ignore[type-var]
    assert histories(made.engine.composer, request) != histories(made.engine.composer, other)
