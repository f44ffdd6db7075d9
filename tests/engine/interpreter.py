"""Triton's interpreter on the CPU, for the tests of kernels; with CUDA the same tests run the compiled kernels.

Import this before any `triton_*` module: whether a kernel is interpreted is decided when it is defined, and for
Triton's own functions when anything first imports Triton, which is why `tests/conftest.py` says so too. Three gaps of
the interpreter (3.6) are filled here: it multiplies bfloat16 operands of `dot` as the integers that hold them, cuts
float32 off to bfloat16 instead of rounding to nearest even, and converts one-element arrays in a way that numpy 2.4
refuses. Matrix products and exponentials run in float64 and are rounded once, so that the place of a row, on which the
CPU's libraries depend, plays no part; what then changes a row's bits is the kernel. What cannot be shown here at all:
the order of sums inside a matrix instruction or a reduction, races, and speed.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
if not ON_GPU:
    os.environ["TRITON_INTERPRET"] = "1"

triton = pytest.importorskip("triton", reason="triton is not installed (its wheels exist for x86-64 Linux only)")


def _fill_gaps() -> None:
    from triton.runtime import interpreter

    language = triton.language
    convert, patch_tensor = interpreter._convert_float, interpreter._patch_lang_tensor
    builder = interpreter.InterpreterBuilder

    def convert_float(source: Any, source_type: Any, target_type: Any, rounding: Any) -> Any:
        if source_type == language.float32 and target_type == language.bfloat16:
            values = torch.from_numpy(np.ascontiguousarray(source.reshape(-1)).view(np.float32))
            return values.to(torch.bfloat16).view(torch.uint16).numpy().reshape(source.shape)
        if source_type == language.bfloat16 and target_type == language.float32:
            return source.view(np.uint16).astype(np.uint32) << 16
        return convert(source, source_type, target_type, rounding)

    def create_dot(self: Any, a: Any, b: Any, d: Any, precision: Any, imprecise: Any) -> Any:
        product = np.matmul(wide(a), wide(b)).astype(np.float32)
        return interpreter.TensorHandle(product + d.data, d.dtype.scalar)

    def wide(handle: Any) -> Any:
        kind = handle.dtype.scalar
        if kind == language.bfloat16:
            return (handle.data.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        assert kind == language.float32, kind
        return handle.data.astype(np.float64)

    def through_float64(function: Any) -> Any:
        return lambda self, x: interpreter.TensorHandle(
            function(x.data.astype(np.float64)).astype(x.data.dtype), x.dtype.scalar
        )

    def patch_lang_tensor(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    interpreter._convert_float = convert_float
    builder.create_dot = create_dot
    builder.create_exp, builder.create_exp2 = through_float64(np.exp), through_float64(np.exp2)
    interpreter._patch_lang_tensor = patch_lang_tensor


if not ON_GPU:
    _fill_gaps()
