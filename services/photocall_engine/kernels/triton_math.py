# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators

"""Small formulas that several Triton kernels share, in forms that do not overflow."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def inverse_rms(value, width, eps):
    """1 / sqrt(mean of squares + eps) of a row that is zero past `width`."""
    return tl.rsqrt(tl.sum(value * value, 0) / width + eps)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), with exponents that are never positive."""
    e = tl.exp(-tl.abs(x))
    return tl.where(x >= 0.0, 1.0, e) / (1.0 + e)


@triton.jit
def gelu(x):
    """The tanh form: x * sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3))."""
    return x * sigmoid(1.5957691216057308 * x * tl.fma(x * 0.044715, x, 1.0 + tl.zeros_like(x)))


@triton.jit
def softcapped(x, cap):
    """cap * tanh(x / cap)."""
    e = tl.exp(-2.0 * tl.abs(x / cap))
    size = cap * ((1.0 - e) / (1.0 + e))
    return tl.where(x >= 0.0, size, -size)
