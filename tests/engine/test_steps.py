"""The arrays of a step, where the fake runner cannot see them: bounds of picture rows, the order of reads, tails."""

from __future__ import annotations

import numpy as np
import pytest

from photocall.questions import Choice, Noul, Option, Text
from photocall_engine.rows import PAGE_SIZE
from photocall_engine.sequence import Request
from photocall_engine.steps import Step
from photocall_engine.tokenizer import ChatTokenizer
from tests.engine.harness import Bench, bench, choice, execute, picture


def plan(made: Bench) -> tuple[Step, Request]:
    """Compose and plan what was asked, without running it."""
    [origin] = made.take(1, 0)
    request = made.engine.composer.compose(origin)
    made.engine.scheduler.submit(request)
    step = made.engine.scheduler.plan(0.0)
    assert step is not None
    return step, request


@pytest.mark.parametrize("bidirectional", [True, False])
def test_picture_rows_see_to_the_end_of_their_picture_on_sliding_layers(
    tokenizer: ChatTokenizer, bidirectional: bool
) -> None:
    made = bench(tokenizer, bidirectional_images=bidirectional)
    made.ask(
        "job", {"a": "one", "b": "two"}, choice("c", "x", "y"), images={"one": picture(1), "two": picture(2, 9, 3)}
    )
    step, request = plan(made)
    batch = step.batch
    expected = batch.pos + 1
    for span in request.prefix.spans:
        assert batch.soft_idx[span.start : span.end].tolist() == [
            next(base for key, _, base in step.encode if key == span.key) + i for i in range(span.end - span.start)
        ]
        assert (batch.tokens[span.start : span.end] == tokenizer.image).all()
        if bidirectional:
            expected[span.start : span.end] = span.end
    assert batch.kv_hi_sliding.tolist() == expected.tolist()
    assert batch.kv_hi.tolist() == (batch.pos + 1).tolist()
    assert (batch.soft_idx >= 0).sum() == request.image_tokens


def test_a_tail_in_this_step_goes_to_every_question_by_extra_slots(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    made.ask("job", "x" * 25, Noul("a", "Is it?"), Noul("b", "Was it?"))
    step, request = plan(made)
    page, fill = divmod(request.prefix.end, PAGE_SIZE)
    assert fill > 0
    assert len(step.copy_from) == 0
    rows = list(range(page * PAGE_SIZE, request.prefix.end))
    assert step.batch.extra_row.tolist() == rows * 2
    tails = [branch.base.table.pages[page] for branch in request.branches]
    assert step.batch.extra_slot.tolist() == [tail * PAGE_SIZE + i for tail in tails for i in range(fill)]
    assert len({request.prefix.table.pages[page], *tails}) == 3
    shared = [branch.base.table.pages[:page] for branch in request.branches]
    assert shared == [request.prefix.table.pages[:page]] * 2


def test_a_tail_written_before_is_copied(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer, token_budget=40)
    made.ask("job", "x" * 20, *(Noul(f"q{i}", "Is it?") for i in range(4)))
    step, request = plan(made)
    page = request.prefix.end // PAGE_SIZE
    while request.prefix.remaining or not (begun := [p.sequence for p in step.parts if p.sequence.computed == 0]):
        execute(made.runner, made.engine.scheduler, step)
        following = made.engine.scheduler.plan(0.0)
        assert following is not None
        step = following
    assert step.copy_from.tolist() == [request.prefix.table.pages[page]] * len(begun)
    assert step.copy_to.tolist() == [sequence.table.pages[page] for sequence in begun]
    assert len(step.batch.extra_row) == 0


def test_a_fork_gets_the_tail_of_its_question_and_of_the_prefix(tokenizer: ChatTokenizer) -> None:
    """All three on one page: rows of the prefix and of the question go to the fork's own page too."""
    made = bench(tokenizer, num_pages=600, sliding_pages=599, token_budget=2048)
    made.ask("job", "x", Choice("c", None, tuple(Option(f"{i}") for i in range(30))))
    step, request = plan(made)
    [branch] = request.branches
    assert len(branch.forks) == 2
    for fork in branch.forks:
        page, fill = divmod(fork.start, PAGE_SIZE)
        own = [
            (int(row), int(slot))
            for row, slot in zip(step.batch.extra_row, step.batch.extra_slot, strict=True)
            if slot // PAGE_SIZE == fork.table.pages[page]
        ]
        assert [slot % PAGE_SIZE for _, slot in own] == list(range(fill))
        assert [step.batch.pos[row] for row, _ in own] == list(range(page * PAGE_SIZE, fork.start))


def test_reads_ascend_and_belong_to_their_readers(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    made.ask("job", "x", Noul("a", "Is it?"), choice("b", "x", "y"), Text("t", "Say"))
    step, _ = plan(made)
    assert np.all(np.diff(step.batch.read) > 0)
    for row, part in zip(step.batch.read.tolist(), step.readers, strict=True):
        assert step.batch.tokens[row] == part.sequence.tokens[-1]
        assert step.batch.pos[row] == part.sequence.end - 1
    assert not step.batch.decode


def test_a_step_of_last_rows_only_is_a_decode(tokenizer: ChatTokenizer) -> None:
    made = bench(tokenizer)
    made.ask("job", "x", Text("t", "Say", 20), Text("u", "Say more", 20))
    made.step()
    step = made.engine.scheduler.plan(0.0)
    assert step is not None
    assert step.batch.decode
    assert step.batch.num_rows == 2
