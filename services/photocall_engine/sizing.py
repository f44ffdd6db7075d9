"""How many pages a runner gets, from the checkpoint's layers and the memory there is for K/V."""

from __future__ import annotations

from dataclasses import dataclass

from photocall_engine.model.config import TextConfig
from photocall_engine.rows import PAGE_SIZE

CPU_KV_BYTES = 1 << 30
CPU_VALUE_BYTES = 4  # the CPU runner keeps float32
MAX_PLANNED_PAGES = 4096  # 65,536 positions; more is only scanned, not used, by the loads a CPU can serve
SOFT_ROWS = 8 * 1120  # eight pictures of the largest budget


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """Pages of both pools, scratch page included, and rows of the soft-token arena."""

    num_pages: int
    sliding_pages: int
    soft_capacity: int


def plan_pools(config: TextConfig, pages: int = 0, kv_bytes: int = CPU_KV_BYTES) -> PoolSizes:
    """`pages` full pages, or as many as fit into `kv_bytes`; each with its sliding page, as short prompts need."""
    if not pages:
        pages = max(2, min(MAX_PLANNED_PAGES, kv_bytes // page_bytes(config)))
    return PoolSizes(pages, pages - 1 if config.window else 0, SOFT_ROWS)


def page_bytes(config: TextConfig) -> int:
    """Bytes of one page over all layers that write K/V."""
    values = sum(2 * layer.num_kv_heads * layer.head_dim for layer in config.layers if layer.writes_kv)
    return values * PAGE_SIZE * CPU_VALUE_BYTES
