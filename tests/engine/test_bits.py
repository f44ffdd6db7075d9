"""The same request, the same bits: alone, in a crowd, in chunks, behind a cached prefix, after a preemption, and beside
requests that fail or leave.

Through the whole engine and the real runner, on small random checkpoints and on the shipped model; one thread setting.
What is compared are the values every reader got (letter logits, whole rows of logits), byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from transformers import Gemma4Config, Gemma4ForConditionalGeneration

from photocall.asking import Abstain, After, Asking
from photocall.questions import Noul, Number, Question, Score, Text
from photocall_engine.edges import Cancelled, Refused
from photocall_engine.readout import Floats
from photocall_engine.runner import PatchImage
from photocall_engine.sequence import Request
from photocall_engine.steps import Step
from photocall_engine.tokenizer import ChatTokenizer
from photocall_engine.torch_runner import TorchRunner
from photocall_engine.window import pages_for
from tests.engine.checkpoints import DENSE, ETYPE, VISION, randomise
from tests.engine.harness import NUM_TOKENS, PICTURE_MARKS, Bench, choice, picture, write_tokenizer

MINI = Path(__file__).parents[2] / "models" / "mini"
KINDS = {"dense": DENSE, "etype": ETYPE}
UNSURE = Abstain(cannot_tell=True, label_mass=0.1)
Bits = dict[tuple[str, tuple[int, ...]], bytes]  # by question and path

STATE = {"rules": "Look at both and answer for what is on the left. ", "left": "img-1", "right": "img-2"}
IMAGES = {"img-1": picture(1, 9, 12), "img-2": picture(2, 6, 6)}
QUESTIONS: tuple[Question, ...] = (
    choice("c", "red", "green", "blue"),
    Noul("n", "Is img-2 the larger one?"),
    Score("s", "How sure?", ("not", "somewhat", "very")),
    Number("k", "How many?", 0, 40, 1),
    Text("t", "What is it?", 6),
    replace(choice("d", "red", "green", "blue"), asking=Asking("debias", UNSURE)),
    replace(choice("m", "red", "green", "blue"), asking=Asking(abstain=Abstain(label_mass=0.1))),
    replace(choice("a", "red", "green"), asking=Asking("auto", after=After("f", True))),
    Noul("f", "Is it so?", asking=Asking("debias")),
    Number("v", "How many?", 0, 9, 1, asking=Asking(abstain=UNSURE)),
    Text("o", "What is it?", one_of=("a cat", "a car", "a dog")),
    Text("p", "What is it?", 5, pattern="[a-f]{3}[0-9]?", asking=Asking(abstain=UNSURE)),
)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Bits are promised for one thread setting."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=[*KINDS, *(["mini"] if list(MINI.glob("*.safetensors")) else [])])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with weights and a tokenizer."""
    if request.param == "mini":
        return MINI
    directory = tmp_path_factory.mktemp(request.param)
    sizes = {"vocab_size": NUM_TOKENS, "vocab_size_per_layer_input": NUM_TOKENS}
    others = {"video_token_id": 300, "audio_token_id": 301, "boa_token_id": 302, "eoa_token_index": 303}
    settings: dict[str, Any] = PICTURE_MARKS | others
    torch.manual_seed(1)
    config = Gemma4Config(text_config=KINDS[request.param] | sizes, vision_config=dict(VISION), **settings)
    model = Gemma4ForConditionalGeneration(config)
    randomise(model)
    model.save_pretrained(directory, max_shard_size="100KB")
    return write_tokenizer(directory)


class Recorded:
    """A bench on the real runner that keeps what every reader of a job got, and how often a job was preempted."""

    def __init__(self, checkpoint: Path, num_pages: int = 400, ahead: bool = True, **fields: Any) -> None:
        runner = TorchRunner.load(
            checkpoint, num_pages=num_pages, sliding_pages=max(40, num_pages - 1), max_rows=2048, soft_capacity=512
        )
        runner.overlaps = ahead  # on a CPU too: the next step is issued before the last one's values are known
        self.bench = Bench(runner, ChatTokenizer(checkpoint), **fields)
        self.bits: dict[str, Bits] = {}
        self.preempted: list[str] = []
        scheduler = self.bench.engine.scheduler
        account, preempt = scheduler.account, scheduler._preempt

        def recording(step: Step, values: Iterable[Floats], now: float) -> list[Request]:
            values = list(values)
            for part, value in zip(step.readers, values, strict=True):
                assert part.branch is not None
                if part.awaited:
                    name, variant = part.branch.question.name, part.branch.variant
                    key = f"{name}#{variant}" if variant else name, part.sequence.path
                    self.bits.setdefault(part.request.job_id, {})[key] = value.tobytes()
            return account(step, values, now)

        def counting(request: Request, draft: Any) -> None:
            self.preempted.append(request.job_id)
            preempt(request, draft)

        scheduler.account = recording  # type: ignore[method-assign]
        scheduler._preempt = counting  # type: ignore[method-assign]

    def ask(self, job_id: str, images: Mapping[str, PatchImage] = IMAGES, **fields: Any) -> None:
        self.bench.ask(job_id, STATE, *QUESTIONS, images=dict(images), **fields)


@pytest.fixture(scope="module")
def alone(checkpoint: Path) -> Bits:
    """What the request reads alone, in one chunk, with nothing cached, each step planned when the last is known."""
    made = Recorded(checkpoint, token_budget=1500, ahead=False)
    made.ask("job")
    made.bench.run()
    bits = made.bits["job"]
    assert {name for name, _ in bits} >= {"c", "n", "s", "k", "t", "d", "d#1", "d#2", "m", "f", "f#1", "v", "o", "p"}
    assert bits["m", ()][: len(bits["c", ()])] == bits["c", ()], "weighed beside the rest, letters keep their bits"
    letters = [np.frombuffer(bits[name, ()], dtype=np.float32) for name in ("c", "n", "s")]
    assert all(values.std() > 1e-3 for values in letters), "logits that are all equal would prove nothing"
    return bits


def test_with_steps_planned_ahead(checkpoint: Path, alone: Bits) -> None:
    made = Recorded(checkpoint, token_budget=1500)
    made.ask("job")
    made.bench.run()
    assert made.bits["job"] == alone


def test_another_picture_gives_other_bits(checkpoint: Path, alone: Bits) -> None:
    made = Recorded(checkpoint, token_budget=1500)
    made.ask("job", images=IMAGES | {"img-1": picture(3, 9, 12)})
    made.bench.run()
    assert made.bits["job"]["c", ()] != alone["c", ()]


def test_among_sixteen(checkpoint: Path, alone: Bits) -> None:
    made = Recorded(checkpoint, token_budget=700, num_pages=900)
    for i in range(15):
        made.ask(f"other-{i}", images={"img-1": picture(10 + i, 6, 9), "img-2": picture(30 + i)})
        if i == 7:
            made.ask("job")
            made.bench.step()
    made.bench.run()
    assert made.bits["job"] == alone


@pytest.mark.parametrize("token_budget", [37, 64])
def test_in_chunks(checkpoint: Path, alone: Bits, token_budget: int) -> None:
    made = Recorded(checkpoint, token_budget=token_budget)
    made.ask("job")
    made.bench.run()
    assert made.bench.body("job")["usage"]["steps"] > 5
    assert made.bits["job"] == alone


def test_behind_a_cached_prefix(checkpoint: Path, alone: Bits) -> None:
    made = Recorded(checkpoint, token_budget=1500)
    made.ask("first")
    made.bench.run()
    made.ask("job")
    made.bench.run()
    assert made.bench.body("job")["usage"]["cached_rows"] > 20
    assert made.bits["job"] == alone


def test_behind_a_prefix_cached_up_to_the_second_picture(checkpoint: Path, alone: Bits) -> None:
    made = Recorded(checkpoint, token_budget=1500)
    made.ask("first", images=IMAGES | {"img-2": picture(5, 6, 6)})
    made.bench.run()
    made.ask("job")
    made.bench.run()
    usage = made.bench.body("job")["usage"]
    assert 0 < usage["cached_rows"] == usage["input_tokens"] - usage["prompt_rows"]
    assert usage["prompt_rows"] > IMAGES["img-2"].num_soft
    assert made.bits["job"] == alone


def test_after_a_preemption(checkpoint: Path, alone: Bits) -> None:
    """A batch request half way through its chunks gives its pages to an interactive one, and starts again."""
    roomy = Recorded(checkpoint)
    composed = roomy.bench.engine.composer.compose(roomy.bench.ask("job", STATE, *QUESTIONS, images=IMAGES))
    longest = max(branch.base.end + branch.reader.longest() for branch in composed.branches)
    made = Recorded(checkpoint, num_pages=pages_for(longest) + 5, token_budget=37)
    made.ask("job", priority="batch")
    for _ in range(2):
        made.bench.step()
    made.ask("urgent", images={"img-1": picture(7, 9, 12), "img-2": picture(8, 6, 6)})
    made.bench.run()
    assert "job" in made.preempted
    usage = made.bench.body("job")["usage"]
    assert usage["prompt_rows"] + usage["cached_rows"] > usage["input_tokens"]
    assert made.bits["job"] == alone


def test_after_a_preemption_in_the_middle_of_an_answer(checkpoint: Path, alone: Bits) -> None:
    made = Recorded(checkpoint, token_budget=1500)
    made.ask("job")
    for _ in range(40):  # whatever the model says: three letters are in the pattern
        if sum(name == "p" for name, _ in made.bits.get("job", {})) >= 3:
            break
        made.bench.step()
    scheduler = made.bench.engine.scheduler
    [request] = scheduler.running
    scheduler._preempt(request, None)
    scheduler.cache.clear()
    made.bench.run()
    assert made.preempted == ["job"]
    assert made.bits["job"] == alone


TROUBLES = {
    "not a number": "internal",
    "miscounted": "internal",
    "too long": "prompt_too_long",
    "cancelled": None,
    "expired": "deadline_exceeded",
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_beside_one_in_trouble(checkpoint: Path, alone: Bits, trouble: str) -> None:
    """What fails or leaves in the middle of a step's company, whatever it left in pages and arena, moves no bit."""
    made = Recorded(checkpoint, token_budget=1500, num_pages=120)
    images = {"img-1": picture(70, 9, 12), "img-2": picture(71, 6, 6)}
    state: Any = dict(STATE)
    if trouble == "miscounted":
        images["img-1"] = PatchImage(images["img-1"].patches[:-9], 9, 12)
    elif trouble == "too long":
        state["rules"] *= 2000
    elif trouble == "not a number":
        _sicken(made.bench.runner, images["img-1"])
    made.bench.ask("bad", state, *QUESTIONS, images=images, deadline_at=5.0)
    made.ask("job")
    for _ in range(2):  # the first answers, then the text
        made.bench.step()
    if trouble == "cancelled":
        made.bench.taken_back.add("bad")
    elif trouble == "expired":
        made.bench.clock.now = 6.0
    outcomes = made.bench.run()
    made.bench.engine.scheduler.cache.clear()
    stale = _not_numbers(made)
    made.ask("after")  # in the pages that the other left
    made.bench.run()
    if trouble == "not a number":
        assert _not_numbers(made) < stale, "pages full of them are used again, tails included"
    if TROUBLES[trouble] is None:
        assert isinstance(outcomes["bad"], Cancelled)
    else:
        refused = outcomes["bad"]
        assert isinstance(refused, Refused)
        assert refused.code == TROUBLES[trouble]
    assert made.bits["job"] == alone
    assert made.bits["after"] == alone


def _not_numbers(made: Recorded) -> int:
    """Values of K/V that are none, in all pages."""
    runner = cast(TorchRunner, made.bench.runner)
    return sum(int(stack.isnan().sum().item()) for _, stack in runner.pools.stacks())


def _sicken(runner: Any, image: PatchImage) -> None:
    """The tower gives no numbers for this picture."""
    encode = runner.encode_images

    def encoding(images: list[PatchImage], bases: list[int]) -> None:
        encode(images, bases)
        for seen, base in zip(images, bases, strict=True):
            if np.array_equal(seen.patches, image.patches):
                runner.arena[base : base + seen.num_soft] = torch.nan

    runner.encode_images = encoding
