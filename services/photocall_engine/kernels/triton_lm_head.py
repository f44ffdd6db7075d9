# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators
# ruff: noqa: N803 (constants of a kernel are written in capitals)
"""The head without its full logits, in Triton: letters of some rows, and the greedy token of others.

Greedy: a scan multiplies the rows with a copy of the head in 8 bits and keeps, for each block of tokens, the largest
lower and upper bound of a logit; every block whose upper bound reaches the best lower bound is then multiplied exactly,
and the largest exact logit wins, the lowest id among equals. |exact - scanned| <= |h| (|w - scale q| + rounding), by
Cauchy and Schwarz, so the answer is that of a search through all exact logits, whatever the copy: a poor bound only
means more blocks. There is no list that can overflow, so the full path is the case in which every block is a candidate.
Softcapping is monotone and plays no part.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from photocall_engine.kernels.triton_math import softcapped

BLOCK_V = 128  # tokens of one block
MAX_EXCLUDED = 3
_SCAN_K = 64
_EXACT_K = 64
_PAIR_K = 512
_ROUNDING = 2.0**-21  # of each of K sums, with the coarser sums of matrix instructions in mind


@dataclass(frozen=True, slots=True)
class ScanHead:
    """A copy of the head for scanning, and what it may be wrong by."""

    table: torch.Tensor  # [V, K] int8 or float8_e4m3fn; or the head itself
    scale: torch.Tensor  # float32[V]
    slack: torch.Tensor  # float32[V] |exact - scanned| <= |h| * slack


@torch.no_grad()
def scan_head(head: torch.Tensor, dtype: torch.dtype) -> ScanHead:
    """Round the head [V, K] to int8, float8_e4m3fn, or not at all (its own type).

    For rows of normally distributed weights int8 with a scale for each token is about 3 times closer than e4m3, whose
    three bits of mantissa cost large weights most; both take a byte.
    """
    largest = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0}.get(dtype)
    table = torch.empty(head.shape, dtype=dtype, device=head.device)
    scale = torch.empty(len(head), dtype=torch.float32, device=head.device)
    slack = torch.empty_like(scale)
    for start in range(0, len(head), 8192):
        part = slice(start, start + 8192)
        weight = head[part].double()
        if largest is None:
            scale[part] = 1.0
            table[part] = head[part]
        else:
            scale[part] = (weight.abs().amax(1) / largest).clamp(min=1e-30).float()
            steps = weight / scale[part].double()[:, None]
            table[part] = (steps.round() if dtype == torch.int8 else steps.float()).to(dtype)
        kept = table[part].float().double() * scale[part].double()[:, None]
        wrong = (weight - kept).norm(dim=1) + head.shape[1] * _ROUNDING * (weight.norm(dim=1) + kept.norm(dim=1))
        slack[part] = (wrong * (1 + 1e-6)).float()
    return ScanHead(table, scale, slack)


def letter_logits(hidden: torch.Tensor, head: torch.Tensor, label_ids: torch.Tensor, cap: float | None) -> torch.Tensor:
    """hidden [n, K] times rows label_ids int32[m] of head [V, K]: float32[n, m], softcapped where there is a cap.

    One program and one fixed reduction for each pair: its bits do not depend on which others are asked.
    """
    out = torch.empty(len(hidden), len(label_ids), dtype=torch.float32, device=hidden.device)
    if out.numel():
        _pairs[(len(hidden), len(label_ids))](
            hidden, head, label_ids, out, hidden.stride(0), hidden.shape[1], len(label_ids), cap,
            BLOCK=_PAIR_K, num_warps=4,
        )  # fmt: skip
    return out


def greedy(
    hidden: torch.Tensor, head: torch.Tensor, scan: ScanHead, excluded: torch.Tensor, *, programs: int = 64
) -> torch.Tensor:
    """The id of the largest exact logit of each row, int32[n], ties to the lowest id.

    hidden [n, K], head [V, K], excluded int32[n, 3]: ids that a row must not take, -1: none. `programs` of each row
    share its candidates; nothing is read back in between. A row that holds NaN gets 2^31 - 1, which is no id.
    """
    rows, k = hidden.shape
    vocabulary = len(head)
    if excluded.shape != (rows, MAX_EXCLUDED):
        raise ValueError(f"excluded ids {tuple(excluded.shape)}, expected {(rows, MAX_EXCLUDED)}; -1 is none")
    blocks = triton.cdiv(vocabulary, BLOCK_V)
    device = hidden.device
    bounds = torch.empty(2, rows, blocks, dtype=torch.float32, device=device)  # best lower, best upper of each block
    norms = torch.empty(rows, dtype=torch.float32, device=device)
    chosen = torch.empty(rows, blocks, dtype=torch.int32, device=device)
    count = torch.empty(rows, dtype=torch.int32, device=device)
    best = torch.empty(rows, programs, dtype=torch.float32, device=device)
    best_id = torch.empty(rows, programs, dtype=torch.int32, device=device)
    out = torch.empty(rows, dtype=torch.int32, device=device)
    if not rows:
        return out
    _row_norms[(rows,)](hidden, norms, hidden.stride(0), k, BLOCK=triton.next_power_of_2(k), num_warps=4)
    _scan[(blocks, triton.cdiv(rows, 64))](
        hidden, scan.table, scan.scale, scan.slack, norms, excluded, bounds, hidden.stride(0), rows, k, vocabulary,
        blocks, BLOCK_M=64, BLOCK_V=BLOCK_V, BLOCK_K=_SCAN_K, EXCLUDED=MAX_EXCLUDED, num_warps=8, num_stages=4,
    )  # fmt: skip
    _choose[(rows,)](bounds, chosen, count, rows, blocks, BLOCK=triton.next_power_of_2(blocks), num_warps=8)
    _rescore[(rows, programs)](
        hidden, head, excluded, chosen, count, best, best_id, hidden.stride(0), k, vocabulary, blocks,
        BLOCK_V=BLOCK_V, BLOCK_K=_EXACT_K, EXCLUDED=MAX_EXCLUDED, num_warps=8,
    )  # fmt: skip
    _best[(rows,)](best, best_id, out, programs, BLOCK=triton.next_power_of_2(programs), num_warps=1)
    return out


@triton.jit(do_not_specialize=["num_labels"])
def _pairs(hidden, head, labels, out, stride, k, num_labels, cap, BLOCK: tl.constexpr):
    row, label = tl.program_id(0), tl.program_id(1)
    token = tl.load(labels + label).to(tl.int64)
    i = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, k, BLOCK):
        inside = start + i < k
        h = tl.load(hidden + row.to(tl.int64) * stride + start + i, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(head + token * k + start + i, mask=inside, other=0.0).to(tl.float32)
        acc = tl.fma(h, w, acc)
    logit = tl.sum(acc, 0)
    if cap is not None:
        logit = softcapped(logit, cap)
    tl.store(out + row * num_labels + label, logit)


@triton.jit
def _row_norms(hidden, norms, stride, k, BLOCK: tl.constexpr):
    """A little more than the length of each row."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    h = tl.load(hidden + row.to(tl.int64) * stride + i, mask=i < k, other=0.0).to(tl.float32)
    tl.store(norms + row, tl.sqrt(tl.sum(h * h, 0)) * 1.00001)


@triton.jit(do_not_specialize=["num_rows"])
def _scan(
    hidden, table, scale, slack, norms, excluded, bounds, stride, num_rows, k, vocabulary, num_blocks,
    BLOCK_M: tl.constexpr, BLOCK_V: tl.constexpr, BLOCK_K: tl.constexpr, EXCLUDED: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    row = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    token = block * BLOCK_V + tl.arange(0, BLOCK_V)
    real_row, real = row < num_rows, token < vocabulary
    i = tl.arange(0, BLOCK_K)
    h_place = hidden + row.to(tl.int64)[:, None] * stride + i[None, :]
    w_place = table + token.to(tl.int64)[None, :] * k + i[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_V), tl.float32)
    for start in range(0, k, BLOCK_K):
        h = tl.load(h_place + start, mask=real_row[:, None] & (start + i < k)[None, :], other=0.0)
        w = tl.load(w_place + start, mask=real[None, :] & (start + i < k)[:, None], other=0.0)
        # 8 bits fit into bfloat16 exactly; e4m3 goes by way of float32
        acc = tl.dot(h, w.to(tl.float32).to(h.dtype), acc, input_precision="ieee")
    logit = acc * tl.load(scale + token, mask=real, other=0.0)[None, :]
    norm = tl.load(norms + row, mask=real_row, other=0.0)
    wrong = norm[:, None] * tl.load(slack + token, mask=real, other=0.0)[None, :]
    allowed = real[None, :] & real_row[:, None] & (logit == logit)  # NaN is nobody's best
    for place in range(EXCLUDED):
        allowed &= tl.load(excluded + row * EXCLUDED + place, mask=real_row, other=-1)[:, None] != token[None, :]
    lower = tl.where(allowed, logit - wrong, float("-inf"))
    upper = tl.where(allowed, logit + wrong, float("-inf"))
    tl.store(bounds + row * num_blocks + block, tl.max(lower, 1), mask=real_row)
    tl.store(bounds + (num_rows + row) * num_blocks + block, tl.max(upper, 1), mask=real_row)


@triton.jit(do_not_specialize=["num_rows"])
def _choose(bounds, chosen, count, num_rows, num_blocks, BLOCK: tl.constexpr):
    """Blocks whose upper bound reaches the best lower bound, ascending."""
    row = tl.program_id(0)
    b = tl.arange(0, BLOCK)
    real = b < num_blocks
    lower = tl.load(bounds + row * num_blocks + b, mask=real, other=float("-inf"))
    upper = tl.load(bounds + (num_rows + row) * num_blocks + b, mask=real, other=float("-inf"))
    candidate = (upper >= tl.max(lower, 0)) & (upper > float("-inf")) & real
    place = tl.cumsum(candidate.to(tl.int32), 0) - 1
    tl.store(chosen + row * num_blocks + place, b, mask=candidate)
    tl.store(count + row, tl.sum(candidate.to(tl.int32), 0))


@triton.jit
def _rescore(
    hidden, head, excluded, chosen, count, best, best_id, stride, k, vocabulary, num_blocks,
    BLOCK_V: tl.constexpr, BLOCK_K: tl.constexpr, EXCLUDED: tl.constexpr,
):  # fmt: skip
    """The largest exact logit among every programs-th candidate block. Float32, one reduction shape for every pair."""
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK_K)
    top = tl.full((), float("-inf"), tl.float32)
    top_id = tl.full((), 2147483647, tl.int32)
    for entry in range(tl.program_id(1), tl.load(count + row), tl.num_programs(1)):
        token = tl.load(chosen + row * num_blocks + entry) * BLOCK_V + tl.arange(0, BLOCK_V)
        real = token < vocabulary
        acc = tl.zeros((BLOCK_V, BLOCK_K), tl.float32)
        w_place = head + token.to(tl.int64)[:, None] * k + i[None, :]
        for start in range(0, k, BLOCK_K):
            inside = start + i < k
            h = tl.load(hidden + row.to(tl.int64) * stride + start + i, mask=inside, other=0.0).to(tl.float32)
            w = tl.load(w_place + start, mask=real[:, None] & inside[None, :], other=0.0).to(tl.float32)
            acc = tl.fma(w, h[None, :] + tl.zeros_like(acc), acc)
        allowed = real
        for place in range(EXCLUDED):
            allowed &= tl.load(excluded + row * EXCLUDED + place) != token
        logit = tl.where(allowed, tl.sum(acc, 1), float("-inf"))
        largest = tl.max(logit, 0)
        first = tl.min(tl.where((logit == largest) & allowed, token, 2147483647), 0)
        top_id = tl.where(largest > top, first, tl.where(largest == top, tl.minimum(first, top_id), top_id))
        top = tl.maximum(top, largest)
    tl.store(best + row * tl.num_programs(1) + tl.program_id(1), top)
    tl.store(best_id + row * tl.num_programs(1) + tl.program_id(1), top_id)


@triton.jit
def _best(best, best_id, out, programs, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    value = tl.load(best + row * programs + i, mask=i < programs, other=float("-inf"))
    token = tl.load(best_id + row * programs + i, mask=i < programs, other=2147483647)
    tl.store(out + row, tl.min(tl.where(value == tl.max(value, 0), token, 2147483647), 0))
