"""Texts of a list and of a pattern: exact probabilities, only what is allowed, and hostile expressions bounded."""

from __future__ import annotations

import math
import re
import time
from typing import Any

import numpy as np
import pytest

from photocall.questions import Text
from photocall_engine.composer import Unanswerable
from photocall_engine.fake_runner import chain, drawn_logits
from photocall_engine.one_of_reader import NoText, OneOfReader
from photocall_engine.pattern_reader import Patterns
from photocall_engine.reading import softmax
from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.harness import Bench, bench, histories

TEXTS = ("a cat", "a car", "a cart", "dog", "do")


def ask(made: Bench, question: Text, job: str = "job") -> dict[str, Any]:
    made.ask(job, "x", question)
    made.run()
    return dict(made.body(job)["answers"][question.name])


def test_of_a_list_every_probability_is_that_of_the_whole_tree(tokenizer: ChatTokenizer) -> None:
    """Against the tree walked by hand: at each place, what the model says among all that goes on with a text."""
    made = bench(tokenizer, num_pages=512, sliding_pages=500)
    question = Text("t", "What?", one_of=TEXTS)
    origin = made.ask("job", "x", question)
    made.run()
    answer = made.body("job")["answers"]["t"]
    paths = {text: [*tokenizer.encode(text), tokenizer.end] for text in TEXTS}
    expected = {}
    for text, path in paths.items():
        history, p = histories(made.engine.composer, origin)["t"], 1.0
        for at, token in enumerate(path):
            ids = sorted({other[at] for other in paths.values() if other[:at] == path[:at]})
            p *= softmax(drawn_logits(history, tokenizer.vocab_size)[ids], 1.0)[ids.index(token)]
            history = chain(history, token)
        expected[text] = float(p)
    assert answer["probabilities"] == pytest.approx(expected, abs=1e-6)
    assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-6)
    assert answer["text"] == max(expected, key=expected.__getitem__)
    assert answer["probability"] == answer["probabilities"][answer["text"]]
    assert answer["logprob"] == pytest.approx(math.log(answer["probability"]))
    assert made.body("job")["usage"]["steps"] == 1, "every place is read at once"


def test_of_a_list_of_one_it_is_certain(tokenizer: ChatTokenizer) -> None:
    answer = ask(bench(tokenizer), Text("t", "What?", one_of=("only",)))
    assert (answer["text"], answer["probability"]) == ("only", 1.0)


def test_only_the_places_where_texts_part_are_read(tokenizer: ChatTokenizer) -> None:
    reader = OneOfReader(Text("t", "?"), TEXTS, tokenizer)
    paths = ["".join(tokenizer.decode([token]) for token in want.path) for want in reader.begin()]
    assert sorted(paths) == ["", "a ca", "a car", "do"]


def test_two_texts_of_the_same_tokens_are_refused(tokenizer: ChatTokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "encode", lambda text: [20])
    with pytest.raises(NoText, match="same tokens"):
        OneOfReader(Text("t", "?"), ("a", "b"), tokenizer)


PATTERNS = [r"[A-Z]{2}-\d{3}", r"(red|green|blue)", r"[0-9]+(\.[0-9]{2})? (EUR|USD)", r"[a-c]{2,4}", r"é?x"]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_of_a_pattern_the_text_matches_it(tokenizer: ChatTokenizer, pattern: str) -> None:
    made = bench(tokenizer, num_pages=512, sliding_pages=500)
    for i in range(5):
        answer = ask(made, Text("t", f"What? {i}", 40, pattern=pattern), f"job {i}")
        assert answer["truncated"] is (re.fullmatch(pattern, answer["text"]) is None)
        assert 0 < answer["probability"] <= 1
        assert answer["logprob"] == pytest.approx(math.log(answer["probability"]))
    assert made.events, "it is streamed as any text"
    assert not answer["truncated"] or pattern == PATTERNS[2]  # digits without an end


def test_of_a_pattern_each_token_is_the_likeliest_that_is_allowed(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    question = Text("t", "What?", 8, pattern="[ab]{3}")
    origin = made.ask("job", "x", question)
    made.run()
    history, said, p = histories(made.engine.composer, origin)["t"], "", 1.0
    for _ in range(3):
        ids = [i for i in range(tokenizer.vocab_size) if tokenizer.decode([i]) in ("a", "b")]
        logits = drawn_logits(history, tokenizer.vocab_size)[ids]
        token = ids[int(logits.argmax())]
        p *= float(softmax(logits, 1.0).max())
        said += tokenizer.decode([token])
        history = chain(history, token)
    answer = made.body("job")["answers"]["t"]
    assert (answer["text"], answer["truncated"]) == (said, False)
    assert answer["probability"] == pytest.approx(p, rel=1e-5)
    assert made.body("job")["usage"]["output_tokens"] == 3, "nothing can follow: the end is not asked for"


def test_a_text_that_is_cut_says_so(tokenizer: ChatTokenizer) -> None:
    answer = ask(bench(tokenizer), Text("t", "What?", 4, pattern="[a-z]{20}"))
    assert (len(answer["text"]), answer["truncated"]) == (4, True)
    whole = ask(bench(tokenizer), Text("t", "What?", 4, pattern="[a-z]{4,20}"))
    assert (len(whole["text"]), whole["truncated"]) == (4, False)


@pytest.mark.parametrize("pattern", ["(", "[z-a]", r"(.*)\1", "(?=a)b", "[^\x00-\U0010ffff]"])
def test_what_is_no_expression_or_allows_nothing_is_refused(tokenizer: ChatTokenizer, pattern: str) -> None:
    made = bench(tokenizer)
    with pytest.raises(Unanswerable, match="question 't': the pattern") as caught:
        made.engine.composer.compose(made.ask("job", "x", Text("t", "What?", pattern=pattern)))
    assert caught.value.to_error()["loc"] == ["questions", "t", "text"]


HOSTILE = ["(a*)*b", "(a|a)*" * 50 + "b", "((a{0,100}){0,100}){0,100}", "(a?){500}a{500}", ".{0,10000}x",
           r"(\w{1,60}[,.]){1,60}z", ".*(a|b).{12}"]  # fmt: skip


@pytest.mark.parametrize("pattern", HOSTILE)
def test_a_hostile_expression_costs_little_and_ends(tokenizer: ChatTokenizer, pattern: str) -> None:
    """Time of this thread alone, and far above what it takes: what is bounded must not be a minute."""
    patterns = Patterns(tokenizer)
    patterns.matcher("a")
    began = time.thread_time()
    try:
        matcher = patterns.matcher(pattern)
        for _ in range(64):
            allowed = np.flatnonzero(matcher.allowed)
            if matcher.complete:
                break
            matcher.say(int(allowed[allowed != tokenizer.end][0]))
    except NoText:
        pass
    assert time.thread_time() - began < 5
