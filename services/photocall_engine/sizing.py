"""How many pages a runner gets: from the checkpoint's layers and the memory there is.

On the CPU K/V get a fixed sum. On a GPU everything is counted first: weights, soft-token arena, what one step needs
while it runs, and a reserve for captured graphs; the pools get the rest, or the start stops with all the numbers.
Nothing here touches a device: what is free is an argument.
"""

from __future__ import annotations

from dataclasses import dataclass

from photocall_engine.model.config import LayerKind, MergerConfig, ModelConfig, TextConfig, VisionConfig
from photocall_engine.rows import PAGE_SIZE
from photocall_engine.window import pages_for, sliding_pages_during

CPU_KV_BYTES = 1 << 30
CPU_VALUE_BYTES = 4  # the CPU runner keeps float32
GPU_VALUE_BYTES = 2
MAX_PLANNED_PAGES = 4096  # 65,536 positions; more is only scanned, not used, by the loads a CPU can serve
GPU_MAX_PAGES = 32_768  # 524,288 positions
SOFT_ROWS = 8 * 1120  # eight pictures of the largest budget
LARGEST_PICTURE = 1120
GRAPH_BYTES = 3 << 29  # 1.5 GiB: captured graphs of the decoder keep their own activations
PART_ROOM = 4096  # parts of rows whose attention is split among programs: 256 rows of 4,096 positions
SLACK = 1.25  # what the allocator loses between tensors of different sizes
GB = 1e9


class DoesNotFit(ValueError):
    """Weights and pools need more memory than there is; the message has the numbers."""


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """Pages of both pools, scratch page included, and rows of the soft-token arena."""

    num_pages: int
    sliding_pages: int
    soft_capacity: int


@dataclass(frozen=True, slots=True)
class Load:
    """What one step may hold at most, from the settings."""

    max_rows: int
    token_budget: int
    max_requests: int
    encode_budget: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Where the memory of a GPU goes, in bytes."""

    room: int
    weights: int
    arena: int
    activations: int
    graphs: int
    kv: int
    pools: PoolSizes

    def __str__(self) -> str:
        return (
            f"{_gb(self.room)} GB: weights {_gb(self.weights)}, K/V {_gb(self.kv)} ({self.pools.num_pages} pages,"
            f" {self.pools.sliding_pages} sliding), a step {_gb(self.activations)}, graphs {_gb(self.graphs)},"
            f" soft tokens {_gb(self.arena)}"
        )


def plan_pools(config: TextConfig, pages: int = 0, kv_bytes: int = CPU_KV_BYTES) -> PoolSizes:
    """For the CPU: `pages` full pages, or as many as fit into `kv_bytes`; each with its sliding page."""
    if not pages:
        pages = max(2, min(MAX_PLANNED_PAGES, kv_bytes // page_bytes(config)))
    return PoolSizes(pages, pages - 1 if config.window else 0, SOFT_ROWS)


def plan_memory(config: ModelConfig, room: int, weights: int, load: Load, pages: int = 0) -> MemoryPlan:
    """For a GPU: what `room` bytes are spent on, when the weights take `weights` of them.

    The sliding pool holds what all requests need at once, and as much again for cached prefixes; beyond that a page
    more is a page of full layers, which remember longer. `pages` fixes the full pool. Raises DoesNotFit.
    """
    text = config.text
    arena = SOFT_ROWS * text.hidden_size * GPU_VALUE_BYTES
    activations = activation_bytes(config, load)
    graphs = GRAPH_BYTES + _tower_bytes(config, load)  # the largest pass once more, in the graphs' own memory
    left = room - weights - arena - activations - graphs
    full, sliding = (page_bytes(text, GPU_VALUE_BYTES, kind) for kind in _KINDS)
    wanted = 2 * (load.max_requests * sliding_pages_during(text.window, 0) + pages_for(load.token_budget))
    if not pages:
        both = left // (full + sliding)
        pages = min(GPU_MAX_PAGES, both if both <= wanted or not full else (left - wanted * sliding) // full)
    sliding_pages = min(pages - 1, wanted) if text.window else 0
    least = _least_pages(text, load)
    kv = pages * full + (sliding_pages + 1) * sliding
    if pages < least or kv > left:
        needed = max(pages, least)
        raise DoesNotFit(
            f"{_gb(room)} GB of memory do not hold weights of {_gb(weights)}, a step of {_gb(activations)}, graphs of"
            f" {_gb(graphs)}, soft tokens of {_gb(arena)} and {needed} pages of K/V of"
            f" {_gb(needed * (full + sliding))}: {_gb(max(0, needed * (full + sliding) - left))} GB are missing"
        )
    return MemoryPlan(room, weights, arena, activations, graphs, kv, PoolSizes(pages, sliding_pages, SOFT_ROWS))


_KINDS: tuple[LayerKind, LayerKind] = ("full", "sliding")


def page_bytes(config: TextConfig, value_bytes: int = CPU_VALUE_BYTES, kind: LayerKind | None = None) -> int:
    """Bytes of one page over all layers that write K/V, or those of one kind."""
    return position_values(config, kind) * PAGE_SIZE * value_bytes


def position_values(config: TextConfig, kind: LayerKind | None = None) -> int:
    """Values of K and V that one position takes in all layers, or in those of one kind."""
    layers = [layer for layer in config.layers if layer.writes_kv and kind in (None, layer.kind)]
    return sum(2 * layer.num_kv_heads * layer.head_dim for layer in layers)


def sequence_bytes(config: TextConfig, length: int, value_bytes: int) -> int:
    """K/V of a sequence between two decode steps: full layers keep all of it, sliding ones the pages of the window."""
    full = pages_for(length)
    sliding = min(full, sliding_pages_during(config.window, 0)) if config.window else 0
    per_full, per_sliding = (page_bytes(config, value_bytes, kind) for kind in _KINDS)
    return full * per_full + sliding * per_sliding


def activation_bytes(config: ModelConfig, load: Load) -> int:
    """What kernels keep, and one step while it runs: decoder rows, full logits of all requests, tower rows."""
    text = config.text
    width = max(text.num_heads * layer.head_dim for layer in text.layers)
    stacked = max((text.num_heads + 2 * layer.num_kv_heads) * layer.head_dim for layer in text.layers)
    wide = max(layer.intermediate_size for layer in text.layers)
    row = 4 * text.hidden_size + stacked + 2 * width + 3 * wide + 3 * len(text.layers) * text.per_layer_size
    if text.experts is not None:
        row += text.experts.top_k * (2 * text.hidden_size + 3 * text.experts.width)
    decoder = load.max_rows * row * GPU_VALUE_BYTES + 2 * 4 * load.max_requests * text.vocab_size
    shapes = {(layer.kind, layer.head_dim) for layer in text.layers}
    parts = sum(4 * PART_ROOM * text.num_heads * head_dim for _, head_dim in shapes)
    scanned = text.vocab_size * text.hidden_size  # the head in 8 bits, for greedy tokens
    return parts + scanned + int(SLACK * decoder) + _tower_bytes(config, load)


def _tower_bytes(config: ModelConfig, load: Load) -> int:
    """Of one tower pass."""
    soft = max(load.encode_budget, LARGEST_PICTURE)
    return int(SLACK * soft * _soft_token_values(config) * GPU_VALUE_BYTES)


def _soft_token_values(config: ModelConfig) -> int:
    """Values that one soft token of a tower pass takes: nine patches at the widest place of a layer."""
    vision = config.vision
    if isinstance(vision, VisionConfig):
        qkv = 3 * (vision.num_heads + 2 * vision.num_kv_heads) * vision.head_dim
        return 9 * (4 * vision.hidden_size + max(qkv, 3 * vision.intermediate_size))
    if isinstance(vision, MergerConfig):
        return 9 * 3 * vision.patch_size**2 * 4 + 4 * vision.width
    return 0


def _least_pages(text: TextConfig, load: Load) -> int:
    """Below this one step's rows could not even be written."""
    return pages_for(load.token_budget) + (sliding_pages_during(text.window, 0) if text.window else 0) + 4


def _gb(size: int) -> str:
    return f"{size / GB:.2f}"
