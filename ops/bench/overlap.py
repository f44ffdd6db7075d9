"""Whether kernels that begin while the one before ends give the same bits, and the time that saves, on a GPU.

A chain of layers made of attention, gate and norm, each reading what the one before wrote, runs operation by operation
and from a captured graph, with `triton_overlap` off and on, on several inputs. Prints microseconds a launch; exits 1
where any bit differs, 2 where there is no CUDA.
"""

from __future__ import annotations

import sys

import torch

from ops.bench.attention_cases import PROGRAMS, served
from ops.bench.kernel_case import EPS, MODELS, Inputs, draw
from photocall_engine.kernels import triton_fused, triton_overlap
from photocall_engine.kernels.triton_attention import attend

LAYERS = 60
LAUNCHES = 4  # of a layer: attention, its combining, gate, norm
ROWS = 16
INPUTS = 8


def main() -> int:
    """Compare and time."""
    if not torch.cuda.is_available():
        print("overlap: this is measured on a CUDA device, and torch finds none here", file=sys.stderr)
        return 2
    device = torch.device("cuda")
    case = next(case for case in served(MODELS["e4b"], device) if f" {ROWS}x" in case.shape)
    inputs = case.make(0)
    width = inputs["q"][0].numel()
    start = torch.empty(ROWS, width, dtype=torch.bfloat16, device=device)
    weight = draw(device, 5, width)
    wanted: list[torch.Tensor] = []
    wrong = 0
    for on in (False, True):
        triton_overlap.on = on
        _chain(start.zero_(), weight, inputs)  # compiles
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            end = _chain(start, weight, inputs)
        for seed in range(INPUTS):
            start.copy_(draw(device, 10 + seed, ROWS, width))
            graph.replay()
            found = [end.clone(), _chain(start, weight, inputs)]
            if not on:
                wanted.append(found[1])
            wrong += sum(not torch.equal(one, wanted[seed]) for one in found)
        print(f"overlap {'on' if on else 'off'}: {_microseconds(graph):.2f} us a launch in a graph", flush=True)
    print("bits same" if not wrong else f"BITS DIFFER in {wrong} of {4 * INPUTS} chains")
    return 1 if wrong else 0


def _chain(x: torch.Tensor, weight: torch.Tensor, inputs: Inputs) -> torch.Tensor:
    """x [ROWS, heads * head_dim] through all layers."""
    hidden, normed = x, x
    for _ in range(LAYERS):
        q = normed.view_as(inputs["q"])
        out = torch.empty_like(q)
        attend(q, inputs["kv"], inputs["plan"], out, PROGRAMS)
        gated = triton_fused.geglu(out.flatten(1), normed)
        hidden, after = triton_fused.norm_add(hidden, gated, weight, EPS, next_weight=weight)
        assert after is not None
        normed = after
    return hidden


def _microseconds(graph: torch.cuda.CUDAGraph, rounds: int = 20) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    graph.replay()
    start.record()
    for _ in range(rounds):
        graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / rounds / LAYERS / LAUNCHES


if __name__ == "__main__":
    sys.exit(main())
