from __future__ import annotations

from dataclasses import replace

import pytest

from photocall.questions import Noul, Number, Text
from photocall.views import View
from photocall_engine.composer import PictureTooLarge, PromptTooLong, Unanswerable
from photocall_engine.edges import EngineRequest
from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.harness import bench, choice, picture


def test_questions_stand_behind_the_prefix_with_their_own_pictures(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    images = {"one": picture(1), "two": picture(2, 9, 3)}
    origin = made.ask("job", "see one", Noul("n", "Is it like two?"), Text("t", "Say", 9), images=images)
    composed = made.engine.composer.compose(origin)
    [span] = composed.prefix.spans
    first, second = (branch.base for branch in composed.branches)
    assert first.start == second.start == composed.prefix.end
    [own] = first.spans
    assert own.end - own.start == 3
    assert first.tokens[own.start - first.start - 1] == tokenizer.image_begin
    assert span.key.endswith(":6x9")
    assert own.key.endswith(":9x3")
    assert second.spans == ()
    assert composed.input_tokens == second.end + len(first.tokens)


def test_two_views_of_one_file_are_two_pictures_to_every_cache(tokenizer: ChatTokenizer) -> None:
    """Two pages of a document: one hash, one grid, and never each other's soft tokens or pages."""
    made = bench(tokenizer)
    pictures = {"one": picture(1), "two": picture(2)}
    origin = made.ask("job", "see one and two", Noul("n", "Is it like one?"), images=pictures)
    sha256 = "ab" * 32
    ask = replace(origin.ask, assets={"one": sha256, "two": sha256}, views={"two": View(frame=1)})
    images = {name: origin.images[origin.ask.assets[key]] for key, name in ask.pictures.items()}
    composed = made.engine.composer.compose(replace(origin, ask=ask, images=images))
    first, second = (span.key for span in composed.prefix.spans)
    assert (first, second) == (f"{sha256}:6x9", f"{sha256}?frame=1:6x9")
    [again] = composed.branches[0].base.spans
    assert again.key == first


@pytest.mark.parametrize("room", [-1, 0])
def test_the_limit_counts_state_question_and_answer(tokenizer: ChatTokenizer, room: int) -> None:
    made = bench(tokenizer)
    origin = made.ask("job", "x" * 30, choice("c", "x", "y"), Text("t", "Say", 50))
    branches = made.engine.composer.compose(origin).branches
    longest = branches[1].base.end + 49
    tight = bench(tokenizer, context=longest + room)
    if room < 0:
        with pytest.raises(PromptTooLong, match=f"is {longest} tokens, limit {longest - 1}"):
            tight.engine.composer.compose(origin)
    else:
        assert tight.engine.composer.compose(origin).branches[1].base.end == longest - 49


def test_a_picture_must_fit_in_one_chunk_only_where_its_rows_see_each_other(tokenizer: ChatTokenizer) -> None:
    origin = bench(tokenizer).ask("job", "see img", choice("c", "x", "y"), images={"img": picture(1, 24, 24)})
    with pytest.raises(PictureTooLarge, match="64 tokens, limit 40"):
        bench(tokenizer, token_budget=40).engine.composer.compose(origin)
    causal = bench(tokenizer, token_budget=40, bidirectional_images=False)
    assert causal.engine.composer.compose(origin).image_tokens == 64
    with pytest.raises(PictureTooLarge, match="64 tokens, limit 63"):
        bench(tokenizer, bidirectional_images=False, soft_capacity=63).engine.composer.compose(origin)


def test_an_impossible_number_names_its_question(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    with pytest.raises(Unanswerable, match="question 'size': min, max and step have at most 12 decimals") as caught:
        made.engine.composer.compose(made.ask("job", "x", Number("size", "How big?", step=1e-14)))
    assert caught.value.to_error()["question"] == "size"


def test_a_key_that_stands_everywhere_is_refused_before_its_tokens_are_made(tokenizer: ChatTokenizer) -> None:
    """A picture of 280 tokens under the key "s", in a million letters "s", filled the memory; a tenth shows as much."""
    made = bench(tokenizer)
    limit = made.engine.scheduler.limits.max_tokens
    for state, question in (("s" * 100_000, "Is it?"), ("x", "s" * 100_000)):
        origin = made.ask("job", state, Noul("n", question), images={"s": picture(1, 24, 24)})
        with pytest.raises(PromptTooLong, match=f"is 6400000 tokens, limit {limit}"):
            made.engine.composer.compose(origin)


def test_by_question_one_that_cannot_be_answered_is_refused_alone(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, context=400)
    questions = (
        Number("small", "How big?", step=1e-14),
        choice("c", "x", "y"),
        Text("long", "y" * 500),
    )
    made.incoming.append(by_question(made.ask("job", "x", *questions)))
    del made.incoming[0]
    made.run()
    answers = made.body("job")["answers"]
    assert list(answers) == ["small", "c", "long"]
    assert answers["small"]["code"] == "unanswerable"
    assert answers["long"] == {
        "type": "refusal",
        "answer_status": "refused",
        "code": "prompt_too_long",
        "message": answers["long"]["message"],
    }
    assert "limit 400" in answers["long"]["message"]
    alone = bench(tokenizer, context=400)
    alone.ask("job", "x", questions[1])
    alone.run()
    assert answers["c"] == alone.body("job")["answers"]["c"]


def test_without_an_answer_to_any_question_the_request_is_refused(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, context=400)
    compose = made.engine.composer.compose
    with pytest.raises(Unanswerable):
        compose(by_question(made.ask("job", "x", Number("small", "How big?", step=1e-14))))
    with pytest.raises(Unanswerable):  # the whole request, where it was not asked for by question
        compose(made.ask("job", "x", Number("small", "How big?", step=1e-14), choice("c", "x", "y")))
    with pytest.raises(PromptTooLong, match="is 50"):  # the longest question's number, as the contract words it
        compose(made.ask("job", "x" * 100, choice("c", "x", "y"), Noul("n", "y" * 300), Noul("m", "y" * 350)))


def by_question(origin: EngineRequest) -> EngineRequest:
    return replace(origin, ask=replace(origin.ask, by_question=True))
