"""Small random checkpoints made through transformers, and what transformers says about them.

A freshly made model hides most mistakes: norms and scalars are one, clips infinite, position tables constant. Here
every parameter and buffer is drawn anew, with scales at which switching off any one feature moves the logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import (
    Gemma4Config,
    Gemma4ForCausalLM,
    Gemma4ForConditionalGeneration,
    Gemma4TextConfig,
    Gemma4UnifiedConfig,
    Gemma4UnifiedForConditionalGeneration,
)

from photocall_engine.runner import PatchImage

IMAGE, BEGIN, END = 120, 121, 122
SLIDING, FULL = "sliding_attention", "full_attention"
WINDOW = 24

TEXT: dict[str, Any] = {
    "vocab_size": 128,
    "vocab_size_per_layer_input": 128,
    "hidden_size": 64,
    "intermediate_size": 80,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "sliding_window": WINDOW,
    "final_logit_softcapping": 6.0,
    "max_position_embeddings": 4096,
    "hidden_size_per_layer_input": 0,
}
# As models/mini and 31B: k = v and wider heads on full layers, pictures seen both ways on sliding ones.
DENSE: dict[str, Any] = TEXT | {
    "num_hidden_layers": 4,
    "layer_types": [SLIDING, FULL, SLIDING, FULL],
    "global_head_dim": 32,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "use_bidirectional_attention": "vision",
}
# As E2B and E4B: per-layer embeddings, upper layers that share K/V and have a wider MLP.
ETYPE: dict[str, Any] = TEXT | {
    "num_hidden_layers": 6,
    "layer_types": [SLIDING, FULL, SLIDING, FULL, SLIDING, FULL],
    "global_head_dim": 32,
    "hidden_size_per_layer_input": 8,
    "num_kv_shared_layers": 2,
    "use_double_wide_mlp": True,
}
# As 26B-A4B: experts beside every MLP.
EXPERTS: dict[str, Any] = DENSE | {
    "enable_moe_block": True,
    "num_experts": 6,
    "top_k_experts": 2,
    "moe_intermediate_size": 24,
}
VISION: dict[str, Any] = {
    "hidden_size": 48,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "head_dim": 16,
    "use_clipped_linears": True,
    "standardize": True,
    "position_embedding_size": 64,
}
# As 12B: no tower. Its text defaults are its own, so what DENSE names is named here too.
UNIFIED: dict[str, Any] = {name: value for name, value in DENSE.items() if "per_layer" not in name}
MERGER: dict[str, Any] = {"mm_embed_dim": 48, "mm_posemb_size": 20, "output_proj_dims": 48}


@dataclass(frozen=True)
class Checkpoint:
    """A saved model and its reference implementation."""

    directory: Path
    model: Any

    @torch.inference_mode()
    def logits(self, tokens: list[int], images: list[PatchImage] | None = None) -> NDArray[np.float32]:
        """[len(tokens), vocabulary] by transformers; soft tokens of the images stand at IMAGE tokens, in order."""
        ids = torch.tensor([tokens])
        arguments: dict[str, Any] = {"mm_token_type_ids": (ids == IMAGE).long()}
        if images:
            arguments |= self._pixels(images)
        if self.unified:
            arguments["attention_mask"] = self._masks_of_generate(ids, arguments.pop("mm_token_type_ids"))
        if isinstance(self.model, Gemma4ForCausalLM):
            arguments = {}
        result: NDArray[np.float32] = self.model(input_ids=ids, use_cache=False, **arguments).logits[0].numpy()
        return result

    @torch.inference_mode()
    def soft_tokens(self, images: list[PatchImage]) -> list[NDArray[np.float32]]:
        """Projected soft tokens of each image by transformers."""
        features = self.model.get_image_features(**self._pixels(images))
        return [soft.numpy() for soft in features.pooler_output]

    @property
    def unified(self) -> bool:
        """No tower: blocks of patches are merged before the model sees them."""
        return isinstance(self.model, Gemma4UnifiedForConditionalGeneration)

    def _pixels(self, images: list[PatchImage]) -> dict[str, torch.Tensor]:
        return merged_pixels(images) if self.unified else reference_pixels(images)

    def _masks_of_generate(self, ids: torch.Tensor, types: torch.Tensor) -> dict[str, torch.Tensor]:
        """What `generate` passes; plain `forward` sees pictures both ways on full layers too."""
        embedded = self.model.get_input_embeddings()(ids)
        masks: dict[str, torch.Tensor] = self.model.create_masks_for_generate(
            self.model.config, embedded, torch.ones_like(ids), None, torch.arange(ids.shape[1])[None], types
        )
        return masks


def make_checkpoint(
    directory: Path, text: dict[str, Any], vision: dict[str, Any] | None, *, seed: int = 0, shard: str = "40KB"
) -> Checkpoint:
    """A random model with these configurations, saved in several shards."""
    torch.manual_seed(seed)
    options: dict[str, Any] = {"attn_implementation": "eager"}
    model: Any
    if vision is None:
        model = Gemma4ForCausalLM(Gemma4TextConfig(**text, **options))
    else:
        options |= {"image_token_id": IMAGE, "boi_token_id": BEGIN, "eoi_token_id": END}
        options |= {"video_token_id": 123, "audio_token_id": 124, "boa_token_id": 125, "eoa_token_index": 126}
        options |= {"text_config": dict(text), "vision_config": dict(vision)}
        if "mm_embed_dim" in vision:
            model = Gemma4UnifiedForConditionalGeneration(Gemma4UnifiedConfig(**options))
        else:
            model = Gemma4ForConditionalGeneration(Gemma4Config(**options))
    randomise(model)
    model.eval()
    model.save_pretrained(directory, max_shard_size=shard)
    return Checkpoint(directory, model)


@torch.no_grad()
def randomise(model: torch.nn.Module) -> None:
    """Draw every parameter and persistent buffer anew."""
    for name, tensor in model.state_dict().items():
        if name.endswith("lm_head.weight"):
            continue  # tied to the embedding
        if name.endswith(("_min", "_max")):
            bound = torch.empty(()).uniform_(0.4, 1.0) * (0.2 if "down_proj" in name else 1.0)
            tensor.copy_(-bound if name.endswith("_min") else bound)
        elif name.endswith("layer_scalar"):
            tensor.uniform_(0.5, 1.5)
        elif name.endswith(("q_norm.weight", "k_norm.weight")):
            tensor.uniform_(0.5, 1.5).mul_(1.5 * tensor.shape[0] ** -0.25)
        elif name.endswith(
            (
                *("norm.weight", "norm_1.weight", "norm_2.weight", "std_scale", "router.scale", "expert_scale"),
                *("patch_ln1.weight", "patch_ln2.weight"),
            )
        ):
            tensor.uniform_(0.5, 1.5)
        elif name.endswith(("std_bias", ".bias")):
            tensor.normal_()
        elif name.endswith(("embed_tokens.weight", "position_embedding_table", "pos_embedding")):
            tensor.normal_(std=0.3)
        elif name.endswith("embed_tokens_per_layer.weight"):
            tensor.normal_()
        else:
            tensor.normal_(std=tensor.shape[-1] ** -0.5)


def random_image(seed: int, grid_height: int, grid_width: int) -> PatchImage:
    """Noise, brighter towards one corner so that places differ."""
    random = np.random.default_rng(seed)
    patches = random.integers(0, 256, (grid_height * grid_width, 768), dtype=np.uint8)
    return PatchImage(patches // np.uint8(1 + seed % 2), grid_height, grid_width)


def reference_pixels(images: list[PatchImage]) -> dict[str, torch.Tensor]:
    """What the reference processor would pass: rescaled patches with (x, y) positions, padded to the longest."""
    longest = max(len(image.patches) for image in images)
    pixels = torch.zeros(len(images), longest, 768)
    positions = torch.full((len(images), longest, 2), -1)
    for i, image in enumerate(images):
        count = len(image.patches)
        pixels[i, :count] = torch.from_numpy(image.patches).float() / 255
        index = torch.arange(count)
        positions[i, :count] = torch.stack((index % image.grid_width, index // image.grid_width), dim=1)
    return {"pixel_values": pixels, "image_position_ids": positions}


def merged_pixels(images: list[PatchImage]) -> dict[str, torch.Tensor]:
    """The same for a unified model, cut anew from the whole picture: 48 x 48 pixels each, (y, x, rgb).

    Its reference processor cannot be imported without torchvision.
    """
    longest = max(image.num_soft for image in images)
    pixels, positions = torch.zeros(len(images), longest, 6912), torch.full((len(images), longest, 2), -1)
    for i, image in enumerate(images):
        rows, columns = image.grid_height, image.grid_width
        patches = image.patches.reshape(rows, columns, 16, 16, 3)
        picture = patches.transpose(0, 2, 1, 3, 4).reshape(rows * 16, columns * 16, 3)
        places = [(x, y) for y in range(rows // 3) for x in range(columns // 3)]
        for j, (x, y) in enumerate(places):
            block = picture[y * 48 : (y + 1) * 48, x * 48 : (x + 1) * 48]
            pixels[i, j] = torch.from_numpy(block.reshape(-1)).float() / 255
        positions[i, : len(places)] = torch.tensor(places)
    return {"pixel_values": pixels, "image_position_ids": positions}
