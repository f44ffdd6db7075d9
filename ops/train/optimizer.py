"""Muon for the matrices inside the blocks, AdamW for the rest, under one learning rate.

Muon (Jordan 2024): momentum, then the nearest orthogonal matrix by five Newton-Schulz steps; scaled by
0.2 * sqrt(longer side) so that its update has the size of AdamW's (Moonlight, arXiv 2502.16982).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def orthogonal(update: Tensor) -> Tensor:
    """The nearest (semi-)orthogonal matrices of a stack [n, a, b], roughly."""
    x = update.bfloat16() if update.is_cuda else update.clone()
    turned = x.shape[-2] > x.shape[-1]
    if turned:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) * 1.02 + 1e-7)
    for a, b, c in (
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    found: Tensor = x.mT if turned else x
    return found.to(update.dtype)


class Optimizer:
    """Both of them; `names` decides which parameter belongs to which."""

    def __init__(self, named: dict[str, torch.nn.Parameter], rate: float, decay: float) -> None:
        inner = [p for n, p in named.items() if ".layers." in n and p.ndim == 2]
        chosen = {id(p) for p in inner}
        self._stacks: list[tuple[list[torch.nn.Parameter], Tensor]] = []
        for shape in dict.fromkeys(p.shape for p in inner):
            same = [p for p in inner if p.shape == shape]
            self._stacks.append((same, torch.zeros(len(same), *shape, device=same[0].device)))
        rest = [p for p in named.values() if id(p) not in chosen]
        groups = [
            {"params": [p for p in rest if p.ndim > 1], "weight_decay": decay},
            {"params": [p for p in rest if p.ndim == 1], "weight_decay": 0.0},
        ]
        self._adam = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), fused=inner[0].is_cuda)
        self._decay = decay

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One update at a learning rate; gradients are cleared."""
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        for same, momentum in self._stacks:
            gradient = torch.stack([p.grad for p in same if p.grad is not None])
            momentum.lerp_(gradient, 0.05)
            update = orthogonal(gradient.lerp(momentum, 0.95))
            size = 0.2 * max(update.shape[-2:]) ** 0.5
            torch._foreach_mul_(list[Tensor](same), 1 - rate * self._decay)
            torch._foreach_add_(list[Tensor](same), list(update.unbind()), alpha=-rate * size)
            for p in same:
                p.grad = None

    def state(self) -> dict[str, Any]:
        """What a resumed run needs."""
        return {"adam": self._adam.state_dict(), "momentum": [m for _, m in self._stacks]}

    def restore(self, state: dict[str, Any]) -> None:
        """The reverse of `state`."""
        self._adam.load_state_dict(state["adam"])
        for (_, momentum), kept in zip(self._stacks, state["momentum"], strict=True):
            momentum.copy_(kept)
