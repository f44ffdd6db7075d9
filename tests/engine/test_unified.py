"""The tower-free checkpoint (12B) against transformers, and each feature switched off to see the parity fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import Gemma4UnifiedTextConfig

from photocall.grid import ProcessorConfig
from photocall_engine.model.config import MergerConfig, parse_config, read_config
from photocall_engine.model.fields import ConfigError
from photocall_engine.model.merger import LayerNorm, PatchMerger
from photocall_engine.torch_runner import TorchRunner
from tests.engine.checkpoints import MERGER, UNIFIED, Checkpoint, make_checkpoint, random_image
from tests.engine.rows_helper import Pager, Prompt, prefill
from tests.engine.test_gemma4 import (
    ANYWHERE,
    IMAGES,
    TOLERANCE,
    VISIBLE,
    bidirectional_full_layers,
    both,
    causal_pictures,
    causal_when_longer_than_the_window,
    difference,
    load,
    marks_belong_to_the_picture,
    values_from_normed_keys,
    words,
)
from tests.engine.test_vision import encode


@pytest.fixture(scope="module")
def unified(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return make_checkpoint(tmp_path_factory.mktemp("unified"), UNIFIED, MERGER)


def encoder_of(checkpoint: Checkpoint) -> PatchMerger:
    encoder = load(checkpoint).encoder
    assert isinstance(encoder, PatchMerger)
    return encoder


def test_text_and_pictures_agree(unified: Checkpoint) -> None:
    """Pictures shorter and longer than the window, under the masks of `generate`."""
    ours, theirs = both(unified, load(unified))
    assert theirs.std() >= 1
    assert np.abs(ours - theirs).max() <= TOLERANCE


def test_text_alone_agrees(unified: Checkpoint) -> None:
    runner = load(unified)
    prompt = Pager(runner).place(Prompt(words(1, 70)))
    assert np.abs(prefill(runner, prompt) - unified.logits(prompt.tokens)).max() <= TOLERANCE


def test_soft_tokens_agree_for_several_grids(unified: Checkpoint) -> None:
    images = [*IMAGES, random_image(4, 3, 60)]
    for ours, theirs in zip(encode(encoder_of(unified), *images), unified.soft_tokens(images), strict=True):
        assert theirs.std() > 0.5
        assert np.abs(ours - theirs).max() <= TOLERANCE


def test_a_picture_has_the_same_bits_alone_and_among_others(unified: Checkpoint) -> None:
    encoder = encoder_of(unified)
    (alone,) = encode(encoder, IMAGES[1])
    for among in ([IMAGES[1], *IMAGES], [*IMAGES, IMAGES[1]]):
        found = encode(encoder, *among)
        assert all(np.array_equal(found[i], alone) for i, image in enumerate(among) if image is IMAGES[1])


@pytest.mark.parametrize(
    "mutate",
    [
        *ANYWHERE,
        causal_pictures,
        causal_when_longer_than_the_window,
        bidirectional_full_layers,
        marks_belong_to_the_picture,
        values_from_normed_keys,
    ],
    ids=lambda m: m.__name__,
)
def test_each_feature_of_its_decoder_is_seen(unified: Checkpoint, mutate: Callable[[TorchRunner], None]) -> None:
    runner = load(unified)
    mutate(runner)
    assert difference(unified, runner) >= VISIBLE


def soft_difference(encoder: PatchMerger, checkpoint: Checkpoint) -> float:
    (theirs,) = checkpoint.soft_tokens([IMAGES[0]])
    return float(np.abs(encode(encoder, IMAGES[0])[0] - theirs).max())


def without_positions(encoder: PatchMerger) -> None:
    encoder.weights.positions.zero_()


def y_before_x(encoder: PatchMerger) -> None:
    encoder.weights.positions = encoder.weights.positions.flip(1)


def without_dense_bias(encoder: PatchMerger) -> None:
    encoder.weights.dense_bias.zero_()


def patch_by_patch(encoder: PatchMerger) -> None:
    """Nine patches one after another instead of lines of the block."""
    lines = encoder.weights.dense.view(-1, 3, 16, 3, 16 * 3)
    encoder.weights.dense = lines.transpose(2, 3).reshape(-1, 6912)


def without_the_last_norm(encoder: PatchMerger) -> None:
    class Plain(type(encoder.kernels)):  # type: ignore[misc]
        def rms_norm(self, x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
            return x

    encoder.kernels = Plain()


@pytest.mark.parametrize(
    "mutate",
    [without_positions, y_before_x, without_dense_bias, patch_by_patch, without_the_last_norm],
    ids=lambda m: m.__name__,
)
def test_each_feature_of_its_merger_is_seen(unified: Checkpoint, mutate: Callable[[PatchMerger], None]) -> None:
    encoder = encoder_of(unified)
    mutate(encoder)
    assert soft_difference(encoder, unified) >= VISIBLE


@pytest.mark.parametrize("name", ["patch_norm", "dense_norm", "position_norm"])
@pytest.mark.parametrize("what", ["all of it", "weight", "bias"])
def test_each_layer_norm_is_seen(unified: Checkpoint, monkeypatch: pytest.MonkeyPatch, name: str, what: str) -> None:
    encoder = encoder_of(unified)
    changed: LayerNorm = getattr(encoder.weights, name)
    original = LayerNorm.__call__

    def skip(norm: LayerNorm, x: torch.Tensor) -> torch.Tensor:
        if norm is not changed:
            return original(norm, x)
        if what == "all of it":
            return x
        one, zero = torch.ones_like(norm.weight), torch.zeros_like(norm.bias)
        return original(LayerNorm(one, norm.bias) if what == "weight" else LayerNorm(norm.weight, zero), x)

    monkeypatch.setattr(LayerNorm, "__call__", skip)
    assert soft_difference(encoder, unified) >= VISIBLE


def test_pixels_are_not_centred(unified: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer norm hides 2x - 1 all but for its epsilon, so what the norm reads is looked at."""
    seen: list[torch.Tensor] = []
    original = LayerNorm.__call__

    def watch(norm: LayerNorm, x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return original(norm, x)

    monkeypatch.setattr(LayerNorm, "__call__", watch)
    encode(encoder_of(unified), IMAGES[1])
    assert seen[0].min() == 0
    assert seen[0].max() == 1


def test_a_side_longer_than_the_position_table_is_refused(unified: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="grid 3 x 63 exceeds 60 patches a side"):
        encode(encoder_of(unified), random_image(1, 3, 63))
    processor = {"image_processor": {"patch_size": 16, "pooling_kernel_size": 3, "max_soft_tokens": 140}}
    (tmp_path / "processor_config.json").write_text(json.dumps(processor))
    for positions, allowed in ((1120, 1120), (1119, 560), (140, 140)):
        vision = {"model_type": "gemma4_unified_vision", "mm_posemb_size": positions}
        (tmp_path / "config.json").write_text(json.dumps({"vision_config": vision}))
        assert ProcessorConfig.read(tmp_path).max_budget == allowed


def test_its_own_defaults(unified: Checkpoint) -> None:
    names = ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size")
    plain = {name: UNIFIED[name] for name in names} | {"num_hidden_layers": 6}
    theirs = Gemma4UnifiedTextConfig(**plain)
    for raw in ({"model_type": "gemma4_unified_text", **plain}, json.loads(theirs.to_json_string())):
        text = parse_config(raw).text
        assert text.window == theirs.sliding_window == 1024
        assert text.bidirectional_images
        assert text.max_positions == theirs.max_position_embeddings
        assert text.per_layer_size == 0
    causal = {"model_type": "gemma4_unified_text", **plain, "use_bidirectional_attention": None}
    assert not parse_config(causal).text.bidirectional_images
    assert read_config(unified.directory).vision == MergerConfig(48, 20, 16, 3, 1e-6)
    wide = {"mm_embed_dim": 48, "output_proj_dims": 64}
    with pytest.raises(ConfigError, match=r"vision_config\.output_proj_dims"):
        parse_config({"model_type": "gemma4_unified", "text_config": plain, "vision_config": wide})
