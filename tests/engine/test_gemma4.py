"""The decoder against transformers, and each of its features switched off in ours to see the parity fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from photocall_engine.kernels.reference import ReferenceKernels
from photocall_engine.model.gemma4 import TextDecoder
from photocall_engine.model.text_weights import ExpertWeights
from photocall_engine.rows import RowBatch
from photocall_engine.torch_runner import TorchRunner
from tests.engine.checkpoints import (
    BEGIN,
    DENSE,
    END,
    ETYPE,
    EXPERTS,
    IMAGE,
    VISION,
    WINDOW,
    Checkpoint,
    make_checkpoint,
    random_image,
)
from tests.engine.rows_helper import Pager, Prompt, logits, prefill, put_images, rows

TOLERANCE = 1e-4  # float32 on both sides; two orders of summation
VISIBLE = 1e-2  # what switching off one feature must at least move
IMAGES = [random_image(1, 6, 9), random_image(2, 12, 6), random_image(3, 15, 18)]  # 6, 8 and 30 soft tokens
Floats: TypeAlias = NDArray[np.float32]


@pytest.fixture(scope="module", params=["dense", "etype", "with_experts"])
def checkpoint(request: pytest.FixtureRequest) -> Checkpoint:
    found: Checkpoint = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module", params=["dense", "etype"])
def plain(request: pytest.FixtureRequest) -> Checkpoint:
    found: Checkpoint = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make_checkpoint(tmp_path_factory.mktemp("dense"), DENSE, VISION)


@pytest.fixture(scope="module")
def etype(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make_checkpoint(tmp_path_factory.mktemp("etype"), ETYPE, VISION)


@pytest.fixture(scope="module")
def with_experts(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make_checkpoint(tmp_path_factory.mktemp("experts"), EXPERTS, VISION)


def load(checkpoint: Checkpoint) -> TorchRunner:
    return TorchRunner.load(checkpoint.directory, num_pages=48, sliding_pages=47, max_rows=512, soft_capacity=64)


def words(seed: int, count: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, IMAGE, count)]


def picture_prompt(runner: TorchRunner) -> Prompt:
    """Text, three pictures of different grids (the last longer than the window), and text after each."""
    tokens, spans = words(0, 5), []
    for seed, (image, base) in enumerate(zip(IMAGES, put_images(runner, IMAGES), strict=True)):
        spans.append((len(tokens) + 1, image.num_soft, base))
        tokens += [BEGIN, *[IMAGE] * image.num_soft, END, *words(seed, 11)]
    return Prompt(tokens, spans)


def both(checkpoint: Checkpoint, runner: TorchRunner) -> tuple[Floats, Floats]:
    """Logits of the picture prompt, ours and theirs."""
    prompt = Pager(runner).place(picture_prompt(runner))
    assert IMAGES[-1].num_soft > WINDOW
    return prefill(runner, prompt), checkpoint.logits(prompt.tokens, IMAGES)


def difference(checkpoint: Checkpoint, runner: TorchRunner) -> float:
    ours, theirs = both(checkpoint, runner)
    return float(np.abs(ours - theirs).max())


def test_text_longer_than_the_window_agrees(checkpoint: Checkpoint) -> None:
    runner = load(checkpoint)
    prompt = Pager(runner).place(Prompt(words(1, 3 * WINDOW)))
    theirs = checkpoint.logits(prompt.tokens)
    assert theirs.std() >= 1
    assert np.abs(prefill(runner, prompt) - theirs).max() <= TOLERANCE


def test_text_with_pictures_agrees(checkpoint: Checkpoint) -> None:
    ours, theirs = both(checkpoint, load(checkpoint))
    assert theirs.std() >= 1
    assert np.abs(ours - theirs).max() <= TOLERANCE


@pytest.mark.parametrize(
    ("base", "change"),
    [
        (DENSE, {}),
        (ETYPE, {}),
        (DENSE, {"attention_k_eq_v": False, "num_key_value_heads": 4}),
        (DENSE, {"final_logit_softcapping": None, "hidden_size_per_layer_input": 16}),
        (ETYPE, {"num_kv_shared_layers": 4, "num_attention_heads": 6}),
        (ETYPE, {"global_head_dim": 16, "use_double_wide_mlp": False, "num_kv_shared_layers": 1}),
    ],
)
def test_text_only_checkpoints_agree(
    tmp_path_factory: pytest.TempPathFactory, base: dict[str, Any], change: dict[str, Any]
) -> None:
    text = base | change | {"use_bidirectional_attention": None}
    checkpoint = make_checkpoint(tmp_path_factory.mktemp("text"), text, None)
    runner = load(checkpoint)
    prompt = Pager(runner).place(Prompt(words(2, 60)))
    assert np.abs(prefill(runner, prompt) - checkpoint.logits(prompt.tokens)).max() <= TOLERANCE


def test_pieces_chunks_steps_and_prefixes_agree(checkpoint: Checkpoint) -> None:
    """One prefill, chunks, decode steps and a branch on a cached prefix are the same rows arriving differently."""
    runner = load(checkpoint)
    pager = Pager(runner)
    prompt = pager.place(picture_prompt(runner))
    theirs = checkpoint.logits(prompt.tokens, IMAGES)
    last = prompt.spans[-1][0] + prompt.spans[-1][1]
    for cuts in ([6, 21], [25, last], range(last, len(prompt.tokens))):
        again = pager.place(Prompt(prompt.tokens, prompt.spans))
        assert np.abs(prefill(runner, again, list(cuts)) - theirs).max() <= TOLERANCE
    branch = pager.branch(prompt, words(9, 20))
    logits(runner, rows(runner, [(prompt, 0, len(prompt.tokens))]))
    tail = len(prompt.tokens) // 16 * 16
    ours = logits(runner, rows(runner, [(branch, tail, len(branch.tokens))]))
    assert np.abs(ours - checkpoint.logits(branch.tokens, IMAGES)[tail:]).max() <= TOLERANCE


# Switching features off. Every mutation changes our model only; the reference stays as it is.


def without_window(runner: TorchRunner) -> None:
    runner.sliding_window = 10**6


def window_off_by_one(runner: TorchRunner) -> None:
    runner.sliding_window += 1


def without_softcap(runner: TorchRunner) -> None:
    runner.decoder.config = replace(runner.decoder.config, softcap=None)


def without_layer_scalar(runner: TorchRunner) -> None:
    runner.decoder.weights.layers[1].scalar.fill_(1.0)


def without_soft_tokens(runner: TorchRunner) -> None:
    embed = runner.decoder._embed
    runner.decoder._embed = lambda rows, arena: embed(rows, torch.zeros_like(arena))  # type: ignore[method-assign]


def scaled_soft_tokens(runner: TorchRunner) -> None:
    embed = runner.decoder._embed
    runner.decoder._embed = lambda rows, arena: embed(rows, arena * 8)  # type: ignore[method-assign]


def unscaled_embedding(runner: TorchRunner) -> None:
    runner.decoder._embed_scale = 1.0


def rope_over_the_first_dimensions(runner: TorchRunner) -> None:
    """Exponents over the turned part of the head alone, as partial rotary models have them."""
    rope = runner.decoder.config.rope["full"]
    exponents = torch.arange(rope.num_angles) / rope.num_angles
    runner.decoder._frequencies["full"][: rope.num_angles] = rope.theta**-exponents


ANYWHERE: list[Callable[[TorchRunner], None]] = [
    without_window,
    window_off_by_one,
    without_softcap,
    without_layer_scalar,
    without_soft_tokens,
    scaled_soft_tokens,
    unscaled_embedding,
    rope_over_the_first_dimensions,
]


@pytest.mark.parametrize("mutate", ANYWHERE, ids=lambda m: m.__name__)
def test_each_feature_is_seen(plain: Checkpoint, mutate: Callable[[TorchRunner], None]) -> None:
    runner = load(plain)
    mutate(runner)
    assert difference(plain, runner) >= VISIBLE


def causal_pictures(runner: TorchRunner) -> None:
    runner.bidirectional_images = False


def causal_when_longer_than_the_window(runner: TorchRunner) -> None:
    """The mistake of another engine: a picture that does not fit the window is made causal."""

    def change(batch: RowBatch) -> RowBatch:
        start = batch.soft_idx >= IMAGES[0].num_soft + IMAGES[1].num_soft
        return replace(batch, kv_hi_sliding=np.where(start, batch.pos + 1, batch.kv_hi_sliding))

    through(runner, change)


def bidirectional_full_layers(runner: TorchRunner) -> None:
    through(runner, lambda batch: replace(batch, kv_hi=batch.kv_hi_sliding))


def marks_belong_to_the_picture(runner: TorchRunner) -> None:
    def change(batch: RowBatch) -> RowBatch:
        hi = batch.kv_hi_sliding
        before_end = (batch.soft_idx >= 0) & np.append(batch.soft_idx[1:] < 0, True)
        return replace(batch, kv_hi_sliding=np.where(np.isin(hi, hi[before_end]), hi + 1, hi).astype(np.int32))

    through(runner, change)


def values_from_normed_keys(runner: TorchRunner) -> None:
    """k = v taken to mean that V is K as it is stored: after its norm and rope."""

    class KeysAsValues(ReferenceKernels):
        def write_kv(self, kv: Any, k: torch.Tensor, v: torch.Tensor, row: torch.Tensor, slot: torch.Tensor) -> None:
            super().write_kv(kv, k, k if k.shape[1] == 1 else v, row, slot)

    runner.decoder.kernels = KeysAsValues()


@pytest.mark.parametrize(
    "mutate",
    [
        causal_pictures,
        causal_when_longer_than_the_window,
        bidirectional_full_layers,
        marks_belong_to_the_picture,
        values_from_normed_keys,
    ],
    ids=lambda m: m.__name__,
)
def test_each_feature_of_dense_models_is_seen(dense: Checkpoint, mutate: Callable[[TorchRunner], None]) -> None:
    runner = load(dense)
    mutate(runner)
    assert difference(dense, runner) >= VISIBLE


def without_per_layer_embeddings(runner: TorchRunner) -> None:
    runner.decoder.config = replace(runner.decoder.config, per_layer_size=0)


def per_layer_table_at_the_placeholder(runner: TorchRunner) -> None:
    """The placeholder's own row of the per-layer table, which exists, instead of the pad row."""
    runner.config = replace(runner.config, text=replace(runner.config.text, pad_token_id=IMAGE))


def per_layer_inputs_before_the_pictures(runner: TorchRunner) -> None:
    decoder, inputs = runner.decoder, runner.decoder._per_layer_inputs

    def early(tokens: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor | None:
        return inputs(tokens, decoder.weights.embedding[tokens] * decoder._embed_scale)

    decoder._per_layer_inputs = early  # type: ignore[method-assign]


def kv_shared_from_the_wrong_layer(runner: TorchRunner) -> None:
    layers = runner.decoder.config.layers
    wrong = replace(layers[4], kv_layer=0)
    runner.decoder.config = replace(runner.decoder.config, layers=(*layers[:4], wrong, *layers[5:]))


@pytest.mark.parametrize(
    "mutate",
    [
        without_per_layer_embeddings,
        per_layer_table_at_the_placeholder,
        per_layer_inputs_before_the_pictures,
        kv_shared_from_the_wrong_layer,
    ],
    ids=lambda m: m.__name__,
)
def test_each_feature_of_e_type_models_is_seen(etype: Checkpoint, mutate: Callable[[TorchRunner], None]) -> None:
    runner = load(etype)
    mutate(runner)
    assert difference(etype, runner) >= VISIBLE


def without_experts(runner: TorchRunner) -> None:
    for layer in runner.decoder.weights.layers:
        layer.experts = None


def unscaled_router(runner: TorchRunner) -> None:
    for layer in runner.decoder.weights.layers:
        assert layer.experts is not None
        layer.experts.router_scale.fill_(1.0)


def unscaled_experts(runner: TorchRunner) -> None:
    for layer in runner.decoder.weights.layers:
        assert layer.experts is not None
        layer.experts.expert_scale.fill_(1.0)


def up_before_gate(runner: TorchRunner) -> None:
    for layer in runner.decoder.weights.layers:
        assert layer.experts is not None
        layer.experts.gate_up = torch.cat(layer.experts.gate_up.chunk(2, dim=1)[::-1], dim=1)


def one_expert_less(runner: TorchRunner) -> None:
    experts = runner.decoder.config.experts
    assert experts is not None
    runner.decoder.config = replace(runner.decoder.config, experts=replace(experts, top_k=1))


def router_after_the_norm(runner: TorchRunner) -> None:
    """The router reads what the MLP reads, not the residual."""
    decoder, original = runner.decoder, runner.decoder._with_experts

    def early(weights: ExpertWeights, residual: torch.Tensor, mlp_out: torch.Tensor) -> torch.Tensor:
        layer = next(layer for layer in decoder.weights.layers if layer.experts is weights)
        normed = decoder.kernels.rms_norm(residual, layer.pre_feedforward_norm, decoder.config.eps)
        return original(weights, normed, mlp_out)

    decoder._with_experts = early  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "mutate",
    [without_experts, unscaled_router, unscaled_experts, up_before_gate, one_expert_less, router_after_the_norm],
    ids=lambda m: m.__name__,
)
def test_each_feature_of_experts_is_seen(with_experts: Checkpoint, mutate: Callable[[TorchRunner], None]) -> None:
    runner = load(with_experts)
    mutate(runner)
    assert difference(with_experts, runner) >= VISIBLE


@pytest.mark.parametrize("name", ["pre_norm", "mlp_norm", "post_norm"])
def test_each_norm_of_experts_is_seen(with_experts: Checkpoint, name: str) -> None:
    runner = load(with_experts)
    runner.decoder.kernels = Skipping(getattr(runner.decoder.weights.layers[1].experts, name))
    assert difference(with_experts, runner) >= VISIBLE


class Skipping(ReferenceKernels):
    """Kernels that leave one norm out."""

    def __init__(self, skipped: torch.Tensor | None) -> None:
        super().__init__()
        self.skipped = skipped

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
        return x.clone() if weight is self.skipped else super().rms_norm(x, weight, eps)


LAYER_NORMS = ["input_norm", "q_norm", "k_norm", "post_attention_norm", "pre_feedforward_norm", "post_feedforward_norm"]


@pytest.mark.parametrize("name", LAYER_NORMS)
@pytest.mark.parametrize("layer", [0, 1], ids=["sliding", "full"])
def test_each_layer_norm_is_seen(plain: Checkpoint, layer: int, name: str) -> None:
    runner = load(plain)
    runner.decoder.kernels = Skipping(getattr(runner.decoder.weights.layers[layer], name))
    assert difference(plain, runner) >= VISIBLE


def test_the_final_and_value_norms_are_seen(plain: Checkpoint) -> None:
    for weight in (load(plain).decoder.weights.norm, None):
        runner = load(plain)
        skipped = None if weight is None else runner.decoder.weights.norm
        runner.decoder.kernels = Skipping(skipped)
        assert difference(plain, runner) >= VISIBLE


def test_per_layer_norms_are_seen(etype: Checkpoint) -> None:
    for name in ("inputs", "gate"):
        runner = load(etype)
        weights = runner.decoder.weights
        runner.decoder.kernels = Skipping(
            weights.per_layer_norm if name == "inputs" else weights.layers[1].per_layer_norm
        )
        assert difference(etype, runner) >= VISIBLE


def test_rows_nobody_reads_leave_early(checkpoint: Checkpoint) -> None:
    """Above the last K/V-writing layer only read rows are computed, and what they give is the same."""
    runner = load(checkpoint)
    prompt = Pager(runner).place(picture_prompt(runner))
    every = prefill(runner, prompt)
    heights: list[int] = []

    class Counting(ReferenceKernels):
        def attend(self, q: torch.Tensor, kv: Any, plan: Any) -> torch.Tensor:
            heights.append(len(q))
            return super().attend(q, kv, plan)

    runner.decoder = TextDecoder(runner.decoder.config, runner.decoder.weights, Counting())
    wanted = [3, 40, len(prompt.tokens) - 1]
    few = logits(runner, rows(runner, [(prompt, 0, len(prompt.tokens))], read=wanted))
    assert np.array_equal(few, every[wanted])
    below = runner.decoder.config.last_writer
    assert set(heights[:below]) == {-(-len(prompt.tokens) // 16) * 16}
    assert set(heights[below:]) == {16}


def through(runner: TorchRunner, change: Callable[[RowBatch], RowBatch]) -> None:
    """Every batch is changed on its way to the device."""
    original = runner._device_rows
    runner._device_rows = lambda batch: original(change(batch))  # type: ignore[method-assign]
