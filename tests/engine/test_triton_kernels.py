"""The whole decoder through the Triton kernels against the reference, and a row's bits through all of it.

Tolerances: in float32 both sides sum in other orders, 1e-4 as against transformers (3e-5 seen); in bfloat16 every
intermediate is rounded to 8 bits, and on logits of spread 2 differences of 0.37 at most and 0.05 on average were seen.
Bits are compared on sequences that are short, with attention tiles to match: the interpreter is slow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.engine.interpreter import DEVICE, ON_GPU

# isort: split
from photocall_engine.kernels import HeadShape, UnsupportedDevice, choose, find_device, triton_experts
from photocall_engine.kernels.reference import ReferenceKernels
from photocall_engine.kernels.tiles import VisibleRows
from photocall_engine.kernels.triton_attention import AttentionTile
from photocall_engine.kernels.triton_kernels import TritonKernels
from photocall_engine.rows import PAGE_SIZE
from photocall_engine.torch_runner import TorchRunner
from photocall_engine.words import Words
from tests.engine.checkpoints import (
    BEGIN,
    DENSE,
    END,
    ETYPE,
    EXPERTS,
    FULL,
    IMAGE,
    SLIDING,
    VISION,
    make_checkpoint,
    random_image,
)
from tests.engine.rows_helper import Pager, Prompt, put_images, rows

LABELS = np.arange(3, 20, dtype=np.int32)
MINI = Path(__file__).parents[2] / "models" / "mini"
SMALL = AttentionTile(16, 16, 256, warps=4, stages=2)  # several splits in a short sequence
TINY = DENSE | {"num_hidden_layers": 2, "layer_types": [SLIDING, FULL]}
TINY_ETYPE = ETYPE | {"num_hidden_layers": 3, "layer_types": [SLIDING, FULL, FULL], "num_kv_shared_layers": 1}
TINY_EXPERTS = EXPERTS | {"num_hidden_layers": 2, "layer_types": [SLIDING, FULL]}
KINDS = {"dense": TINY, "e-type": TINY_ETYPE, "experts": TINY_EXPERTS}


def load(directory: Path, kind: Any = "triton", dtype: torch.dtype = torch.float32, **fields: Any) -> TorchRunner:
    sizes: dict[str, Any] = {"num_pages": 60, "sliding_pages": 59, "max_rows": 512, "soft_capacity": 160} | fields
    place = DEVICE if kind == "triton" else "cpu"
    runner = TorchRunner.load(directory, device=place, kind=kind, dtype=dtype, threads=1, **sizes)
    if isinstance(runner.kernels, TritonKernels):
        runner.kernels._tile = SMALL
    return runner


@pytest.fixture(scope="module", params=KINDS)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp(request.param), KINDS[request.param], VISION).directory


def random_tokens(count: int, seed: int = 0) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, IMAGE, count)]


def picture_prompt(runner: TorchRunner, length: int = 14) -> Prompt:
    """A word, a picture of one soft token, then more words."""
    put_images(runner, [random_image(1, 3, 3)])
    return Prompt([5, BEGIN, IMAGE, END, *random_tokens(length - 4)], [(2, 1, 0)])


def every_logit(runner: TorchRunner) -> Any:
    """Some of a prompt with a picture whose last rows come in a second forward."""
    prompt = Pager(runner).place(picture_prompt(runner, 11))
    runner.forward(rows(runner, [(prompt, 0, 9)], read=[4, 7, 8]))
    before = runner.logits_rows(np.arange(3, dtype=np.int32))
    runner.forward(rows(runner, [(prompt, 9, 11)]))
    return np.concatenate((before, runner.logits_rows(np.arange(2, dtype=np.int32))))


def test_the_decoder_in_float32(directory: Path) -> None:
    truth, found = every_logit(load(directory, "reference")), every_logit(load(directory))
    assert truth.std() > 1
    assert np.abs(found - truth).max() < 1e-4


def test_the_decoder_in_bfloat16(tmp_path: Path) -> None:
    made = make_checkpoint(tmp_path, TINY_ETYPE, VISION).directory
    truth = every_logit(load(made, "reference"))
    found = every_logit(load(made, dtype=torch.bfloat16))
    assert np.abs(found - truth).max() < 0.6
    assert np.abs(found - truth).mean() < 0.08


def test_the_shipped_model() -> None:
    """Its real weights, in bfloat16 as a GPU runs them: the same answer."""
    if not list(MINI.glob("*.safetensors")):
        pytest.skip("models/mini holds no weights")
    found = []
    for kind, dtype in (("reference", torch.float32), ("triton", torch.bfloat16)):
        runner = load(MINI, kind, dtype, max_rows=16)
        prompt = Pager(runner).place(Prompt([2, 50, 60, 70, 80, 90]))
        runner.forward(rows(runner, [(prompt, 0, 6)], read=[5]))
        found.append(runner.letter_logits(np.zeros(1, dtype=np.int32), LABELS)[0])
    shares = [np.exp(logits) / np.exp(logits).sum() for logits in found]
    assert np.abs(shares[0] - shares[1]).max() < 0.02
    assert found[0].std() > 0.1


def letters(runner: TorchRunner, parts: list[tuple[Prompt, int, int]], row: int, **options: Any) -> bytes:
    runner.forward(rows(runner, parts, read=[row], **options))
    return runner.letter_logits(np.zeros(1, dtype=np.int32), LABELS).tobytes()


def test_the_same_bits_alone_in_a_crowd_chunked_cached_and_recomputed(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What `test_bits` asks of the engine, asked of a small decoder row by row."""
    made = make_checkpoint(tmp_path_factory.mktemp("bits"), TINY, VISION).directory
    runner = load(made)
    pager = Pager(runner)
    prompt = picture_prompt(runner, 27)  # longer than the window and the page, which is a split
    end = len(prompt.tokens)

    def fresh() -> Prompt:
        return pager.place(Prompt(prompt.tokens, prompt.spans))

    alone = letters(runner, [(fresh(), 0, end)], end - 1)
    other = pager.place(Prompt(random_tokens(3, seed=1)))
    chunked = fresh()
    runner.forward(rows(runner, [(chunked, 0, 18)], read=[]))
    assert letters(runner, [(other, 0, 3), (chunked, 18, end)], 3 + end - 19) == alone, "in chunks, among others"
    branch = pager.branch(Prompt(prompt.tokens[:25], prompt.spans, chunked.pages), prompt.tokens[25:])
    runner.copy_pages(np.asarray(chunked.pages[1:2], np.int32), np.asarray(branch.pages[1:2], np.int32))
    assert letters(runner, [(branch, 25, end)], end - 26) == alone, "behind a copied tail"

    shared = pager.branch(Prompt(prompt.tokens[:25], prompt.spans, fresh().pages), prompt.tokens[25:])
    parent = Prompt(prompt.tokens[:25], prompt.spans, [shared.pages[0], *pager.take(1)])
    extra = [(row, shared.pages[1] * PAGE_SIZE + row % PAGE_SIZE) for row in range(16, 25)]
    parts = [(parent, 0, 25), (shared, 25, end)]
    assert letters(runner, parts, end - 1, extra=extra) == alone, "a branch whose tail the same forward fills"
    assert letters(runner, [(other, 2, 3)], 0) != alone


def test_greedy_tokens_are_those_of_all_logits(directory: Path) -> None:
    runner = load(directory)
    prompt = Pager(runner).place(Prompt(random_tokens(5)))
    runner.forward(rows(runner, [(prompt, 0, 5)], read=[3, 4]))
    both = np.arange(2, dtype=np.int32)
    order = np.argsort(-runner.logits_rows(both), axis=1, kind="stable")
    assert runner.argmax_rows(both, [[], []]).tolist() == order[:, 0].tolist()
    assert runner.argmax_rows(both, [order[0, :3].tolist(), order[1, :1].tolist()]).tolist() == [
        order[0, 3],
        order[1, 1],
    ]


def test_routes() -> None:
    logits = torch.randn(7, 6, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    logits[2, 4] = logits[2, 1] = logits[2].max() + 1  # equal: the lower expert first
    logits[3] = 0.5
    scale = torch.rand(6, generator=torch.Generator().manual_seed(1)).to(DEVICE)
    expert, share = triton_experts.route(logits, scale, 3)
    wanted, wanted_share = ReferenceKernels().route(logits.cpu(), scale.cpu(), 3)
    assert torch.equal(expert.cpu().long(), wanted)
    assert expert[2, :2].tolist() == [1, 4]
    assert expert[3].tolist() == [0, 1, 2]
    assert (share.cpu() - wanted_share).abs().max() < 1e-6
    logits[0] = torch.nan
    lost, _ = triton_experts.route(logits, scale, 3)
    assert torch.equal(lost[1:], expert[1:])
    assert len(set(lost[0].tolist())) == 3, "a lost row still names experts that there are"
    assert int(lost.max()) < 6


def test_parts_without_room_are_walked_instead() -> None:
    """A long sequence whose parts do not fit is attended by one program for each tile."""
    kernels = TritonKernels(torch.device(DEVICE), torch.float32, part_room=3, tile=SMALL)
    hi = np.array([150], dtype=np.int32)
    visible = VisibleRows(np.zeros(1, np.int32), hi, np.zeros(1, np.int32), np.arange(1, 11, dtype=np.int32))
    words = Words(torch.device(DEVICE), 1024)
    words.begin()
    header = words.reserve(16)
    plan = kernels.plan_attention(visible, HeadShape(2, 1, 16), 11 * PAGE_SIZE, words, header)
    words.send()
    items, combined = words.view(header, 2).tolist()
    assert (items, combined) == (1, 0)
    assert len(plan.parts.sum) == 3


def test_fast_numerics_take_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    fast = TritonKernels(torch.device(DEVICE), torch.float32, numerics="fast")
    x, weight = torch.randn(5, 32, device=DEVICE), torch.randn(9, 32, device=DEVICE)
    asked: list[torch.dtype] = []
    library = torch.mm

    def counted(*args: Any, **options: Any) -> torch.Tensor:
        asked.append(args[0].dtype)
        return library(*args, **options)

    monkeypatch.setattr(torch, "mm", counted)
    assert (fast.linear(x, weight) - x @ weight.T).abs().max() < 1e-5
    half = fast.linear(x.bfloat16(), weight.bfloat16(), out_dtype=torch.float32)
    assert half.dtype == torch.float32
    assert (half - x.bfloat16().float() @ weight.bfloat16().float().T).abs().max() < 1e-4
    assert len(asked) == 2
    assert "fast" in fast.name


def test_choice(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    weights = [torch.randn(32, 16)]
    cpu = torch.device("cpu")
    assert isinstance(choose(cpu, weights, {16}), ReferenceKernels)
    if not ON_GPU:
        assert isinstance(choose(cpu, weights, {16}, kind="triton"), TritonKernels)
        with pytest.raises(UnsupportedDevice, match="sees no CUDA device"):
            find_device("cuda")
    assert "reference (cpu, float32" in caplog.text
    with pytest.raises(UnsupportedDevice, match="'tpu'"):
        find_device("tpu")
