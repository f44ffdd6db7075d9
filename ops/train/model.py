"""photocall-mini as a trainer wants it: Gemma 4's rules in fused, packed form, with the names of the checkpoint.

One row of a batch is one request: its prefix (segment 0) and its questions as branches that see the prefix and
themselves, and sub-branches that see their branch too; each branch goes on counting positions where the prefix ends.
All pictures of a batch have the same grid. Patches come block by block (the 9 patches of a soft token together), which
the tower cannot tell from row by row, because its positions are explicit, and which makes the pool a mean over
neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPS = 1e-6
SUB = 8  # segments are multiples of SUB; what lies between are answers that do not see each other (a box's edges)


def rms_norm(x: Tensor, weight: Tensor | None = None) -> Tensor:
    """RMSNorm in float32, back in the type of x."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)
    if weight is not None:
        wide = wide * weight.float()
    return wide.to(x.dtype)


class Norm(nn.Module):
    """A norm's weight; `forward` norms."""

    def __init__(self, size: int, start: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((size,), start))

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight)


def rotate(x: Tensor, cos: Tensor, sin: Tensor, parts: int) -> Tensor:
    """RoPE with rotate-half inside each of `parts` equal parts of the head."""
    shape = x.shape
    split = x.view(*shape[:-1], parts, 2, shape[-1] // parts // 2)
    turned = torch.stack((-split[..., 1, :], split[..., 0, :]), -2).view(shape)
    return (x * cos + turned * sin).to(x.dtype)


class Linear(nn.Module):
    """A weight without bias under the name `weight`, or `linear.weight` as in the tower."""

    def __init__(self, size_in: int, size_out: int, gain: float = 1.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size_out, size_in) * gain * size_in**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class Clippable(nn.Module):
    """The tower's linear: Gemma 4 keeps it one name deeper."""

    def __init__(self, size_in: int, size_out: int, gain: float = 1.0) -> None:
        super().__init__()
        self.linear = Linear(size_in, size_out, gain)

    @property
    def weight(self) -> Tensor:
        return self.linear.weight

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.linear.weight)


class Attention(nn.Module):
    """q, k: norm, then RoPE; v: unscaled norm; scale 1."""

    def __init__(self, make: Any, hidden: int, heads: int, kv_heads: int, head_dim: int, rope_parts: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim, self.rope_parts = heads, kv_heads, head_dim, rope_parts
        self.q_proj = make(hidden, heads * head_dim)
        self.k_proj = make(hidden, kv_heads * head_dim)
        self.v_proj = make(hidden, kv_heads * head_dim)
        self.o_proj = make(heads * head_dim, hidden)
        self.q_norm = Norm(head_dim, head_dim**-0.25)
        self.k_norm = Norm(head_dim, head_dim**-0.25)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        rows, length, _ = x.shape
        weight = torch.cat((self.q_proj.weight, self.k_proj.weight, self.v_proj.weight))
        qkv = F.linear(x, weight).view(rows, length, self.heads + 2 * self.kv_heads, self.head_dim)
        q, k, v = torch.split(qkv, [self.heads, self.kv_heads, self.kv_heads], 2)
        q = rotate(self.q_norm(q), cos, sin, self.rope_parts).transpose(1, 2)
        k = rotate(self.k_norm(k), cos, sin, self.rope_parts).transpose(1, 2)
        v = rms_norm(v).transpose(1, 2)
        if self.kv_heads != self.heads:
            k, v = k.expand(-1, self.heads, -1, -1), v.expand(-1, self.heads, -1, -1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)
        return self.o_proj(out.transpose(1, 2).reshape(rows, length, -1))  # type: ignore[no-any-return]


class Mlp(nn.Module):
    """GeGLU."""

    def __init__(self, make: Any, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = make(hidden, inner), make(hidden, inner), make(inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        both = F.linear(x, torch.cat((self.gate_proj.weight, self.up_proj.weight)))
        gate, up = both.chunk(2, -1)
        return self.down_proj(F.gelu(gate, approximate="tanh") * up)  # type: ignore[no-any-return]


class Layer(nn.Module):
    """A block with four norms, of the tower or of the decoder."""

    def __init__(
        self, make: Any, hidden: int, inner: int, heads: int, kv_heads: int, head_dim: int, parts: int
    ) -> None:
        super().__init__()
        self.self_attn = Attention(make, hidden, heads, kv_heads, head_dim, parts)
        self.mlp = Mlp(make, hidden, inner)
        self.input_layernorm = Norm(hidden)
        self.post_attention_layernorm = Norm(hidden)
        self.pre_feedforward_layernorm = Norm(hidden)
        self.post_feedforward_layernorm = Norm(hidden)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.post_attention_layernorm(self.self_attn(self.input_layernorm(x), cos, sin, mask))
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))  # type: ignore[no-any-return]


class PatchEmbedder(nn.Module):
    """Pixels to vectors, and a place for each: table[0][x] + table[1][y]."""

    def __init__(self, hidden: int, patch: int, places: int) -> None:
        super().__init__()
        self.input_proj = Linear(3 * patch**2, hidden)
        self.position_embedding_table = nn.Parameter(torch.randn(2, places, hidden) * 0.02)


class Encoder(nn.Module):
    """The tower's layers, under the name that the checkpoint gives them."""

    def __init__(self, layers: list[Layer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)


class Tower(nn.Module):
    """uint8 patches of one grid to soft tokens before projection."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.hidden, self.head_dim = config["hidden_size"], config["head_dim"]
        self.theta = config["rope_parameters"]["rope_theta"]
        self.patch_embedder = PatchEmbedder(self.hidden, config["patch_size"], config["position_embedding_size"])
        heads = config["num_attention_heads"]
        self.encoder = Encoder(
            [
                Layer(Clippable, self.hidden, config["intermediate_size"], heads, heads, self.head_dim, 2)
                for _ in range(config["num_hidden_layers"])
            ]
        )

    def rope(self, xy: Tensor) -> tuple[Tensor, Tensor]:
        """cos and sin [n, 1, head_dim]: the first half of the head turns by x, the second by y."""
        half = self.head_dim // 2
        frequency = self.theta ** (-torch.arange(0, half, 2, dtype=torch.float32, device=xy.device) / half)
        angle = xy.float()[:, :, None] * frequency  # [n, 2, half / 2]
        angle = torch.cat((angle, angle), -1).flatten(1)[:, None]
        return angle.cos(), angle.sin()

    def forward(self, patches: Tensor, xy: Tensor) -> Tensor:
        """patches [pictures, n, 768] uint8, block by block; xy [n, 2]. Gives [pictures, n / 9, hidden]."""
        pixels = 2 * (patches.float() / 255 - 0.5)
        table = self.patch_embedder.position_embedding_table
        x = self.patch_embedder.input_proj(pixels.to(torch.bfloat16) if torch.is_autocast_enabled() else pixels)
        x = x + (table[0][xy[:, 0]] + table[1][xy[:, 1]]).to(x.dtype)
        cos, sin = self.rope(xy)
        cos, sin = cos.to(x.dtype), sin.to(x.dtype)
        for tensor, axis in ((x, 1), (cos, 0), (sin, 0)):  # another grid is no reason to compile again
            torch._dynamo.maybe_mark_dynamic(tensor, axis)
        for layer in self.encoder.layers:
            x = layer(x, cos, sin, None)
        pooled = x.float().unflatten(1, (-1, 9)).mean(2).to(x.dtype)
        return rms_norm((pooled.float() * self.hidden**0.5).to(x.dtype))


class Projector(nn.Module):
    """Soft tokens to the decoder's width."""

    def __init__(self, size_in: int, size_out: int) -> None:
        super().__init__()
        self.embedding_projection = Linear(size_in, size_out)


class TextLayer(Layer):
    """A decoder block; `layer_scalar` is part of the checkpoint and stays 1."""

    layer_scalar: Tensor

    def __init__(self, *sizes: Any) -> None:
        super().__init__(*sizes)
        self.register_buffer("layer_scalar", torch.ones(1))


class Decoder(nn.Module):
    """Embedding, blocks and the last norm."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        hidden, self.head_dim = config["hidden_size"], config["head_dim"]
        self.hidden, self.types = hidden, config["layer_types"]
        self.window, self.rope_parameters = config["sliding_window"], config["rope_parameters"]
        self.embed_tokens = nn.Embedding(config["vocab_size"], hidden)
        nn.init.normal_(self.embed_tokens.weight, std=hidden**-0.5)
        heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
        self.layers = nn.ModuleList(
            TextLayer(Linear, hidden, config["intermediate_size"], heads, kv, self.head_dim, 1) for _ in self.types
        )
        self.norm = Norm(hidden)

    def rope(self, pos: Tensor, kind: str) -> tuple[Tensor, Tensor]:
        """cos and sin [rows, length, 1, head_dim]."""
        settings = self.rope_parameters[kind]
        exponent = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=pos.device) / self.head_dim
        frequency = settings["rope_theta"] ** -exponent
        turning = int(settings.get("partial_rotary_factor", 1.0) * self.head_dim // 2)
        frequency = torch.where(torch.arange(len(frequency), device=pos.device) < turning, frequency, 0.0)
        angle = pos.float()[..., None] * frequency
        angle = torch.cat((angle, angle), -1)[:, :, None]
        return angle.cos(), angle.sin()


@dataclass
class Packed:
    """A batch on the device. R requests of L tokens, P pictures of n soft tokens, A answer places a request."""

    patches: Tensor  # uint8 [P, 9 n, 768], block by block
    xy: Tensor  # int64 [9 n, 2]
    tokens: Tensor  # int64 [R, L]
    pos: Tensor  # int64 [R, L]
    segment: Tensor  # int64 [R, L]: 0 prefix, SUB, 2 SUB, .. branches, between them sub-branches, -1 padding
    reach: Tensor  # int64 [R, L]: sliding layers see positions below it
    soft: Tensor  # int64 [R, L]: row of the soft tokens, -1 none
    place: Tensor  # int64 [R, A]: where an answer token is predicted
    target: Tensor  # int64 [R, A]: that token, -100 none
    weight: Tensor  # float32 [R, A]


class Mini(nn.Module):
    """The whole model: `model.*` names as in the checkpoint; the head is the embedding."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        text, vision = config["text_config"], config["vision_config"]
        self.softcap = text["final_logit_softcapping"]
        self.model = nn.Module()
        self.model.vision_tower = Tower(vision)
        self.model.embed_vision = Projector(vision["hidden_size"], text["hidden_size"])
        self.model.language_model = Decoder(text)

    @property
    def tower(self) -> Tower:
        return self.model.vision_tower  # type: ignore[return-value]

    @property
    def decoder(self) -> Decoder:
        return self.model.language_model  # type: ignore[return-value]

    def see(self, patches: Tensor, xy: Tensor) -> Tensor:
        """Soft tokens [P, n, text width]."""
        return self.model.embed_vision.embedding_projection(self.tower(patches, xy))  # type: ignore[no-any-return, union-attr, operator]

    def masks(self, batch: Packed) -> tuple[Tensor, Tensor]:
        """What full and sliding layers see, bool [R, 1, L, L]."""
        q, k = batch.segment[:, :, None], batch.segment[:, None, :]
        together = (q == k) | ((k == 0) & (q > 0)) | (k == (q & ~(SUB - 1)))
        at_q, at_k = batch.pos[:, :, None], batch.pos[:, None, :]
        full = together & (at_k <= at_q)
        sliding = together & (at_k < batch.reach[:, :, None]) & (at_k > at_q - self.decoder.window)
        return full[:, None], sliding[:, None]

    def hidden(self, batch: Packed, soft: Tensor) -> Tensor:
        """Final hidden rows [R, L, width]; `soft` are the soft tokens of all pictures."""
        decoder = self.decoder
        x = decoder.embed_tokens(batch.tokens.clamp(min=0)) * decoder.hidden**0.5
        x = x.to(soft.dtype)
        flat = soft.flatten(0, 1)
        # text rows gather any soft token, a different one each: repeated indices would make the backward pass serial
        spread = torch.arange(batch.soft.numel(), device=x.device).view_as(batch.soft) % len(flat)
        x = torch.where((batch.soft >= 0)[..., None], flat[torch.where(batch.soft >= 0, batch.soft, spread)], x)
        full, sliding = self.masks(batch)
        bias = [torch.zeros_like(m, dtype=x.dtype).masked_fill(~m, -torch.inf) for m in (full, sliding)]
        kinds = ("full_attention", "sliding_attention")
        tables = {kind: tuple(t.to(x.dtype) for t in decoder.rope(batch.pos, kind)) for kind in kinds}
        for layer, kind in zip(decoder.layers, decoder.types, strict=True):
            cos, sin = tables[kind]
            x = layer(x, cos, sin, bias[kinds.index(kind)])
        return decoder.norm(x)  # type: ignore[no-any-return]

    def logits(self, rows: Tensor) -> Tensor:
        """Softcapped float32 logits of hidden rows."""
        raw = F.linear(rows, self.decoder.embed_tokens.weight.to(rows.dtype)).float()
        return self.softcap * torch.tanh(raw / self.softcap)  # type: ignore[no-any-return]

    def forward(self, batch: Packed) -> tuple[Tensor, Tensor]:
        """Logits at the answer places [R, A, vocabulary], and the soft tokens [P, n, width]."""
        soft = self.see(batch.patches, batch.xy)
        rows = self.hidden(batch, soft)
        picked = rows.gather(1, batch.place[..., None].expand(-1, -1, rows.shape[-1]))
        return self.logits(picked), soft

    def checkpoint(self) -> dict[str, Tensor]:
        """Tensors by their names in a Gemma 4 checkpoint."""
        return dict(self.state_dict())


def blocks_first(grid_height: int, grid_width: int) -> tuple[Tensor, Tensor]:
    """(order, xy): row-major patch index of each place in block order, and its (x, y)."""
    y, x = torch.meshgrid(torch.arange(grid_height), torch.arange(grid_width), indexing="ij")
    tiles = torch.stack((x, y), -1).view(grid_height // 3, 3, grid_width // 3, 3, 2).transpose(1, 2).reshape(-1, 2)
    return tiles[:, 1] * grid_width + tiles[:, 0], tiles
