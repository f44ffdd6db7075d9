"""What is done with the head for `kernel_cases.py`: letters, greedy tokens, and tokens with their log probability."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch

from ops.bench.kernel_case import L2_FREE, REFERENCE, Case, Inputs, Shapes, device_name, draw
from photocall_engine.kernels.matmul_table import plan_for
from photocall_engine.kernels.triton_lm_head import ScanHead, greedy, letter_logits, scan_head
from photocall_engine.kernels.triton_pick import FEW, MANY, SOME, PickTile, pick

VOCABULARY = 262144
OTHER_TILES = (
    FEW,
    replace(FEW, flat=True),
    SOME,
    replace(MANY, flat=False),
)  # what pick's rows may be cut into as well


def head(model: Shapes, device: torch.device) -> Iterator[Case]:
    """Letters of 64 rows, and the greedy token of 1, 16 and 64 rows with the head in 8 bits or as it is."""
    weight = draw(device, 1, VOCABULARY, model.hidden)
    labels = torch.arange(26, dtype=torch.int32, device=device) * 5000

    def make(seed: int, m: int) -> Inputs:
        return {"hidden": draw(device, seed, m, model.hidden) / model.hidden**0.5}

    yield Case(
        "letters", f"{model.name} 64 rows x 26", partial(make, m=64),
        lambda i: letter_logits(i["hidden"], weight, labels, None),
        lambda i: REFERENCE.pair_logits(i["hidden"].cpu(), weight[labels.long()].cpu()),
        2.0 * 26 * model.hidden, 0.0, L2_FREE, 4 * 64 * 26, error_limit=1e-5,
    )  # fmt: skip
    for dtype in (torch.int8, torch.float8_e4m3fn, torch.bfloat16):
        scan = scan_head(weight, dtype)
        for m in (1, 16, 64):
            nobody = torch.full((m, 3), -1, dtype=torch.int32, device=device)

            def run(i: Inputs, scan: ScanHead = scan, nobody: torch.Tensor = nobody) -> torch.Tensor:
                return greedy(i["hidden"], weight, scan, nobody)

            yield Case(
                "greedy", f"{model.name} {m} rows {str(dtype).removeprefix('torch.')}", partial(make, m=m), run,
                lambda i: _best(i["hidden"], weight), float(scan.table.numel() * scan.table.element_size()),
                2.0 * m * VOCABULARY * model.hidden, L2_FREE, 4 * m, error_limit=0.0,
            )  # fmt: skip


def picks(model: Shapes, device: torch.device) -> Iterator[Case]:
    """A token and its log probability for 1, 64 and 256 rows, and in the tiles that other numbers of rows take."""
    weight = draw(device, 1, VOCABULARY, model.hidden)
    allowed = (torch.arange(VOCABULARY, device=device) % 7 != 3).to(torch.uint8)
    form = plan_for(device_name(device), VOCABULARY, model.hidden).form

    def make(seed: int, m: int) -> Inputs:
        return {"hidden": 4 * draw(device, seed, m, model.hidden) / model.hidden**0.5}

    def run(i: Inputs, tile: PickTile | None = None) -> torch.Tensor:
        token, logprob = pick(i["hidden"], weight, allowed, 30.0, form=form, tile=tile)
        return torch.stack((token.float(), logprob))  # ids are exact in float32

    def expected(i: Inputs) -> torch.Tensor:
        logits = 30 * torch.tanh(_logits(i["hidden"], weight) / 30)
        logprob, token = logits.masked_fill_(allowed == 0, -torch.inf).log_softmax(1).max(1)
        return torch.stack((token.float(), logprob.float()))

    def same_bits(i: Inputs) -> bool:
        """Some of the rows alone and at other places, in tiles of every height."""
        every, count = run(i), len(i["hidden"])
        parts = [slice(at, at + size) for at, size in ((0, 1), (37, 1), (5, 64), (9, 100), (0, 256)) if at < count]
        return all(
            torch.equal(run({"hidden": i["hidden"][part]}, tile), every[:, part])
            for part in parts
            for tile in (None, *OTHER_TILES)
        )

    for m, tile in ((1, None), (64, None), (256, None), *((256, other) for other in OTHER_TILES)):
        yield Case(
            "pick", f"{model.name} {m} rows" + (f" {tile}" if tile else ""), partial(make, m=m),
            partial(run, tile=tile), expected, 2.0 * VOCABULARY * model.hidden, 2.0 * m * VOCABULARY * model.hidden,
            L2_FREE, 8 * m, error_limit=1e-5, same_bits=same_bits if tile is None else None,
        )  # fmt: skip


def _best(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Greedy ids in float64."""
    return _logits(hidden, weight).argmax(1).int()


def _logits(hidden: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """In float64, in slices of the vocabulary."""
    return torch.cat([hidden.double() @ weight[p : p + 8192].double().T for p in range(0, len(weight), 8192)], dim=1)
