# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803 (constants of a kernel are written in capitals)
"""The likeliest token of each row and its log probability, in Triton, from whole rows of logits.

One program walks a row in blocks at fixed places, with the online form of the softmax's sum (Milakov and Gimelshein,
arXiv:1805.02867), so a row's bits depend on nothing but the row. So far run in Triton's interpreter only.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from photocall_engine.kernels.triton_math import softcapped

_BLOCK = 2048


def pick(logits: torch.Tensor, allowed: torch.Tensor, cap: float | None) -> tuple[torch.Tensor, torch.Tensor]:
    """From logits float32[n, V] to (token int32[n], log probability float32[n]) among ids with allowed uint8[V] != 0.

    Logits are softcapped first where there is a cap. Ties go to the lowest id. A row that holds NaN gets a log
    probability of NaN.
    """
    token = torch.empty(len(logits), dtype=torch.int32, device=logits.device)
    logprob = torch.empty(len(logits), dtype=torch.float32, device=logits.device)
    if len(logits):
        _pick[(len(logits),)](
            logits, allowed, token, logprob, logits.stride(0), logits.shape[1], cap, BLOCK=_BLOCK, num_warps=8
        )
    return token, logprob


@triton.jit
def _pick(logits, allowed, token, logprob, stride, vocab, cap, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    best = float("-inf")
    best_id = 0
    total = 0.0
    for start in range(0, vocab, BLOCK):
        ids = start + tl.arange(0, BLOCK)
        inside = ids < vocab
        values = tl.load(logits + row * stride + ids, mask=inside, other=0.0)
        if cap is not None:
            values = softcapped(values, cap)
        values = tl.where(tl.load(allowed + ids, mask=inside, other=0) != 0, values, float("-inf"))
        top = tl.max(values, 0)
        first = tl.min(tl.where(values == top, ids, vocab), 0)
        best_id = tl.where(top > best, first, best_id)
        higher = tl.maximum(best, top)
        base = tl.where(higher == float("-inf"), 0.0, higher)  # nothing is allowed so far: every term is exactly 0
        total = total * tl.exp(best - base) + tl.sum(tl.exp(values - base), 0)
        best = higher
    tl.store(token + row, best_id)
    tl.store(logprob + row, -tl.log(total))
