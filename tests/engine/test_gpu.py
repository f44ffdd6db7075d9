"""What only a GPU can show: the runner on CUDA against the CPU, captured graphs against eager forwards, and bits.

Tolerances: bfloat16 against float32, as in `test_triton_kernels`. Everything else is compared byte by byte.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from photocall_engine.reads import Reads, Values
from photocall_engine.rows import PAGE_SIZE, RowBatch
from photocall_engine.runner import DeviceLost
from photocall_engine.torch_runner import TorchRunner
from tests.engine.checkpoints import BEGIN, DENSE, END, ETYPE, EXPERTS, IMAGE, VISION, make_checkpoint, random_image
from tests.engine.rows_helper import Pager, Prompt, put_images, rows

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

LABELS = np.arange(3, 29, dtype=np.int32)
KINDS = {"dense": DENSE, "e-type": ETYPE, "experts": EXPERTS}


@pytest.fixture(scope="module", params=KINDS)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp(request.param), KINDS[request.param], VISION).directory


def load(directory: Path, device: str = "cuda", **fields: Any) -> TorchRunner:
    sizes: dict[str, Any] = {"num_pages": 400, "sliding_pages": 399, "max_rows": 1024, "soft_capacity": 64}
    return TorchRunner.load(directory, device=device, **(sizes | fields))


def words(count: int, seed: int = 0) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, IMAGE, count)]


def picture_prompt(runner: TorchRunner) -> Prompt:
    image = random_image(1, 6, 9)
    put_images(runner, [image])
    return Prompt([5, BEGIN, *[IMAGE] * image.num_soft, END, *words(60)], [(2, image.num_soft, 0)])


def answers(runner: TorchRunner, batch: RowBatch) -> bytes:
    runner.forward(batch)
    return runner.letter_logits(np.arange(len(batch.read), dtype=np.int32), LABELS).tobytes()


def test_the_cpu_says_the_same(directory: Path) -> None:
    found = []
    for device in ("cpu", "cuda"):
        runner = load(directory, device)
        prompt = Pager(runner).place(picture_prompt(runner))
        runner.forward(rows(runner, [(prompt, 0, len(prompt.tokens))]))
        found.append(runner.logits_rows(np.arange(len(prompt.tokens), dtype=np.int32)))
    # a token near the border between two experts may go to the other one
    assert np.abs(found[0] - found[1]).mean() < (0.3 if "experts" in directory.name else 0.08)
    assert np.isfinite(found[1]).all()


def every_way(runner: TorchRunner) -> list[bytes]:
    """One prompt alone, among others, in chunks, behind a copied tail and as a branch: all the same answer."""
    pager = Pager(runner)
    prompt = picture_prompt(runner)
    end = len(prompt.tokens)

    def fresh() -> Prompt:
        return pager.place(Prompt(prompt.tokens, prompt.spans))

    def last(parts: list[tuple[Prompt, int, int]], **options: Any) -> bytes:
        return answers(runner, rows(runner, parts, read=[sum(b - a for _, a, b in parts) - 1], **options))

    others = [(pager.place(Prompt(words(n, n))), 0, n) for n in (3, 70, 190, 9)]
    found = [last([(fresh(), 0, end)]), last([*others, (fresh(), 0, end)])]
    chunked = fresh()
    for start, stop in ((0, 20), (20, 55)):
        runner.forward(rows(runner, [(chunked, start, stop)], read=[]))
    found.append(last([(chunked, 55, end)]))
    found.append(last([*others, (chunked, end - 1, end)]))
    cut = end - 3
    full = cut // PAGE_SIZE
    branch = pager.branch(Prompt(prompt.tokens[:cut], prompt.spans, chunked.pages), prompt.tokens[cut:])
    runner.copy_pages(
        np.asarray(chunked.pages[full : full + 1], np.int32), np.asarray(branch.pages[full : full + 1], np.int32)
    )
    found.append(last([(branch, cut, end)]))
    parent = fresh()
    child = pager.branch(Prompt(prompt.tokens[:cut], prompt.spans, parent.pages), prompt.tokens[cut:])
    extra = [(row, child.pages[full] * PAGE_SIZE + row % PAGE_SIZE) for row in range(full * PAGE_SIZE, cut)]
    found.append(last([(parent, 0, cut), (child, cut, end)], extra=extra))
    return found


def test_the_same_bits_every_way_and_from_graphs(directory: Path) -> None:
    runner = load(directory)
    eager = every_way(runner)
    assert set(eager) == {eager[0]}
    assert runner.enable_graphs()
    assert runner.graphs is not None
    assert every_way(runner) == eager
    assert runner.graphs.replays >= 6
    assert runner.graphs.misses == 0
    assert runner.tower is not None
    assert (runner.tower.replays, runner.tower.misses) == (1, 1)  # the eager round before had no bucket


def test_every_bucket_replays_what_eager_gives(directory: Path) -> None:
    runner = load(directory)
    pager = Pager(runner)
    prompts = [pager.place(Prompt(words(9, seed))) for seed in range(256)]
    everything = rows(runner, [(prompt, 0, 8) for prompt in prompts[:128]], read=[])
    rest = rows(runner, [(prompt, 0, 8) for prompt in prompts[128:]], read=[])
    runner.forward(everything)
    runner.forward(rest)
    sizes = (1, 2, 3, 8, 16, 33, 64, 128, 255, 256)
    decodes = {n: rows(runner, [(prompt, 8, 9) for prompt in prompts[:n]]) for n in sizes}
    eager = {n: answers(runner, batch) for n, batch in decodes.items()}
    assert runner.enable_graphs()
    for n, batch in decodes.items():
        assert answers(runner, batch) == eager[n], n


@pytest.mark.parametrize("graphs", [False, True])
def test_texts_go_on_before_their_tokens_are_known(directory: Path, graphs: bool) -> None:
    """Steps issued one ahead, each row's token where the last step picked it: the tokens of steps one at a time."""
    runner, steps, count = load(directory), 12, 20
    assert runner.enable_graphs() or not graphs
    if not graphs:
        runner.graphs = None
    pager = Pager(runner)
    prompts = [pager.place(Prompt([*words(20, seed), *[0] * steps])) for seed in range(count)]
    every = np.arange(count, dtype=np.int32)
    reads = Reads(every, LABELS, every, every[:1])

    def run(ahead: bool) -> list[Values]:
        readings, found, order = [], list[Values](), list(prompts)
        batch = rows(runner, [(prompt, 0, 20) for prompt in order], read=[20 * row + 19 for row in range(count)])
        for step in range(steps):
            if step:
                order.reverse()
                picks = every[::-1].copy()  # who was row i is row count - 1 - i now
                batch = rows(runner, [(prompt, 19 + step, 20 + step) for prompt in order])
                if ahead:
                    batch = replace(batch, from_row=every, from_pick=picks)
                else:
                    batch = replace(batch, tokens=found[-1].tokens[picks])
            runner.forward(batch)
            readings.append(runner.read(reads))
            if step or not ahead:
                found.append(runner.collect(readings.pop(0)))
        return [*found, *map(runner.collect, readings)]

    one_by_one, ahead = run(False), run(True)
    for step, (alone, together) in enumerate(zip(one_by_one, ahead, strict=True)):
        for part in ("letters", "tokens", "logprobs", "whole"):
            assert getattr(alone, part).tobytes() == getattr(together, part).tobytes(), (step, part)
    assert len({values.tokens.tobytes() for values in ahead}) > 2


def test_pictures_from_every_bucket_are_what_eager_gives(directory: Path) -> None:
    runner = load(directory, soft_capacity=400)
    images = [random_image(seed, 3 * (1 + seed % 5), 3 * (2 + seed % 4)) for seed in range(40)]
    bases = [0, *np.cumsum([image.num_soft for image in images]).tolist()]

    def soft(count: int) -> bytes:
        runner.arena.zero_()
        runner.encode_images(images[:count], bases[:count])
        return bytes(runner.arena[: bases[count]].view(torch.uint8).cpu().numpy().tobytes())

    counts = [count for count in range(1, 41, 3) if bases[count] <= 400]
    eager = {count: soft(count) for count in counts}
    assert runner.enable_graphs()
    for count in reversed(counts):
        assert soft(count) == eager[count], count
        assert eager[counts[-1]].startswith(eager[count]), "a picture's bits depend on those behind it"


def test_greedy_tokens_are_those_of_all_logits(directory: Path) -> None:
    runner = load(directory)
    prompt = Pager(runner).place(Prompt(words(40)))
    runner.forward(rows(runner, [(prompt, 0, 40)]))
    every = np.arange(40, dtype=np.int32)
    logits = runner.logits_rows(every)
    best = runner.argmax_rows(every, [[]] * 40)
    # full logits sum in another order than the rescoring: near ties may differ, by no more than that
    assert np.abs(logits[every, best] - logits.max(axis=1)).max() < 1e-3


def test_fast_numerics(directory: Path) -> None:
    runners = [load(directory), load(directory, numerics="fast")]
    found = []
    for runner in runners:
        prompt = Pager(runner).place(Prompt(words(40)))
        runner.forward(rows(runner, [(prompt, 0, 40)]))
        found.append(runner.logits_rows(np.arange(40, dtype=np.int32)))
    assert np.abs(found[0] - found[1]).mean() < (0.3 if "experts" in directory.name else 0.08)


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # torch says that it is a prototype
def test_forward_waits_for_nothing(directory: Path) -> None:
    """No call between the batch and its readout synchronises with the device."""
    runner = load(directory)
    prompt = Pager(runner).place(Prompt(words(40)))
    batch = rows(runner, [(prompt, 0, 40)], read=[39])
    runner.forward(batch)  # compiled and allocated
    runner.sync()
    torch.cuda.set_sync_debug_mode("error")
    try:
        runner.forward(batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    runner.sync()


def test_a_lost_device_is_said(directory: Path) -> None:
    """In a process of its own, since no other test could use the device afterwards."""
    program = (
        "import torch, sys\n"
        "from photocall_engine.device import device_errors\n"
        "from photocall_engine.runner import DeviceLost\n"
        "cuda = torch.device('cuda')\n"
        "try:\n"
        "    with device_errors(cuda):\n"
        "        x = torch.zeros(4, device=cuda)\n"
        "        x[torch.tensor([9], device=cuda)]\n"
        "        torch.cuda.synchronize()\n"
        "except DeviceLost as error:\n"
        "    print('lost:', error)\n"
        "    sys.exit(7)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 7, ended.stderr
    assert issubclass(DeviceLost, RuntimeError)
