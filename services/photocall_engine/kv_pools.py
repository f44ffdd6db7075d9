"""The two page pools of K/V: one for full-attention layers, one for sliding layers, with the map between them.

Page 0 of both is scratch and never handed out. One slot past the last page always holds zeros: masked positions are
read from there, so that what a stale page holds can never reach a sum. Which page belongs to whom is decided elsewhere.
The map is kept on the host: it is applied to the slots and block tables of each batch when the batch is laid out, so a
change reaches the device in order with the rows that it is for, and never those issued before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from photocall_engine.model.config import LayerConfig, LayerKind, TextConfig
from photocall_engine.rows import PAGE_SIZE, Ints


@dataclass(frozen=True, slots=True)
class LayerKv:
    """K and V of one layer."""

    k: torch.Tensor  # [kv_heads, slots + 1, head_dim]
    v: torch.Tensor


class KvPools:
    """Page tensors of every layer that writes K/V, by layer index; layers that share read their source's."""

    def __init__(
        self, config: TextConfig, num_pages: int, sliding_pages: int, device: torch.device, dtype: torch.dtype
    ) -> None:
        if num_pages < 2:
            raise ValueError(f"num_pages={num_pages}: page 0 is scratch, so at least 2 are needed")
        if config.window and sliding_pages < 1:
            raise ValueError(f"sliding_pages={sliding_pages}: the model has sliding layers")
        self.num_pages = num_pages
        self.sliding_pages = sliding_pages if config.window else 0
        self.smap = np.zeros(num_pages, dtype=np.int32)  # full page -> sliding page; 0: none
        self.device = device
        self._layers: dict[int, LayerKv] = {}
        self._stacks: list[tuple[LayerKind, torch.Tensor]] = []  # [layers * 2 * kv_heads, slots + 1, head_dim]
        alike: dict[tuple[LayerKind, int, int], list[LayerConfig]] = {}
        for layer in config.layers:
            if layer.writes_kv:
                alike.setdefault((layer.kind, layer.num_kv_heads, layer.head_dim), []).append(layer)
        for (kind, kv_heads, head_dim), layers in alike.items():
            shape = (len(layers), 2, kv_heads, self._num_slots(kind) + 1, head_dim)
            stack = torch.zeros(shape, device=device, dtype=dtype)
            self._stacks.append((kind, stack.flatten(0, 2)))
            for layer, kv in zip(layers, stack, strict=True):
                self._layers[layer.index] = LayerKv(kv[0], kv[1])

    def layer(self, kv_layer: int) -> LayerKv:
        """K/V written by layer `kv_layer`."""
        return self._layers[kv_layer]

    def page_bytes(self, kind: LayerKind) -> int:
        """K and V of one page in every layer of a kind."""
        stacks = [stack for other, stack in self._stacks if other == kind]
        return sum(PAGE_SIZE * stack[:, 0].numel() * stack.element_size() for stack in stacks)

    def zero_slot(self, kind: LayerKind) -> int:
        """The slot that holds zeros."""
        return self._num_slots(kind)

    def pages(self, kind: LayerKind, full_pages: Ints) -> Ints:
        """Pages of this kind's pool for pages of the full pool."""
        return full_pages if kind == "full" else self.smap[full_pages]

    def slots(self, kind: LayerKind, full_slots: Ints) -> Ints:
        """The same for slots; where no sliding page is mapped, a slot of the scratch page."""
        if kind == "full":
            return full_slots
        return self.smap[full_slots // PAGE_SIZE] * PAGE_SIZE + full_slots % PAGE_SIZE

    def set_sliding_map(self, pages: Ints, sliding: Ints) -> None:
        """smap[pages] = sliding."""
        if not len(pages):
            return
        if pages.min() < 0 or pages.max() >= self.num_pages:
            raise ValueError(f"pages {pages.min()}..{pages.max()} are outside the pool of {self.num_pages}")
        if sliding.min() < 0 or sliding.max() > self.sliding_pages:
            raise ValueError(f"sliding pages must be within 0..{self.sliding_pages}")
        if sliding[pages == 0].any():
            raise ValueError("page 0 is scratch and cannot be mapped")
        self.smap[pages] = sliding

    def copies(self, src: Ints, dst: Ints) -> dict[LayerKind, tuple[Ints, Ints]]:
        """What copying full pages src[i] -> dst[i] means in each pool: sliding pages where both are mapped."""
        sliding_src, sliding_dst = self.smap[src], self.smap[dst]
        mapped = (sliding_src > 0) & (sliding_dst > 0)
        return {"full": (src, dst), "sliding": (sliding_src[mapped], sliding_dst[mapped])}

    def stacks(self) -> list[tuple[LayerKind, torch.Tensor]]:
        """Every K and V tensor, those of one shape as one: [layers * 2 * kv_heads, slots + 1, head_dim]."""
        return self._stacks

    def _num_slots(self, kind: LayerKind) -> int:
        return PAGE_SIZE * (self.num_pages if kind == "full" else self.sliding_pages + 1)
