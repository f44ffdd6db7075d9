"""Matrices kept in 8-bit floats (e4m3), with one scale for each output channel.

A row of the matrix is divided by its scale so that its largest value becomes 448, the largest of the format, and
rounded. Products take the 8-bit values as they are (every one is exact in bfloat16) and apply the scale to the sum.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

LARGEST = 448.0


class Fp8Weight:
    """A matrix [N, K]; `weight[a:b]` are some of its rows, sharing memory."""

    def __init__(self, values: torch.Tensor, scale: torch.Tensor) -> None:
        self.values = values  # float8_e4m3fn[N, K]
        self.scale = scale  # float32[N]

    @classmethod
    def empty(cls, shape: torch.Size, device: torch.device) -> Fp8Weight:
        """Room for a matrix; `put` fills it."""
        values = torch.empty(shape, dtype=torch.float8_e4m3fn, device=device)
        return cls(values, torch.empty(shape[0], dtype=torch.float32, device=device))

    @property
    def shape(self) -> torch.Size:
        """[N, K]."""
        return self.values.shape

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.values.device

    def __getitem__(self, rows: slice) -> Fp8Weight:
        return Fp8Weight(self.values[rows], self.scale[rows])

    def put(self, first: int, rows: torch.Tensor) -> None:
        """Quantise rows [n, K] of any float type into rows first, first + 1, ..."""
        exact = rows.float()
        scale = exact.abs().amax(dim=1).div_(LARGEST)
        scale[scale == 0] = 1.0  # a row of zeros
        self.values[first : first + len(rows)].copy_(exact / scale[:, None])
        self.scale[first : first + len(rows)].copy_(scale)

    def dequantised(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """The matrix that products are taken with."""
        return (self.values.float() * self.scale[:, None]).to(dtype)


def plain(matrices: Sequence[torch.Tensor | Fp8Weight]) -> list[torch.Tensor]:
    """One matrix of every shape, as ordinary tensors: for checks that only shapes matter to."""
    shapes = {tuple(matrix.shape): matrix for matrix in reversed(matrices)}
    return [matrix.dequantised() if isinstance(matrix, Fp8Weight) else matrix for matrix in shapes.values()]
