"""Letters and greedy tokens from Triton's head kernels: exact against searches through all logits.

Letters: float32 sums of K terms in a fixed order, 1e-5 x sqrt(K) against float64. Greedy ids are compared exactly, on
integer-valued inputs where logits (and ties) are exact in any order, and on random ones where the best is clear.
"""

from __future__ import annotations

import pytest
import torch

from tests.engine.interpreter import DEVICE

# isort: split
from photocall_engine.kernels.reference import ReferenceKernels
from photocall_engine.kernels.triton_lm_head import ScanHead, greedy, letter_logits, scan_head

COPIES = pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.bfloat16], ids=str)


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).to(DEVICE)


def whole_numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-4, 5, shape, generator=generator).to(torch.bfloat16).to(DEVICE)


def exclude(rows: int, ids: dict[int, list[int]] | None = None) -> torch.Tensor:
    out = torch.full((rows, 3), -1, dtype=torch.int32)
    for row, values in (ids or {}).items():
        out[row, : len(values)] = torch.tensor(values)
    return out.to(DEVICE)


def searched(hidden: torch.Tensor, head: torch.Tensor, excluded: torch.Tensor) -> torch.Tensor:
    """The lowest id of the largest logit, in float64."""
    logits = hidden.double() @ head.double().T
    for row, ids in enumerate(excluded.tolist()):
        logits[row, [i for i in ids if i >= 0]] = -torch.inf
    best = logits.amax(1, keepdim=True)
    return (logits == best).int().argmax(1).int()  # of equals, argmax of a mask on the CPU takes the first


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_letters_are_one_fixed_sum_each(dtype: torch.dtype) -> None:
    hidden, head = draw(5, 640, dtype=dtype), draw(30, 640, seed=1, dtype=dtype)
    ids = torch.tensor([7, 3, 29, 0], dtype=torch.int32, device=DEVICE)
    found = letter_logits(hidden, head, ids, None)
    assert (found - hidden.double() @ head.double()[ids.long()].T).abs().max() < 1e-5 * 640**0.5
    near = ReferenceKernels().pair_logits(hidden.cpu(), head.cpu()[ids.cpu().long()])
    assert (found.cpu() - near).abs().max() < 2e-5 * 640**0.5
    for row, label in ((0, 0), (4, 2), (2, 3)):
        alone = letter_logits(hidden[row : row + 1], head, ids[label : label + 1], None)
        assert torch.equal(alone[0, 0], found[row, label])
    capped = letter_logits(hidden * 4, head, ids, 30.0)
    plain = letter_logits(hidden * 4, head, ids, None)
    assert (capped - 30 * torch.tanh(plain / 30)).abs().max() < 1e-5  # a few units of the last bit of 30
    assert letter_logits(hidden[:0], head, ids, None).shape == (0, 4)


@COPIES
def test_the_bound_holds_for_every_logit(dtype: torch.dtype) -> None:
    hidden, head = draw(9, 200, dtype=torch.bfloat16), draw(300, 200, seed=1, dtype=torch.bfloat16)
    scan = scan_head(head, dtype)
    exact = hidden.double() @ head.double().T
    scanned = hidden.double() @ (scan.table.float().double() * scan.scale.double()[:, None]).T
    bound = hidden.double().norm(dim=1)[:, None] * scan.slack.double()
    assert ((exact - scanned).abs() <= bound).all()
    assert bound.mean() < exact.std() * (2.0 if dtype == torch.float8_e4m3fn else 1.0)


@COPIES
def test_greedy_finds_the_best(dtype: torch.dtype) -> None:
    hidden, head = draw(3, 96, dtype=torch.bfloat16), draw(600, 96, seed=1, dtype=torch.bfloat16)
    scan = scan_head(head, dtype)
    nobody = exclude(3)
    first = searched(hidden, head, nobody)
    assert torch.equal(greedy(hidden, head, scan, nobody, programs=3), first)
    second = exclude(3, {0: [int(first[0])], 1: [int(first[1]), 5], 2: [0, 1, int(first[2])]})
    found = greedy(hidden, head, scan, second, programs=2)
    assert torch.equal(found, searched(hidden, head, second))
    assert not (found == first).any()


@COPIES
def test_ties_go_to_the_lowest_id(dtype: torch.dtype) -> None:
    """Equal rows of the head in one block, in two, and two that the copy cannot tell apart."""
    hidden, head = whole_numbers(4, 64), whole_numbers(400, 64, seed=1)
    for row, ids in enumerate(([300, 5], [130, 129], [399, 0, 200], [77, 78])):
        head[ids] = hidden[row].sign() * 4
    nobody = exclude(4)
    found = greedy(hidden, head, scan_head(head, dtype), nobody, programs=3)
    assert torch.equal(found, searched(hidden, head, nobody))
    assert torch.equal(greedy(hidden[2:3], head, scan_head(head, dtype), nobody[:1], programs=1)[0], found[2])
    without = exclude(4, {0: [5], 1: [129, 130, 7], 2: [0, 200]})
    found = greedy(hidden, head, scan_head(head, dtype), without, programs=3)
    assert torch.equal(found, searched(hidden, head, without))


def test_a_useless_bound_is_a_full_search() -> None:
    """Every block is a candidate: more of them than programs, and the answer is the same."""
    hidden, head = draw(2, 64, dtype=torch.bfloat16), draw(700, 64, seed=1, dtype=torch.bfloat16)
    scan = scan_head(head, torch.int8)
    useless = ScanHead(scan.table, scan.scale, torch.full_like(scan.slack, 1e4))
    nobody = exclude(2)
    assert torch.equal(greedy(hidden, head, useless, nobody, programs=2), searched(hidden, head, nobody))


def test_nan_is_no_token() -> None:
    hidden, head = draw(2, 64), draw(200, 64)
    hidden[0, 3] = torch.nan
    found = greedy(hidden, head, scan_head(head, torch.int8), exclude(2), programs=2)
    assert int(found[0]) == 2**31 - 1
    assert torch.equal(found[1:], searched(hidden[1:], head, exclude(1)))


def test_a_third_exclusion_is_the_most() -> None:
    hidden, head = draw(1, 64), draw(20, 64)
    with pytest.raises(ValueError, match="expected"):
        greedy(hidden, head, scan_head(head, torch.int8), torch.zeros(1, 4, dtype=torch.int32, device=DEVICE))
