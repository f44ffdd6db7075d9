"""The runner: a row's bits whatever its company, stale pages, extra writes, readouts, refusals."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from photocall_engine.greedy import pick_rows
from photocall_engine.kernels import UnsupportedDevice
from photocall_engine.kernels.reference import ReferenceKernels
from photocall_engine.reads import Reads, Values
from photocall_engine.rows import PAGE_SIZE, Ints, ints
from photocall_engine.torch_runner import TorchRunner
from tests.engine.checkpoints import (
    BEGIN,
    DENSE,
    END,
    ETYPE,
    EXPERTS,
    IMAGE,
    VISION,
    Checkpoint,
    make_checkpoint,
    random_image,
)
from tests.engine.rows_helper import Pager, Prompt, put_images, rows

LABELS = np.arange(3, 29, dtype=np.int32)
IMAGES = [random_image(1, 6, 9), random_image(3, 15, 18)]
Floats: TypeAlias = NDArray[np.float32]


@pytest.fixture(scope="module", params=["dense", "e-type"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    text = {"dense": DENSE, "e-type": ETYPE}[request.param]
    return make_checkpoint(tmp_path_factory.mktemp(request.param), text, VISION)


@pytest.fixture(autouse=True)
def restored_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def runner(checkpoint: Checkpoint) -> TorchRunner:
    return load(checkpoint)


def load(checkpoint: Checkpoint, threads: int = 1) -> TorchRunner:
    return TorchRunner.load(
        checkpoint.directory, num_pages=400, sliding_pages=399, max_rows=2048, soft_capacity=64, threads=threads
    )


def words(seed: int, count: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, IMAGE, count)]


def picture_prompt(runner: TorchRunner, seed: int = 0) -> Prompt:
    tokens, spans = words(seed, 5), []
    for image, base in zip(IMAGES, put_images(runner, IMAGES), strict=True):
        spans.append((len(tokens) + 1, image.num_soft, base))
        tokens += [BEGIN, *[IMAGE] * image.num_soft, END, *words(seed + 1, 12)]
    return Prompt(tokens, spans)


def letters(runner: TorchRunner, parts: list[tuple[Prompt, int, int]], row: int, **options: Any) -> Floats:
    """Letter logits of one row of a batch."""
    runner.forward(rows(runner, parts, read=[row], **options))
    found: Floats = runner.letter_logits(np.zeros(1, dtype=np.int32), LABELS)[0]
    return found


def last_row(parts: list[tuple[Prompt, int, int]]) -> int:
    return sum(end - start for _, start, end in parts) - 1


def crowd(pager: Pager, seed: int, count: int) -> list[tuple[Prompt, int, int]]:
    """Other people's prompts of 1 to 50 tokens."""
    lengths = np.random.default_rng(seed).integers(1, 50, count).tolist()
    prompts = [pager.place(Prompt(words(seed * 100 + i, length))) for i, length in enumerate(lengths)]
    return [(prompt, 0, len(prompt.tokens)) for prompt in prompts]


def test_the_same_bits_alone_in_a_crowd_chunked_cached_and_recomputed(runner: TorchRunner) -> None:
    pager = Pager(runner)
    prompt = picture_prompt(runner)
    length, last_span = len(prompt.tokens), prompt.spans[-1][0] + prompt.spans[-1][1]
    alone = letters(runner, [(pager.place(prompt), 0, length)], length - 1)
    assert np.ptp(alone) > 1

    def fresh() -> Prompt:
        return pager.place(Prompt(prompt.tokens, prompt.spans))

    others = crowd(pager, 1, 16)
    for place in (0, 1, 9, 16):
        parts = [*others[:place], (fresh(), 0, length), *others[place:]]
        row = last_row(parts[: place + 1])
        assert np.array_equal(letters(runner, parts, row), alone), f"in a crowd, at place {place}"

    for cuts in ([6, 21], [3, 25, last_span, length - 1], range(last_span, length)):
        chunked, edges = fresh(), [0, *cuts, length]
        for start, end in itertools.pairwise(edges):
            parts = [*crowd(pager, end, start % 3), (chunked, start, end)]
            found = letters(runner, parts, last_row(parts))
        assert np.array_equal(found, alone), f"chunked at {list(cuts)}"

    recomputed = fresh()
    letters(runner, [(recomputed, 0, 40)], 39)
    recomputed.pages = pager.take(len(recomputed.pages))  # preempted: its pages went to others
    assert np.array_equal(letters(runner, [(recomputed, 0, length)], length - 1), alone), "after a preemption"


def test_branches_have_the_bits_of_whole_prompts(runner: TorchRunner) -> None:
    """Questions behind one prefix, in its forward (tails by extra writes) or later (tails by copied pages)."""
    pager = Pager(runner)
    prefix = pager.place(picture_prompt(runner))
    start, full = len(prefix.tokens), len(prefix.tokens) // PAGE_SIZE * PAGE_SIZE
    assert start % PAGE_SIZE
    tails = [words(50 + i, 3 + 5 * i) for i in range(6)]
    alone = []
    for tail in tails:
        whole = pager.place(Prompt(prefix.tokens + tail, prefix.spans))
        alone.append(letters(runner, [(whole, 0, len(whole.tokens))], len(whole.tokens) - 1))

    branches = [pager.branch(prefix, tail) for tail in tails]
    extra = [(p, b.pages[p // PAGE_SIZE] * PAGE_SIZE + p % PAGE_SIZE) for b in branches for p in range(full, start)]
    parts = [(prefix, 0, start), *((branch, start, len(branch.tokens)) for branch in branches)]
    read = np.cumsum([end - begin for _, begin, end in parts])[1:] - 1
    runner.forward(rows(runner, parts, read=read.tolist(), extra=extra))
    together = runner.letter_logits(np.arange(len(tails), dtype=np.int32), LABELS)
    assert np.array_equal(together, np.stack(alone))

    warm = [pager.branch(prefix, tail) for tail in tails]
    frozen = np.full(len(warm), prefix.pages[full // PAGE_SIZE], dtype=np.int32)
    runner.copy_pages(frozen, np.asarray([b.pages[full // PAGE_SIZE] for b in warm], dtype=np.int32))
    for branch, expected in zip(warm, alone, strict=True):
        end = len(branch.tokens)
        assert np.array_equal(letters(runner, [(branch, start, end)], end - start - 1), expected)


def test_bits_at_every_place_of_a_tile(runner: TorchRunner) -> None:
    """One row after 0 to 70 others, so that it meets every place of a tile and several numbers of tiles."""
    pager = Pager(runner)
    prompt = pager.place(Prompt(words(7, 40)))
    other = pager.place(Prompt(words(8, 70)))
    letters(runner, [(prompt, 0, 39)], 38)
    alone = letters(runner, [(prompt, 39, 40)], 0)
    for count in range(1, 71):
        parts = [(other, 0, count), (prompt, 39, 40)]
        assert np.array_equal(letters(runner, parts, count), alone), f"after {count} rows"


def test_rows_routed_to_experts_keep_their_bits(tmp_path: Path) -> None:
    runner = load(make_checkpoint(tmp_path, EXPERTS, None))
    pager = Pager(runner)
    prompt = pager.place(Prompt(words(7, 30)))
    alone = letters(runner, [(prompt, 0, 30)], 29)
    others = crowd(pager, 3, 12)
    for count in (1, 3, 12):
        parts = [*others[:count], (prompt, 0, 30)]
        assert np.array_equal(letters(runner, parts, last_row(parts)), alone), f"with {count} others"
    letters(runner, [(prompt, 0, 29)], 28)
    assert np.array_equal(letters(runner, [(prompt, 29, 30)], 0), alone), "as a decode step"


@pytest.mark.parametrize("threads", [1, 2])
def test_bits_in_ever_larger_batches(checkpoint: Checkpoint, threads: int) -> None:
    """Bits are the same for one thread setting, whatever it is."""
    runner = load(checkpoint, threads)
    pager = Pager(runner)
    prompt = pager.place(Prompt(words(7, 30)))
    alone = letters(runner, [(prompt, 0, 30)], 29)
    others = crowd(pager, 3, 40)
    for count in (2, 11, 40):
        parts = [*others[:count], (prompt, 0, 30)]
        assert np.array_equal(letters(runner, parts, last_row(parts)), alone), f"with {count} others"


def test_stale_pages_never_leak(runner: TorchRunner) -> None:
    """Released pages hold anything, NaN for one; masked positions must not carry it into a sum."""
    pager = Pager(runner)
    prompt = picture_prompt(runner)
    length = len(prompt.tokens)
    expected = letters(runner, [(pager.place(prompt), 0, length)], length - 1)
    for layer in runner.config.text.layers:
        if layer.writes_kv:
            kv = runner.pools.layer(layer.index)
            kv.k[:, :-1] = torch.nan  # all but the slot of zeros
            kv.v[:, :-1] = torch.nan
    stale = pager.place(Prompt(prompt.tokens, prompt.spans))
    parts = [*crowd(pager, 5, 4), (stale, 0, length)]
    assert np.array_equal(letters(runner, parts, last_row(parts)), expected)


def test_sliding_pages_behind_the_window_are_not_needed(runner: TorchRunner) -> None:
    """A page that has left every window gives its sliding page back; the answer has the same bits."""
    pager = Pager(runner)
    prompt = pager.place(Prompt(words(4, 100)))
    letters(runner, [(prompt, 0, 99)], 98)
    expected = letters(runner, [(prompt, 99, 100)], 0)
    behind = (100 - runner.sliding_window) // PAGE_SIZE
    assert behind >= 2
    runner.set_sliding_map(ints(prompt.pages[:behind]), np.zeros(behind, dtype=np.int32))
    assert np.array_equal(letters(runner, [(prompt, 99, 100)], 0), expected)
    runner.set_sliding_map(ints(prompt.pages), np.zeros(len(prompt.pages), dtype=np.int32))
    assert not np.array_equal(letters(runner, [(prompt, 99, 100)], 0), expected)


def test_a_null_row_on_page_0_disturbs_nobody(runner: TorchRunner) -> None:
    pager = Pager(runner)
    prompt = pager.place(Prompt(words(4, 33)))
    expected = letters(runner, [(prompt, 0, 33)], 32)
    null = Prompt([0], pages=[0])
    parts = [(null, 0, 1), (null, 0, 1), (pager.place(Prompt(prompt.tokens)), 0, 33), (null, 0, 1)]
    assert np.array_equal(letters(runner, parts, 34), expected)


def test_linears_tile_by_tile_have_the_same_bits(checkpoint: Checkpoint) -> None:
    """Where a machine's BLAS fails the check at load, the slower form gives what the faster would."""
    runner = load(checkpoint)
    pager = Pager(runner)
    parts = crowd(pager, 6, 9)
    batch = rows(runner, parts)
    runner.forward(batch)
    wide = runner.letter_logits(np.arange(batch.num_rows, dtype=np.int32), LABELS)
    runner.decoder.kernels = ReferenceKernels(merged=False, narrow=False)
    runner.forward(batch)
    assert np.array_equal(runner.letter_logits(np.arange(batch.num_rows, dtype=np.int32), LABELS), wide)


def test_letters_do_not_depend_on_how_many_are_asked(checkpoint: Checkpoint) -> None:
    runner = load(checkpoint)
    parts = crowd(Pager(runner), 2, 5)
    batch = rows(runner, parts)
    runner.forward(batch)
    every = runner.letter_logits(np.arange(batch.num_rows, dtype=np.int32), LABELS)
    assert every.dtype == np.float32
    for row in (0, 17, batch.num_rows - 1):
        one = np.asarray([row], dtype=np.int32)
        assert np.array_equal(runner.letter_logits(one, LABELS[5:6])[0], every[row, 5:6])
        assert np.array_equal(runner.letter_logits(one, LABELS[::-1])[0], every[row, ::-1])
    full = runner.logits_rows(np.arange(batch.num_rows, dtype=np.int32))
    assert np.abs(full[:, LABELS] - every).max() < 1e-4  # another order of summation
    cap = runner.config.text.softcap
    assert cap is not None
    assert np.abs(full).max() < cap


def test_nobody_reads(checkpoint: Checkpoint) -> None:
    runner = load(checkpoint)
    prompt = Pager(runner).place(Prompt(words(1, 40)))
    runner.forward(rows(runner, [(prompt, 0, 39)], read=[]))
    none = np.zeros(0, dtype=np.int32)
    assert runner.letter_logits(none, LABELS).shape == (0, len(LABELS))
    assert runner.logits_rows(none).shape == (0, runner.config.text.vocab_size)
    assert runner.argmax_rows(none, []).shape == (0,)
    behind = letters(runner, [(prompt, 39, 40)], 0)
    whole = Pager(runner, first_page=100).place(Prompt(prompt.tokens))
    assert np.array_equal(letters(runner, [(whole, 0, 40)], 39), behind)


def test_greedy_tokens_skip_excluded_ids_and_ties_go_to_the_lowest(checkpoint: Checkpoint) -> None:
    runner = load(checkpoint)
    prompt = Pager(runner).place(Prompt(words(1, 20)))
    runner.forward(rows(runner, [(prompt, 0, 20)], read=[18, 19]))
    both = np.asarray([0, 1], dtype=np.int32)
    order = np.argsort(-runner.logits_rows(both), axis=1, kind="stable")
    assert runner.argmax_rows(both, [[], []]).tolist() == order[:, 0].tolist()
    excluded = [order[0, :3].tolist(), order[1, :1].tolist()]
    assert runner.argmax_rows(both, excluded).tolist() == [order[0, 3], order[1, 1]]
    with pytest.raises(ValueError, match="at most 3"):
        runner.argmax_rows(both, [[1, 2, 3, 4], []])
    winner, loser = sorted(order[0, [0, -1]].tolist())
    embedding = runner.decoder.weights.head
    embedding[loser] = embedding[winner] = embedding[order[0, 0]].clone()
    assert runner.argmax_rows(both[:1], [[]]).tolist() == [winner]


def test_the_next_token_is_the_likeliest_that_may_be_said(checkpoint: Checkpoint) -> None:
    runner = load(checkpoint)
    prompt = Pager(runner).place(Prompt(words(1, 20)))
    runner.forward(rows(runner, [(prompt, 0, 20)], read=[18, 19]))
    both = np.asarray([0, 1], dtype=np.int32)
    logits = runner.logits_rows(both)
    allowed = np.ones(runner.config.text.vocab_size - 3, dtype=np.bool_)
    allowed[logits.argmax(axis=1).clip(max=len(allowed) - 1)] = False
    runner.may_say(allowed)
    found = likeliest(runner, both)
    expected = pick_rows(logits, allowed)
    assert found.tokens.tolist() == expected[0].tolist()
    assert np.array_equal(found.logprobs, expected[1])
    alone = likeliest(runner, both[1:])
    assert (alone.tokens[0], alone.logprobs[0]) == (found.tokens[1], found.logprobs[1])
    assert likeliest(runner, both[:0]).tokens.shape == (0,)


def likeliest(runner: TorchRunner, of: Ints) -> Values:
    return runner.collect(runner.read(Reads(of[:0], of[:0], of, of[:0])))


def test_refusals_name_the_numbers(checkpoint: Checkpoint) -> None:
    runner = load(checkpoint)
    prompt = Pager(runner).place(Prompt(words(1, 20)))
    batch = rows(runner, [(prompt, 0, 20)])
    runner.max_rows = 19
    with pytest.raises(ValueError, match="20 rows in one forward, this runner takes 1 to 19"):
        runner.forward(batch)
    with pytest.raises(ValueError, match="not among the 0 read rows"):
        runner.letter_logits(np.zeros(1, dtype=np.int32), LABELS)
    with pytest.raises(ValueError, match="exceed the arena of 64"):
        runner.encode_images([IMAGES[1]], [40])
    with pytest.raises(UnsupportedDevice, match="'tpu'"):
        TorchRunner.load(checkpoint.directory, device="tpu", num_pages=4, sliding_pages=3, max_rows=4, soft_capacity=4)


def test_what_the_scheduler_is_told(checkpoint: Checkpoint, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    runner = load(checkpoint)
    assert "kernels: reference (cpu, float32)" in caplog.text
    assert (runner.num_pages, runner.sliding_pages, runner.sliding_window) == (400, 399, 24)
    assert runner.context == 4096
    assert not runner.enable_graphs()
    assert "graphs: off" in caplog.text
    runner.sync()


def test_a_token_that_was_just_picked_never_visits_the_host(checkpoint: Checkpoint) -> None:
    """The row behind it has the bits of one whose token is given; reads of two forwards are collected in turn."""
    runner = load(checkpoint)
    pager = Pager(runner)
    one, two = (pager.place(Prompt([*words(seed, 20), 0])) for seed in (1, 2))
    none = ints([])
    runner.forward(rows(runner, [(one, 0, 20), (two, 0, 20)], read=[19, 39]))
    first = runner.read(Reads(ints([0]), LABELS, ints([0, 1]), none))
    batch = rows(runner, [(two, 20, 21), (one, 20, 21)])
    unknown = replace(batch, from_row=ints([0, 1]), from_pick=ints([1, 0]))
    runner.forward(unknown)
    second = runner.read(Reads(none, none, ints([0, 1]), ints([1])))
    picked, found = runner.collect(first), runner.collect(second)
    assert picked.letters.shape == (1, len(LABELS))
    assert len(set(picked.tokens.tolist())) == 2, "equal ones would prove nothing"
    assert batch.tokens.tolist() == [0, 0]
    runner.forward(replace(batch, tokens=picked.tokens[::-1].copy()))
    given = runner.collect(runner.read(Reads(none, none, ints([0, 1]), ints([1]))))
    assert found.tokens.tolist() == given.tokens.tolist()
    assert found.logprobs.tobytes() == given.logprobs.tobytes()
    assert found.whole.tobytes() == given.whole.tobytes()
    assert found.finite
