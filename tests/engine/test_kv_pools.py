"""The page pools: the map between them, copies in both, and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from photocall_engine.kernels.reference import ReferenceKernels
from photocall_engine.kv_pools import KvPools
from photocall_engine.model.config import TextConfig, parse_config
from photocall_engine.rows import PAGE_SIZE, Ints
from tests.engine.checkpoints import DENSE, ETYPE, FULL

CPU = torch.device("cpu")


def text_config(text: dict[str, Any]) -> TextConfig:
    return parse_config(text | {"model_type": "gemma4_text"}).text


def ints(*values: int) -> Ints:
    return np.asarray(values, dtype=np.int32)


def make(text: dict[str, Any] = DENSE, num_pages: int = 8, sliding_pages: int = 4) -> KvPools:
    return KvPools(text_config(text), num_pages, sliding_pages, CPU, torch.float32)


def test_each_writing_layer_has_the_pool_of_its_kind() -> None:
    pools = make(ETYPE)
    assert pools.layer(2).k.shape == (2, 5 * PAGE_SIZE + 1, 16)
    assert pools.layer(3).v.shape == (2, 8 * PAGE_SIZE + 1, 32)
    with pytest.raises(KeyError):
        pools.layer(4)  # shares the K/V of layer 2


def test_slots_follow_the_map_and_unmapped_ones_go_to_scratch() -> None:
    pools = make()
    pools.set_sliding_map(ints(4, 2, 3), ints(1, 4, 0))
    slots = ints(2 * 16 + 3, 3 * 16 + 5, 4 * 16)
    assert pools.slots("full", slots).tolist() == slots.tolist()
    assert pools.slots("sliding", slots).tolist() == [4 * 16 + 3, 5, 16]
    assert pools.pages("sliding", ints(2, 3, 4, 0)).tolist() == [4, 0, 1, 0]


def test_copies_go_through_both_pools() -> None:
    pools = make()
    for index in range(4):
        for pool in (pools.layer(index).k, pools.layer(index).v):
            pool.copy_(torch.arange(pool.numel()).view(pool.shape))
    pools.set_sliding_map(ints(1, 2, 3), ints(1, 2, 3))  # pages 1, 2, 3; page 4 has none
    before = [pools.layer(index).k.clone() for index in range(4)]
    copies = pools.copies(ints(1, 3), ints(2, 4))
    for kind, stack in pools.stacks():
        ReferenceKernels().copy_pages(stack, *map(torch.from_numpy, copies[kind]))
    full, sliding = pools.layer(1).k, pools.layer(0).k
    assert torch.equal(full[:, 32:48], before[1][:, 16:32])
    assert torch.equal(full[:, 64:80], before[1][:, 48:64])
    assert torch.equal(sliding[:, 32:48], before[0][:, 16:32])
    changed = (sliding != before[0]).any(dim=0).any(dim=-1).nonzero().flatten()
    assert changed.tolist() == list(range(32, 48))


@pytest.mark.parametrize(
    ("pages", "sliding", "message"),
    [
        (ints(7, 8), ints(1, 2), "outside the pool of 8"),
        (ints(-1), ints(1), "outside the pool"),
        (ints(1), ints(5), r"within 0\.\.4"),
        (ints(1), ints(-1), r"within 0\.\.4"),
        (ints(2, 0), ints(1, 1), "page 0 is scratch"),
    ],
)
def test_a_map_that_cannot_be_is_refused(pages: Ints, sliding: Ints, message: str) -> None:
    pools = make()
    with pytest.raises(ValueError, match=message):
        pools.set_sliding_map(pages, sliding)
    assert not pools.smap.any()


def test_sizes_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="num_pages=1"):
        make(num_pages=1)
    with pytest.raises(ValueError, match="sliding_pages=0"):
        make(sliding_pages=0)
    no_sliding = DENSE | {"layer_types": [FULL] * 4}
    assert make(no_sliding, sliding_pages=9).sliding_pages == 0
