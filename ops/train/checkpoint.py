"""A checkpoint directory in Hugging Face's layout: configs, sharded safetensors with an index, tokenizer, templates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

TEMPLATE = """{{ bos_token }}{% for message in messages %}<|turn>{{ message['role'] }}
{{ message['content'] }}<turn|>
{% endfor %}{% if add_generation_prompt %}<|turn>model
{% endif %}"""
SHARDS = 2
BUDGET = 140


def config() -> dict[str, Any]:
    """The sizes of photocall-mini, in the words of a Gemma 4 config."""
    sliding, full = "sliding_attention", "full_attention"
    return {
        "architectures": ["Gemma4ForConditionalGeneration"],
        "model_type": "gemma4",
        "dtype": "bfloat16",
        "tie_word_embeddings": True,
        "image_token_id": 8,
        "boi_token_id": 6,
        "eoi_token_id": 7,
        "audio_token_id": None,
        "video_token_id": None,
        "boa_token_id": None,
        "eoa_token_index": None,
        "audio_config": None,
        "eos_token_id": [1, 5],
        "text_config": {
            "model_type": "gemma4_text",
            "vocab_size": 4096,
            "hidden_size": 256,
            "intermediate_size": 768,
            "num_hidden_layers": 6,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "head_dim": 64,
            "global_head_dim": 64,
            "layer_types": [sliding, sliding, full, sliding, sliding, full],
            "sliding_window": 256,
            "max_position_embeddings": 8192,
            "rope_parameters": {
                sliding: {"rope_type": "default", "rope_theta": 10000.0},
                full: {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25},
            },
            "final_logit_softcapping": 30.0,
            "use_bidirectional_attention": "vision",
            "hidden_activation": "gelu_pytorch_tanh",
            "rms_norm_eps": 1e-6,
            "attention_bias": False,
            "attention_k_eq_v": False,
            "hidden_size_per_layer_input": 0,
            "vocab_size_per_layer_input": 4096,
            "num_kv_shared_layers": 0,
            "use_double_wide_mlp": False,
            "enable_moe_block": False,
            "tie_word_embeddings": True,
            "pad_token_id": 0,
            "eos_token_id": 1,
            "bos_token_id": 2,
        },
        "vision_config": {
            "model_type": "gemma4_vision",
            "hidden_size": 192,
            "intermediate_size": 576,
            "num_hidden_layers": 10,
            "num_attention_heads": 3,
            "num_key_value_heads": 3,
            "head_dim": 64,
            "patch_size": 16,
            "pooling_kernel_size": 3,
            "position_embedding_size": 840,
            "rope_parameters": {"rope_type": "axial", "rope_theta": 100.0},
            "hidden_activation": "gelu_pytorch_tanh",
            "rms_norm_eps": 1e-6,
            "use_clipped_linears": False,
            "standardize": False,
        },
    }


def write_side_files(directory: Path) -> None:
    """Everything but the weights, the tokenizer and the calibration."""
    directory.mkdir(parents=True, exist_ok=True)
    files: dict[str, Any] = {
        "config.json": config(),
        "generation_config.json": {"bos_token_id": 2, "eos_token_id": [1, 5], "pad_token_id": 0, "do_sample": False},
        "processor_config.json": {
            "processor_class": "Gemma4Processor",
            "image_seq_length": BUDGET,
            "image_processor": {
                "image_processor_type": "Gemma4ImageProcessor",
                "do_convert_rgb": True,
                "do_resize": True,
                "resample": 3,
                "do_rescale": True,
                "rescale_factor": 1 / 255,
                "do_normalize": False,
                "image_mean": [0.0, 0.0, 0.0],
                "image_std": [1.0, 1.0, 1.0],
                "patch_size": 16,
                "pooling_kernel_size": 3,
                "max_soft_tokens": BUDGET,
            },
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": "<bos>",
            "eos_token": "<eos>",
            "pad_token": "<pad>",
            "unk_token": "<unk>",
            "boi_token": "<|image>",
            "eoi_token": "<image|>",
            "image_token": "<|image|>",
            "clean_up_tokenization_spaces": False,
            "model_max_length": 8192,
        },
    }
    for name, content in files.items():
        (directory / name).write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    (directory / "chat_template.jinja").write_text(TEMPLATE)


def save_weights(directory: Path, tensors: dict[str, torch.Tensor], dtype: torch.dtype) -> None:
    """SHARDS safetensors files of about the same size, and their index."""
    directory.mkdir(parents=True, exist_ok=True)
    ready = {name: tensor.detach().to("cpu", dtype).contiguous() for name, tensor in tensors.items()}
    total = sum(t.numel() * t.element_size() for t in ready.values())
    shards: list[dict[str, torch.Tensor]] = [{}]
    filled = 0
    for name, tensor in ready.items():
        if filled >= total / SHARDS * len(shards) and len(shards) < SHARDS:
            shards.append({})
        shards[-1][name] = tensor
        filled += tensor.numel() * tensor.element_size()
    where: dict[str, str] = {}
    for i, shard in enumerate(shards):
        file = f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, directory / file, {"format": "pt"})
        where |= dict.fromkeys(shard, file)
    index = {"metadata": {"total_size": total}, "weight_map": where}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def load_weights(directory: Path) -> dict[str, torch.Tensor]:
    """All tensors of a directory, whatever their shards."""
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(set(index["weight_map"].values())):
        tensors |= load_file(directory / file)
    return tensors
