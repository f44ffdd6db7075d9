"""Memory on paper: what a GPU's bytes are spent on, for the shapes of the public checkpoints."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from ops.bench.random_weights import names, read_shape
from photocall_engine.kv_pools import KvPools
from photocall_engine.model.checkpoint import weight_bytes
from photocall_engine.model.config import parse_config
from photocall_engine.rows import PAGE_SIZE
from photocall_engine.sizing import (
    GPU_MAX_PAGES,
    GPU_VALUE_BYTES,
    DoesNotFit,
    Load,
    page_bytes,
    plan_memory,
    position_values,
    sequence_bytes,
)
from photocall_engine.window import pages_for
from tests.engine.checkpoints import DENSE, ETYPE

H200 = int(0.9 * 141e9)
LOAD = Load(max_rows=2048, token_budget=1536, max_requests=64, encode_budget=280)


def test_4k_tokens_of_31b_take_at_most_035_of_one_pool_for_all_layers() -> None:
    text = read_shape("31b").text
    one_pool = 4096 * position_values(text) * GPU_VALUE_BYTES
    assert one_pool == 4096 * (10 * 2 * 4 * 512 + 50 * 2 * 16 * 256) * 2
    share = sequence_bytes(text, 4096, GPU_VALUE_BYTES) / one_pool
    assert 0.32 < share <= 0.35


def test_short_sequences_take_what_one_pool_would() -> None:
    text = read_shape("31b").text
    assert sequence_bytes(text, 320, 2) == 320 * position_values(text) * 2
    assert sequence_bytes(text, 321, 2) == sequence_bytes(text, 336, 2)


@pytest.mark.parametrize("raw", [DENSE, ETYPE], ids=["dense", "etype"])
def test_a_page_has_the_bytes_that_the_pools_allocate(raw: dict[str, object]) -> None:
    text = parse_config({"model_type": "gemma4_text", **raw}).text
    pools = KvPools(text, 5, 4, torch.device("cpu"), torch.float32)
    for kind in ("full", "sliding"):
        layers = [layer.index for layer in text.layers if layer.writes_kv and layer.kind == kind]
        values = sum(x.numel() // x.shape[1] for index in layers for x in (pools.layer(index).k, pools.layer(index).v))
        assert page_bytes(text, 4, "full" if kind == "full" else "sliding") == values * PAGE_SIZE * 4
    assert page_bytes(text) == page_bytes(text, 4, "full") + page_bytes(text, 4, "sliding")


@pytest.mark.parametrize("name", names())
def test_every_shape_fits_an_h200_and_everything_is_counted(name: str) -> None:
    config = read_shape(name)
    weights = weight_bytes(config, torch.bfloat16)
    plan = plan_memory(config, H200, weights, LOAD)
    spent = plan.weights + plan.arena + plan.activations + plan.graphs + plan.kv
    assert spent <= plan.room == H200
    full, sliding = (page_bytes(config.text, 2, kind) for kind in ("full", "sliding"))
    assert plan.kv == plan.pools.num_pages * full + (plan.pools.sliding_pages + 1) * sliding
    assert plan.room - spent < full + sliding or plan.pools.num_pages == GPU_MAX_PAGES
    assert plan.pools.num_pages * PAGE_SIZE >= 65_536
    assert f"weights {weights / 1e9:.2f}" in str(plan)


def test_the_sliding_pool_stops_where_requests_and_as_much_again_are_served() -> None:
    config = read_shape("e4b")
    pools = plan_memory(config, H200, weight_bytes(config, torch.bfloat16), LOAD).pools
    assert pools.sliding_pages == 2 * (64 * (pages_for(511) + 1) + 96)
    assert pools.num_pages > pools.sliding_pages + 1
    small = plan_memory(config, 20 * 10**9, weight_bytes(config, torch.bfloat16), LOAD).pools
    assert small.sliding_pages == small.num_pages - 1


def test_what_does_not_fit_is_refused_with_the_numbers() -> None:
    config = read_shape("31b")
    weights = weight_bytes(config, torch.bfloat16)
    with pytest.raises(DoesNotFit, match=r"48\.00 GB of memory do not hold weights of 62\.5\d, .* GB are missing"):
        plan_memory(config, 48 * 10**9, weights, LOAD)
    with pytest.raises(DoesNotFit, match=r"100000 pages of K/V"):
        plan_memory(config, H200, weights, LOAD, pages=100_000)
    assert plan_memory(config, H200, weights, LOAD, pages=1000).pools.num_pages == 1000
    with pytest.raises(DoesNotFit):
        plan_memory(config, H200, weights, replace(LOAD, max_rows=4_000_000))
