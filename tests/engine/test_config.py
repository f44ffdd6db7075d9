"""config.json: both ways of writing per-layer shapes, defaults, and refusals that name the field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import Gemma4Config, Gemma4TextConfig

from photocall_engine.model.config import VisionConfig, parse_config, read_config
from photocall_engine.model.fields import ConfigError
from tests.engine.checkpoints import DENSE, ETYPE, FULL, SLIDING, TEXT, VISION


def written_by_transformers(text: dict[str, Any], vision: dict[str, Any] | None = None) -> dict[str, Any]:
    if vision is None:
        found: dict[str, Any] = json.loads(Gemma4TextConfig(**text).to_json_string())
    else:
        found = json.loads(Gemma4Config(text_config=text, vision_config=vision).to_json_string())
    return found


def test_both_ways_of_writing_per_layer_shapes_agree() -> None:
    new = written_by_transformers(DENSE)
    assert new["per_layer_config"]["1"] == {"head_dim": 32, "num_key_value_heads": 1}
    old = DENSE | {"model_type": "gemma4_text"}
    assert parse_config(new) == parse_config(old)
    layers = parse_config(new).text.layers
    assert [(layer.kind, layer.head_dim, layer.num_kv_heads, layer.k_eq_v) for layer in layers] == [
        ("sliding", 16, 2, False),
        ("full", 32, 1, True),
    ] * 2


def test_an_empty_per_layer_config_means_that_all_layers_agree() -> None:
    raw = written_by_transformers(DENSE | {"attention_k_eq_v": False, "global_head_dim": 16})
    raw["per_layer_config"] = {}
    assert {layer.head_dim for layer in parse_config(raw).text.layers} == {16}


def test_num_global_key_value_heads_counts_only_with_k_eq_v() -> None:
    raw = DENSE | {"model_type": "gemma4_text", "attention_k_eq_v": False}
    assert {layer.num_kv_heads for layer in parse_config(raw).text.layers} == {2}


def test_upper_layers_share_the_last_lower_layer_of_their_kind() -> None:
    text = parse_config(written_by_transformers(ETYPE)).text
    assert [layer.kv_layer for layer in text.layers] == [0, 1, 2, 3, 2, 3]
    assert [layer.intermediate_size for layer in text.layers] == [80] * 4 + [160] * 2
    assert text.last_writer == 3


def test_defaults_of_the_reference() -> None:
    names = ("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size")
    plain = {name: TEXT[name] for name in names} | {"num_hidden_layers": 7}
    text = parse_config({"model_type": "gemma4_text", **plain}).text
    theirs = Gemma4TextConfig(**plain)
    assert [layer.kind + "_attention" for layer in text.layers] == theirs.layer_types == [SLIDING] * 5 + [FULL] * 2
    assert (text.window, text.eps, text.per_layer_size) == (512, 1e-6, 256)
    assert text.rope["full"].num_angles == 64  # of 256 in a head of 512
    assert text.rope["sliding"].num_angles == 128


def test_picture_models_have_a_tower() -> None:
    config = parse_config(written_by_transformers(ETYPE, VISION))
    assert config.multimodal
    assert isinstance(config.vision, VisionConfig)
    assert (config.vision.num_layers, config.vision.clipped, config.vision.standardize) == (2, True, True)
    assert not config.text.bidirectional_images


ROPE = f"rope_parameters.{SLIDING}.rope_type"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
        ({"enable_moe_block": True}, "num_experts"),
        ({"enable_moe_block": True, "num_experts": 4, "top_k_experts": 5}, "top_k_experts"),
        ({"enable_moe_block": True, "num_experts": 4, "top_k_experts": 2}, "moe_intermediate_size"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_activation": "silu"}, "hidden_activation"),
        ({"hidden_size": "64"}, "hidden_size"),
        ({"vocab_size": None}, "vocab_size"),
        ({"layer_types": [SLIDING]}, "layer_types"),
        ({"layer_types": [SLIDING, "linear_attention", SLIDING, FULL]}, "layer_types"),
        ({"num_kv_shared_layers": 4}, "num_kv_shared_layers"),
        ({"num_kv_shared_layers": 3, "layer_types": [SLIDING] * 3 + [FULL]}, "num_kv_shared_layers"),
        ({"per_layer_config": {"1": {"hidden_size": 3}}}, "per_layer_config.1.hidden_size"),
        ({"per_layer_config": {"9": {}}}, "per_layer_config.9"),
        ({"per_layer_config": {"1": {"head_dim": 33}}}, "per_layer_config"),
        ({"rope_parameters": {SLIDING: {"rope_type": "yarn", "rope_theta": 1e4}}}, ROPE),
        ({"rope_parameters": {SLIDING: {"rope_theta": 1e4}}}, f"rope_parameters.{FULL}"),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    raw = written_by_transformers(DENSE, VISION)
    raw["text_config"] |= change
    with pytest.raises(ConfigError) as caught:
        parse_config(raw)
    assert caught.value.field == f"text_config.{field}"
    assert field in str(caught.value)


@pytest.mark.parametrize("change", [{"pooling_kernel_size": 2}, {"patch_size": 14}, {"head_dim": 18}])
def test_towers_that_are_not_supported_are_refused_by_name(change: dict[str, Any]) -> None:
    raw = written_by_transformers(DENSE, VISION)
    raw["vision_config"] |= change
    with pytest.raises(ConfigError, match=f"vision_config.{next(iter(change))}: "):
        parse_config(raw)


def test_other_models_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="model_type"):
        parse_config({"model_type": "llama"})
    with pytest.raises(ConfigError, match=r"cannot read .*config\.json"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ConfigError, match="is not JSON"):
        read_config(tmp_path)


def test_older_towers_write_default_and_mean_axial() -> None:
    raw = written_by_transformers(DENSE, VISION)
    raw["vision_config"]["rope_parameters"] = {"rope_type": "default", "rope_theta": 90.0}
    config = parse_config(raw)
    assert isinstance(config.vision, VisionConfig)
    assert config.vision.theta == 90.0
    theirs: Any = Gemma4Config(**raw).vision_config
    assert theirs.rope_parameters["rope_type"] == "axial"
    raw["vision_config"]["rope_parameters"]["rope_type"] = "yarn"
    with pytest.raises(ConfigError, match=r"vision_config\.rope_parameters\.rope_type"):
        parse_config(raw)
