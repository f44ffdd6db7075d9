"""What `kernels.py` compares and times: each kernel at shapes of Gemma 4 E4B and 31B, with its bytes and operations.

A case makes its own inputs from a seed. The reference runs on the CPU in float32, on the rows that are worth comparing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from ops.bench import vision_cases as vision
from ops.bench.attention_cases import attention, served, tiles
from ops.bench.head_cases import head, picks
from ops.bench.kernel_case import BF16_ERROR, EPS, L2_FREE, REFERENCE, Case, Inputs, Shapes, device_name, draw
from photocall_engine.kernels import triton_fused as fused
from photocall_engine.kernels.matmul_table import plan_for
from photocall_engine.kernels.triton_experts import experts, route
from photocall_engine.kernels.triton_matmul import matmul
from photocall_engine.kv_pools import LayerKv
from photocall_engine.rows import PAGE_SIZE


def matmuls(model: Shapes, device: torch.device) -> Iterator[Case]:
    """The MLP's and the attention's linears at decode and prompt sizes, and one row among any number."""
    q_width = model.heads * 256
    for n, k in (
        (2 * model.intermediate, model.hidden),
        (model.hidden, model.intermediate),
        (q_width + 2 * model.sliding_kv_heads * 256, model.hidden),
        (model.hidden, q_width),
    ):
        plan = plan_for(device_name(device), n, k)

        def make(seed: int, m: int, n: int = n, k: int = k) -> Inputs:
            return {"x": draw(device, seed, m, k), "w": draw(device, seed + 1, n, k) / k**0.5}

        def run(i: Inputs, plan: Any = plan) -> torch.Tensor:
            return matmul(i["x"], i["w"], plan)

        def same_bits(i: Inputs, run: Any = run, n: int = n, k: int = k) -> bool:
            """Rows of a batch at other sizes and places: both tile shapes, full and ragged tiles."""
            x = draw(device, 7, 2048, k)
            every = run({"x": x, "w": i["w"]})
            return all(
                torch.equal(run({"x": x[at : at + count], "w": i["w"]}), every[at : at + count])
                for at, count in ((0, 1), (77, 1), (5, 16), (63, 64), (9, 255), (1, 256), (3, 257), (500, 1024))
            )

        for m in (1, 64, 512, 2048):
            yield Case(
                "matmul", f"{model.name} {m} x {k} -> {n} ({plan.form})", partial(make, m=m), run,
                lambda i: REFERENCE.linear(i["x"].float().cpu(), i["w"].float().cpu()),
                2.0 * (m * k + n * k + m * n), 2.0 * m * n * k, 2.0 * (m * k + n * k), 2 * m * n,
                same_bits=same_bits if m == 1 else None,
            )  # fmt: skip


def between(model: Shapes, device: torch.device) -> Iterator[Case]:
    """Norm and residual, the MLP's gate, and q, k, v with their pages."""
    width, wide = model.hidden, model.intermediate
    for m in (1, 64, 2048):

        def norm_inputs(seed: int, m: int = m) -> Inputs:
            named = {"residual": (m, width), "x": (m, width), "w": (width,), "after": (width,)}
            return {name: draw(device, seed * 4 + at, *shape) for at, (name, shape) in enumerate(named.items())}

        yield Case(
            "norm_add", f"{model.name} {m} x {width}", norm_inputs,
            lambda i: fused.norm_add(i["residual"], i["x"], i["w"], EPS, scalar=i["w"][:1], next_weight=i["after"])[0],
            _norm_expected,
            2.0 * 4 * m * width, 0.0, 2.0 * 2 * m * width, 4 * m * width,
        )  # fmt: skip

        def gate_inputs(seed: int, m: int = m) -> Inputs:
            return {"wide": draw(device, seed, m, 2 * wide)}

        yield Case(
            "geglu", f"{model.name} {m} x {wide}", gate_inputs,
            lambda i: fused.geglu(i["wide"][:, :wide], i["wide"][:, wide:]),
            lambda i: REFERENCE.geglu(i["wide"][:, :wide].float().cpu(), i["wide"][:, wide:].float().cpu()),
            2.0 * 3 * m * wide, 0.0, 2.0 * 2 * m * wide, 2 * m * wide,
        )  # fmt: skip
        yield _turn_case(model, device, m)


def embeddings(model: Shapes, device: torch.device) -> Iterator[Case]:
    """Token and per-layer rows of a prompt, from tables of 4,096 entries (rows are gathered, so few will do)."""
    m, entries, layers, size = 2048, 4096, 42, model.per_layer
    tokens = torch.randint(0, entries, (m,), dtype=torch.int32, device=device)
    soft = torch.where(torch.arange(m, device=device) % 3 == 0, torch.arange(m, device=device), -1).int()

    def embed_inputs(seed: int) -> Inputs:
        return {"table": draw(device, seed, entries, model.hidden), "arena": draw(device, seed + 1, m, model.hidden)}

    def embed_expected(i: Inputs) -> torch.Tensor:
        words = i["table"].float()[tokens.long()] * 50.5
        return torch.where(soft[:, None] >= 0, i["arena"].float()[soft.clamp(min=0).long()], words)

    moved = 2.0 * 2 * m * model.hidden
    yield Case(
        "embed", f"{model.name} {m} x {model.hidden}", embed_inputs,
        lambda i: fused.embed(tokens, i["table"], 50.5, soft, i["arena"]), embed_expected, moved, 0.0, moved / 2,
        2 * m * model.hidden,
    )  # fmt: skip
    if not size:
        return

    def inputs(seed: int) -> Inputs:
        named = {"projected": (m, layers * size), "table": (entries, layers * size), "w": (size,)}
        return {name: draw(device, seed * 3 + at, *shape) for at, (name, shape) in enumerate(named.items())}

    def expected(i: Inputs) -> torch.Tensor:
        projected = REFERENCE.rms_norm(i["projected"].float().view(m, layers, size) * 0.02, i["w"].float(), EPS)
        out: torch.Tensor = (projected + i["table"].float()[tokens.long()].view_as(projected) * 16.0) * 2.0**-0.5
        return out

    def run(i: Inputs) -> torch.Tensor:
        return fused.per_layer_inputs(
            i["projected"], tokens, i["table"], i["w"], EPS, projection_scale=0.02, table_scale=16.0
        )

    moved = 2.0 * 3 * m * layers * size
    shape = f"{model.name} {m} x {layers} x {size}"
    yield Case("per_layer_inputs", shape, inputs, run, expected, moved, 0.0, moved / 3, 2 * m * layers * size)


def mixtures(model: Shapes, device: torch.device) -> Iterator[Case]:
    """128 experts, 8 to a row, of a nominal width: neither E4B nor 31B has any, so this runs once, beside E4B."""
    if model.name != "E4B":
        return
    count, top_k, hidden, width = 128, 8, 2816, 704
    gate_up = draw(device, 1, count, 2 * width, hidden) / hidden**0.5
    down = draw(device, 2, count, hidden, width) / width**0.5
    ones = torch.ones(count, dtype=torch.bfloat16, device=device)
    for m in (1, 64, 1024):

        def inputs(seed: int, m: int = m) -> Inputs:
            top = torch.softmax(draw(device, seed + 9, m, count).float(), dim=1).topk(top_k, dim=1)
            return {"x": draw(device, seed, m, hidden), "expert": top.indices, "share": top.values}

        def router_logits(seed: int, m: int = m) -> Inputs:
            return {"logits": draw(device, seed, m, count).float()}

        yield Case(
            "route", f"{m} rows, {top_k} of {count}", router_logits,
            lambda i: route(i["logits"], ones, top_k)[1],
            lambda i: REFERENCE.route(i["logits"].cpu(), ones.float().cpu(), top_k)[1],
            4.0 * m * count, 0.0, 4.0 * m * count, 8 * m * top_k,
        )  # fmt: skip

        used = min(count, m * top_k)
        yield Case(
            "experts", f"{m} rows, {top_k} of {count}", inputs,
            lambda i: experts(i["x"], gate_up, down, i["expert"], i["share"]),
            lambda i: REFERENCE.experts(
                i["x"].float().cpu(), gate_up.float().cpu(), down.float().cpu(), i["expert"].cpu(), i["share"].cpu()
            ),
            2.0 * used * 3 * width * hidden, 2.0 * m * top_k * 3 * width * hidden, L2_FREE, 2 * m * hidden,
            error_limit=2 * BF16_ERROR,
        )  # fmt: skip


def _norm_expected(i: Inputs) -> torch.Tensor:
    residual, x, weight = (i[name].float().cpu() for name in ("residual", "x", "w"))
    out: torch.Tensor = REFERENCE.norm_add(residual, x, weight, EPS)[0] * weight[0]
    return out


def _turn_case(model: Shapes, device: torch.device, m: int) -> Case:
    dim, heads, kv_heads = 256, model.heads, model.sliding_kv_heads
    index = torch.arange(m, dtype=torch.int32, device=device)

    def make(seed: int) -> Inputs:
        angle = draw(device, seed + 1, m, dim // 2).float() * 3
        pool = [torch.zeros(kv_heads, m + PAGE_SIZE + 1, dim, dtype=torch.bfloat16, device=device) for _ in range(2)]
        return {
            "stacked": draw(device, seed, m, (heads + 2 * kv_heads) * dim), "norm": draw(device, seed + 2, dim),
            "cos": angle.cos(), "sin": angle.sin(), "kv": LayerKv(*pool),
        }  # fmt: skip

    def run(i: Inputs) -> torch.Tensor:
        return fused.turn_and_write(
            i["stacked"], i["norm"], i["norm"], i["cos"], i["sin"], EPS, i["kv"], index, index + PAGE_SIZE, None,
            heads=heads, kv_heads=kv_heads, head_dim=dim, num_rows=m,
        )  # fmt: skip

    def expected(i: Inputs) -> torch.Tensor:
        q = i["stacked"].float().cpu().view(m, -1, dim)[:, :heads]
        return REFERENCE.rope(REFERENCE.rms_norm(q, i["norm"].float().cpu(), EPS), i["cos"].cpu(), i["sin"].cpu())

    moved = 2.0 * 2 * m * (heads + 2 * kv_heads) * dim + 4.0 * m * dim
    shape = f"{model.name} {m} rows d{dim}"
    return Case("turn_and_write", shape, make, run, expected, moved, 0.0, moved / 2, 2 * m * heads * dim)


def copies(model: Shapes, device: torch.device) -> Iterator[Case]:
    """The frozen tails of 32 pages, in the sliding layers of a model in one launch."""
    count, dim, kv_heads = 32, 256, 4 * model.sliding_kv_heads
    src = torch.arange(count, dtype=torch.int32, device=device) * 2
    dst = src + 1

    def make(seed: int) -> Inputs:
        return {"pool": draw(device, seed, kv_heads, 2 * count * PAGE_SIZE + 1, dim)}

    def run(i: Inputs) -> torch.Tensor:
        fused.copy_pages(i["pool"], src, dst)
        out: torch.Tensor = i["pool"]
        return out

    def expected(i: Inputs) -> torch.Tensor:
        pool: torch.Tensor = i["pool"].float().cpu()
        REFERENCE.copy_pages(pool, src.cpu(), dst.cpu())
        return pool

    moved = 2.0 * 2 * count * kv_heads * PAGE_SIZE * dim
    yield Case("copy_pages", f"{model.name} {count} pages", make, run, expected, moved, 0.0, moved, int(moved / 2))


def towers(model: Shapes, device: torch.device) -> Iterator[Case]:
    """The vision tower between its matrix products: eight pictures of 280 soft tokens in one pass."""
    count, patches = 8, vision.GRID[0] * vision.GRID[1]
    pictures = vision.some_pictures(device, count)
    on_host = vision.some_pictures(torch.device("cpu"), count)
    rows, soft = len(pictures.x), len(pictures.soft_row)
    for case in vision.vision_cases(vision.TOWERS[model.name], rows, soft, patches, count):

        def make(seed: int, case: vision.VisionCase = case) -> Inputs:
            return {name: draw(device, seed * 4 + at, *shape) for at, (name, shape) in enumerate(case.shapes.items())}

        def run(i: Inputs, case: vision.VisionCase = case) -> torch.Tensor:
            return case.run(vision.OURS, i, pictures)[:patches]

        def expected(i: Inputs, case: vision.VisionCase = case) -> torch.Tensor:
            return case.run(vision.TRUTH, {name: x.float().cpu() for name, x in i.items()}, on_host)[:patches]

        moved = 2.0 * case.moved_values
        yield Case(
            f"tower {case.name}", f"{model.name} {count} pictures", make, run, expected, moved, case.operations,
            moved / 2, int(moved / 2),
        )  # fmt: skip


ALL = (matmuls, attention, served, between, embeddings, copies, head, picks, mixtures, towers)
BY_NAME = {make.__name__: make for make in (*ALL, tiles)}
