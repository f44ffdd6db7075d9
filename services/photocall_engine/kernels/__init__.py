"""The operations a decoder layer is made of, and the choice of who computes them.

`choose` is called once per process; its reason is logged. Every implementation has these signatures, and
`reference` (plain torch) is the truth that the others are compared with. All of them keep a row's bits whatever other
rows are in the call, given `row_tile`-padded inputs.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

import torch

from photocall_engine.kernels.tiles import VisibleRows
from photocall_engine.kv_pools import LayerKv

log = logging.getLogger(__name__)


class UnsupportedDevice(ValueError):
    """No kernels exist for this device."""


class Kernels(Protocol):
    """One device's operations. Linear inputs have a multiple of `row_tile` rows."""

    name: str
    row_tile: int

    def linear(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """x [R, K] @ weight [N, K]^T."""

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
        """x / rms(x) over the last dimension in float32, times `weight` where there is one."""

    def norm_add(self, residual: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        """residual + rms_norm(x)."""

    def rope(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """x [R, H, D] rotated by halves: pairs (i, i + D/2); cos and sin are [R, D/2]."""

    def geglu(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """gelu(gate) * up, gelu by its tanh approximation."""

    def experts(
        self, x: torch.Tensor, gate_up: torch.Tensor, down: torch.Tensor, expert: torch.Tensor, share: torch.Tensor
    ) -> torch.Tensor:
        """Sum over a row's experts of share * down(geglu(gate_up(x))), in ascending expert id.

        x [R, K], gate_up [E, 2 * W, K] with the gate first, down [E, K, W], expert and share [R, top_k].
        """

    def write_kv(self, kv: LayerKv, k: torch.Tensor, v: torch.Tensor, row: torch.Tensor, slot: torch.Tensor) -> None:
        """K/V [R, G, D] of rows `row[i]` to `slot[i]` of the layer's pool."""

    def plan_attention(self, rows: VisibleRows, group: int, zero_slot: int) -> Any:
        """What `attend` needs to know about a set of rows, made once and used by every layer of one kind.

        `group` is the number of query heads to one K/V head, `zero_slot` a slot that always holds zeros.
        """

    def attend(self, q: torch.Tensor, kv: LayerKv, plan: Any) -> torch.Tensor:
        """Softmax attention (scale 1) of q [R, H, D] over the planned positions: [R, H, D].

        R may exceed the planned rows (padding): what comes back there is finite and means nothing.
        """

    def pair_logits(self, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """hidden [n, K] . labels [m, K] in float32, one fixed reduction for each pair."""


def choose(device: str, weights: list[torch.Tensor], head_dims: set[int]) -> Kernels:
    """The kernels for `device`, checked against the shapes of the model. Raises UnsupportedDevice."""
    from photocall_engine.kernels.reference import ReferenceKernels

    if device != "cpu":
        raise UnsupportedDevice(f"device {device!r}: this build has kernels for 'cpu' only")
    kernels = ReferenceKernels.for_model(weights, head_dims)
    log.info("kernels: %s", kernels.name)
    return kernels
