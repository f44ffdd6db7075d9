"""Buckets of graphs on the CPU, where the same work runs over the same buffers: the same bits as without, and nothing
moves. With the reference kernels, since none of this is about arithmetic."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from photocall_engine import graphs as graphs_file
from photocall_engine.graphs import READ_BUCKETS, Graphs, null_batch
from photocall_engine.kernels.tiles import VisibleRows
from photocall_engine.reads import Reads
from photocall_engine.row_buffers import RowBuffers, RowShape
from photocall_engine.rows import PAGE_SIZE, RowBatch
from photocall_engine.torch_runner import TorchRunner
from photocall_engine.words import Words
from tests.engine.checkpoints import DENSE, ETYPE, EXPERTS, IMAGE, VISION, make_checkpoint
from tests.engine.rows_helper import Pager, Prompt, rows

LABELS = np.arange(3, 29, dtype=np.int32)


@pytest.fixture(scope="module", params=["dense", "e-type", "experts"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    text = {"dense": DENSE, "e-type": ETYPE, "experts": EXPERTS}[request.param]
    return make_checkpoint(tmp_path_factory.mktemp(request.param), text, VISION).directory


@pytest.fixture
def runner(directory: Path) -> TorchRunner:
    return TorchRunner.load(directory, num_pages=300, sliding_pages=299, max_rows=300, soft_capacity=64, threads=1)


def with_graphs(runner: TorchRunner, words: int = 1 << 16) -> Graphs:
    with torch.inference_mode():
        runner.graphs = Graphs(runner.decoder, runner.pools, runner.arena, runner._picked, runner.max_rows, words)
    return runner.graphs


def prompt(pager: Pager, length: int, seed: int = 0) -> Prompt:
    tokens = np.random.default_rng(seed).integers(3, IMAGE, length).tolist()
    return pager.place(Prompt([int(token) for token in tokens]))


def answers(runner: TorchRunner, batch: RowBatch) -> bytes:
    runner.forward(batch)
    return runner.letter_logits(np.arange(len(batch.read), dtype=np.int32), LABELS).tobytes()


def batches(runner: TorchRunner) -> list[RowBatch]:
    """A prompt in two parts beside another one, decode rows of both, and a branch whose tail the same forward fills."""
    pager = Pager(runner)
    one, two = prompt(pager, 90), prompt(pager, 7, seed=1)
    full = Prompt(one.tokens[:40], pages=one.pages)
    branch = pager.branch(full, [5, 6, 7])
    parent = Prompt(full.tokens, pages=[*branch.pages[:2], *pager.take(1)])
    extra = [(row, branch.pages[2] * PAGE_SIZE + row % PAGE_SIZE) for row in range(32, 40)]
    return [
        rows(runner, [(one, 0, 50)], read=[]),
        rows(runner, [(two, 0, 6), (one, 50, 89)], read=[5, 20, 44]),
        rows(runner, [(one, 89, 90), (two, 6, 7)]),
        rows(runner, [(parent, 0, 40), (branch, 40, 43)], read=[39, 42], extra=extra),
        rows(runner, [(two, 6, 7)]),
    ]


def test_a_bucket_gives_the_bits_of_a_plain_forward(runner: TorchRunner) -> None:
    plain = [answers(runner, batch) for batch in batches(runner)]
    graphs = with_graphs(runner)
    for layer in runner.config.text.layers:
        if layer.writes_kv:
            runner.pools.layer(layer.index).k[:, PAGE_SIZE:-1] = torch.nan  # nothing is left of the first round
    assert [answers(runner, batch) for batch in batches(runner)] == plain
    assert (graphs.replays, graphs.misses) == (5, 0)
    assert len(set(plain[1:])) == 4


def test_a_bucket_takes_tokens_that_were_just_picked(runner: TorchRunner) -> None:
    """They are put in front of the graph, which reads them where it reads any."""
    pager = Pager(runner)
    one = prompt(pager, 40)
    one.tokens.append(0)
    every, zero = np.asarray([0], np.int32), np.zeros(0, np.int32)
    graphs = with_graphs(runner)

    def said(batch: RowBatch) -> tuple[int, bytes]:
        runner.forward(batch)
        values = runner.collect(runner.read(Reads(every, LABELS, every, zero)))
        return int(values.tokens[0]), values.letters.tobytes()

    token, _ = said(rows(runner, [(one, 0, 40)], read=[39]))
    batch = rows(runner, [(one, 40, 41)])
    found = said(replace(batch, from_row=every, from_pick=every))
    assert found == said(replace(batch, tokens=np.asarray([token], np.int32)))
    assert found[1] != said(replace(batch, tokens=np.asarray([token ^ 1], np.int32)))[1]
    assert graphs.replays == 4


@pytest.fixture
def few_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner of these tests has fewer rows than the largest bucket of reads."""
    monkeypatch.setattr(graphs_file, "READ_BUCKETS", READ_BUCKETS[: READ_BUCKETS.index(256) + 1])


@pytest.mark.usefixtures("few_reads")
def test_the_smallest_bucket_that_holds_a_batch(runner: TorchRunner) -> None:
    graphs = with_graphs(runner)
    assert graphs.row_buckets == (16, 64, 128, 192, 256, 304)  # multiples of the reference's tile, up to max_rows
    shapes = [graphs.shape_of(batch) for batch in batches(runner)]
    assert [shape and (shape.rows, shape.reads) for shape in shapes] == [
        (64, 0),
        (64, 16),
        (16, 16),
        (64, 16),
        (16, 16),
    ]
    assert all(shape is not None and shape.planned == shape.rows for shape in shapes)
    long = prompt(Pager(runner, first_page=100), 280)
    every_row = graphs.shape_of(rows(runner, [(long, 0, 280)]))
    assert every_row is None, "more reads than the largest bucket of reads"


@pytest.mark.usefixtures("few_reads")
def test_what_finds_no_bucket_runs_without(runner: TorchRunner) -> None:
    """Too many reads, or more words than the buffers hold: the plain forward answers, with the same bits."""
    long = prompt(Pager(runner), 290)
    batch = rows(runner, [(long, 0, 290)], read=range(280))
    plain = answers(runner, batch)
    graphs = with_graphs(runner)
    assert answers(runner, batch) == plain
    few = rows(runner, [(long, 0, 20)], read=[19])
    plain = answers(runner, few)
    small = with_graphs(runner, words=256)
    assert answers(runner, few) == plain
    assert (graphs.misses, small.misses, small.replays) == (1, 1, 0)


def test_nothing_moves_between_batches_of_a_bucket(runner: TorchRunner) -> None:
    """What a captured graph would read lies where it lay; the upper part's arrays even across buckets of rows."""
    graphs = with_graphs(runner)
    small, large = RowShape(16, 16, 16, 16, 32), RowShape(64, 64, 96, 16, 32)

    def places(batch: RowBatch, shape: RowShape) -> tuple[list[int], list[int]]:
        with torch.inference_mode():
            found = graphs._buffers.fill(batch, shape)
        lower = [found.tokens, found.pos, found.soft_idx, found.write_row, *(k.slot for k in found.kinds.values())]
        upper = [found.read, found.read_pos, found.read_place]
        return [tensor.data_ptr() for tensor in lower], [tensor.data_ptr() for tensor in upper]

    made = batches(runner)
    first = places(null_batch(), large)
    assert places(made[1], large) == first == places(made[3], large)
    assert places(made[2], small)[1] == first[1]
    assert places(made[2], small)[0] != first[0]


def test_a_decode_plans_its_attention_once_for_each_kind(runner: TorchRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows and its read rows are the same ones."""
    graphs, planned, plan = with_graphs(runner), [], runner.kernels.plan_attention

    def counting(visible: VisibleRows, *arguments: Any) -> Any:
        planned.append(len(visible.lo))
        return plan(visible, *arguments)

    monkeypatch.setattr(runner.kernels, "plan_attention", counting)
    made = batches(runner)
    kinds = len(graphs._buffers._shapes)
    runner.forward(made[2])
    assert planned == [16] * kinds
    runner.forward(made[1])
    assert len(planned) > 2 * kinds


def test_null_rows_are_on_page_0(runner: TorchRunner) -> None:
    pager = Pager(runner)
    batch = rows(runner, [(prompt(pager, 20), 0, 20)], read=[19])
    words = Words(torch.device("cpu"), 1 << 14)
    with torch.inference_mode():
        buffers = RowBuffers(
            runner.config.text, runner.pools, runner.kernels, words, runner._picked, 64, runner.sliding_window
        )
        found = buffers.fill(batch, RowShape(32, 32, 40, 16, 16))
    assert set(found.tokens[20:].tolist()) == set(found.pos[20:].tolist()) == {0}
    assert set(found.soft_idx[20:].tolist()) == {-1}
    for kind in found.kinds.values():
        assert set(kind.slot[20:32].tolist()) == {0}
        assert set(kind.slot[32:].tolist()) == {1}, "extra writes to spare go where no null row looks"
        assert (kind.slot[:20] >= PAGE_SIZE).all()
    assert found.write_row[:32].tolist() == list(range(32))
    with pytest.raises(ValueError, match="do not fit"):
        buffers.fill(batch, RowShape(16, 16, 16, 16, 16))


def test_the_cpu_captures_nothing(runner: TorchRunner, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    assert not runner.enable_graphs()
    assert runner.graphs is None
    assert "graphs: off, the CPU has none to capture" in caplog.text
