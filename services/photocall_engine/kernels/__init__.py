"""The operations a decoder layer is made of, and the choice of who computes them.

`choose` is called once per process; its reason is logged. Every implementation has these signatures, and
`reference` (plain torch) is the truth that the others are compared with. All of them keep a row's bits whatever other
rows are in the call, given `row_tile`-padded inputs; `fast` numerics give that up for a library's matrix products.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

import torch

from photocall_engine.kernels.tiles import VisibleRows
from photocall_engine.kernels.vision import GateClips
from photocall_engine.kv_pools import LayerKv
from photocall_engine.words import Words

log = logging.getLogger(__name__)

Numerics: TypeAlias = Literal["invariant", "fast"]
Kind: TypeAlias = Literal["auto", "reference", "triton"]
MAX_EXCLUDED = 3
HEADER = 16  # words at a place of its own in which a plan says where the rest of it lies


class UnsupportedDevice(ValueError):
    """No kernels exist for this device."""


@dataclass(frozen=True, slots=True)
class HeadShape:
    """Attention heads of one layer kind."""

    heads: int
    kv_heads: int
    head_dim: int


class Kernels(Protocol):
    """One device's operations. Linear inputs have a multiple of `row_tile` rows, those of the head of `head_tile`."""

    name: str
    numerics: Numerics
    table_sha256: str  # of what decides in which order sums are made
    row_tile: int
    head_tile: int

    def linear(self, x: torch.Tensor, weight: torch.Tensor, out_dtype: torch.dtype | None = None) -> torch.Tensor:
        """x [R, K] @ weight [N, K]^T, in x's type or `out_dtype`."""

    def unfinished(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """`linear` for `norm_add` alone: [R, N], or parts float32[S, R, N] that are still to be added up in order."""

    def gated(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        let_through: torch.Tensor | None = None,
        clips: GateClips | None = None,
    ) -> torch.Tensor:
        """gelu(gate) * up [R, W], gelu by its tanh approximation; the bits of the linear and the gate one by one.

        Gate and up are the halves of x @ weight [2 * W, K]^T; or the gate is x @ weight [W, K]^T and `let_through`
        [R, W], which may be a slice of wider rows, is up. `clips` bound gate, up and the result.
        """

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
        """x / rms(x) over the last dimension in float32, times `weight` where there is one."""

    def norm_add(
        self,
        residual: torch.Tensor,
        x: torch.Tensor,
        weight: torch.Tensor,
        eps: float,
        *,
        scalar: torch.Tensor | None = None,
        next_weight: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(residual + rms_norm(x)) * scalar, and the rms_norm of that with `next_weight` (itself without one).

        x [R, N], or what `unfinished` left.
        """

    def embed(
        self, tokens: torch.Tensor, table: torch.Tensor, scale: float, soft_idx: torch.Tensor, arena: torch.Tensor
    ) -> torch.Tensor:
        """table[token] * scale [R, N], or row soft_idx of the arena as it is where that is not -1."""

    def per_layer_inputs(
        self,
        projected: torch.Tensor,
        tokens: torch.Tensor,
        table: torch.Tensor,
        weight: torch.Tensor,
        eps: float,
        *,
        projection_scale: float,
        table_scale: float,
    ) -> torch.Tensor:
        """(rms_norm(projected * projection_scale) * weight + table[token] * table_scale) * 2^-0.5: [R, layers, P]."""

    def turn_and_write(
        self,
        stacked: torch.Tensor,
        q_norm: torch.Tensor | None,
        k_norm: torch.Tensor | None,
        turns: tuple[torch.Tensor, torch.Tensor],
        eps: float,
        kv: LayerKv | None,
        row: torch.Tensor,
        slot: torch.Tensor,
        shape: HeadShape,
    ) -> torch.Tensor:
        """From the output of the stacked q, k, v linear to turned queries [R, heads, D], and K and V in their pages.

        stacked   [R, (heads + 2 * kv_heads) * D]: q, k, v; one kv_heads less: v is made of the raw k
        turns     cos and sin, float32[R, D / 2]; pairs are (i, i + D / 2)
        row, slot int32[W]: rows whose K/V go to which slots of `kv`; they begin with 0, 1, ..., the extra ones follow
        kv        None: only queries are made, `shape.kv_heads` is 0
        """

    def route(self, logits: torch.Tensor, expert_scale: torch.Tensor, top_k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Router logits float32[R, E] to expert int[R, top_k] and share [R, top_k]: softmax over all, the largest (of
        equals the lower id), renormalised, times the expert's scale."""

    def experts(
        self, x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, expert: torch.Tensor, share: torch.Tensor
    ) -> torch.Tensor:
        """Sum over a row's experts of share * down(geglu(gate_up(x))), in ascending expert id.

        x [R, K], gate_up [E, 2 * W, K] with the gate first, down [E, K, W], expert and share [R, top_k].
        """

    def plan_attention(self, rows: VisibleRows, shape: HeadShape, zero_slot: int, words: Words, header: int) -> Any:
        """What `attend` needs to know about a set of rows, made once and used by every layer of one kind.

        `zero_slot` always holds zeros. A plan may lay itself into `words`, which are sent afterwards, and say in the
        HEADER words at `header` where.
        """

    def plan_again(self, plan: Any, words: Words, header: int) -> Any:
        """The plan for the same rows once more, to be found at another header. Before `words` are sent."""

    def attend(self, q: torch.Tensor, kv: LayerKv, plan: Any) -> torch.Tensor:
        """Softmax attention (scale 1) of q [R, H, D] over the planned positions: [R, H, D].

        R may exceed the planned rows by padding: what comes back there is finite and means nothing.
        """

    def copy_pages(self, pool: torch.Tensor, src: torch.Tensor, dst: torch.Tensor) -> None:
        """In each of pool [N, slots, D], page src[i] to page dst[i] (int32); no page is both."""

    def letter_logits(
        self, hidden: torch.Tensor, head: torch.Tensor, ids: torch.Tensor, cap: float | None
    ) -> torch.Tensor:
        """hidden [n, K] . rows ids int32[m] of the head: float32[n, m], softcapped; one fixed reduction a pair."""

    def pick(
        self, hidden: torch.Tensor, head: torch.Tensor, allowed: torch.Tensor, cap: float | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """From hidden [n, K] and head [V, K] to (token int32[n], log probability float32[n]) of the softcapped logits
        among the ids with allowed uint8[V] != 0; ties to the lowest id, NaN where an allowed logit is NaN. Rows padded
        to the row tile."""

    def prepare_head(self, head: torch.Tensor) -> Any:
        """What `greedy` needs to know about a head, made once."""

    def greedy(self, hidden: torch.Tensor, head: torch.Tensor, prepared: Any, excluded: torch.Tensor) -> torch.Tensor:
        """The id of the largest logit of each row, int32[n], ties to the lowest; excluded int32[n, 3], -1: none.

        A row that holds NaN gets an id that is no token.
        """


def find_device(name: str) -> torch.device:
    """The device of that name. Raises UnsupportedDevice: 'cuda' is never quietly replaced."""
    if name.partition(":")[0] not in ("cpu", "cuda"):
        raise UnsupportedDevice(f"device {name!r}: there are kernels for 'cpu' and 'cuda' only")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UnsupportedDevice(f"device {name!r}: torch {torch.__version__} sees no CUDA device here")
    return device


def choose(
    device: torch.device,
    weights: list[torch.Tensor],
    head_dims: set[int],
    *,
    numerics: Numerics = "invariant",
    kind: Kind = "auto",
) -> Kernels:
    """The kernels for `device`, checked against the shapes of the model. Raises UnsupportedDevice.

    `auto` is Triton on CUDA and the reference on the CPU; Triton runs on the CPU too, in its interpreter.
    """
    kernels: Kernels
    if kind == "triton" or (kind == "auto" and device.type == "cuda"):
        from photocall_engine.kernels.triton_kernels import TritonKernels

        kernels = TritonKernels(device, weights[0].dtype, numerics=numerics)
    elif device.type == "cuda":
        raise UnsupportedDevice("device 'cuda': the reference kernels run on the CPU only")
    else:
        from photocall_engine.kernels.reference import ReferenceKernels

        fast = numerics == "fast"
        kernels = ReferenceKernels(numerics="fast") if fast else ReferenceKernels.for_model(weights, head_dims)
    log.info("kernels: %s", kernels.name)
    return kernels
