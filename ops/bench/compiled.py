"""What Triton's compiler makes of every kernel for an H200, on a machine without one: registers, spills, memory.

Launches are caught before they reach a driver, compiled for the target, and read back with cuobjdump. A kernel that
the interpreter runs may still fail here, or spill; nothing here says how fast anything is. `python -m
ops.bench.compiled` prints a line for each kernel and set of constants at the shapes of `kernel_cases.py`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.tools.tensor_descriptor import TensorDescriptor

from ops.bench import head_cases, kernel_cases
from ops.bench.kernel_case import MODELS
from photocall_engine.kernels import triton_overlap

H200 = GPUTarget("cuda", 90, 32)
SHARED_LIMIT = 227 * 1024
_DTYPES = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.float8_e4m3fn: "fp8e4nv",
    torch.bool: "i1",
}


@dataclass(frozen=True, slots=True)
class Compiled:
    """One kernel at one set of constants."""

    name: str
    registers: int
    spilled_bytes: int
    shared_bytes: int
    matrix_instruction: str  # wgmma, mma or none
    mixed_addresses: int  # of matrix operands; see `mixed_addresses`


def main() -> int:
    """Compile every case once. Exits 1 where one needs more shared memory than there is, or mixes addresses."""
    head_cases.VOCABULARY = 1024
    triton_overlap.on = True
    seen: set[Compiled] = set()
    for model in MODELS.values():
        for make in kernel_cases.ALL:
            for case in make(model, torch.device("cpu")):
                for built in compile_launches(partial(case.run, case.make(0))):
                    if built not in seen:
                        seen.add(built)
                        print(f"{case.workload:15} {case.shape:32} {built}", flush=True)
    return 1 if any(built.shared_bytes > SHARED_LIMIT or built.mixed_addresses for built in seen) else 0


def compile_launches(launch: Callable[[], object]) -> list[Compiled]:
    """Run `launch` with every kernel launch compiled for H200 instead."""
    with _caught() as found:
        launch()
    return found


@contextmanager
def _caught() -> Iterator[list[Compiled]]:
    found: list[Compiled] = []
    kind = triton.runtime.jit.JITFunction

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> None:
        found.append(_compile(self, args, kwargs))

    original, kind.run = kind.run, run
    try:
        yield found
    finally:
        kind.run = original


def _compile(kernel: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Compiled:
    options = {name: kwargs.pop(name) for name in ("num_warps", "num_stages", "launch_pdl") if name in kwargs}
    values = dict(zip(kernel.arg_names, args, strict=False)) | kwargs
    signature, constants, attributes = {}, {}, {}
    for place, parameter in enumerate(kernel.params):
        name, value = parameter.name, values[parameter.name]
        if parameter.is_constexpr or value is None:
            signature[name], constants[name] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name] = "*" + _DTYPES[value.dtype]
            attributes[(place,)] = [["tt.divisibility", 16]]
        elif isinstance(value, TensorDescriptor):
            inner = f"{_DTYPES[value.base.dtype]}{list(value.block_shape)}"
            signature[name] = f"tensordesc<{inner}>"
        elif isinstance(value, float):
            signature[name] = "fp32"
        elif value == 1 and not parameter.do_not_specialize:
            signature[name], constants[name] = "constexpr", 1
        else:
            signature[name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            if value % 16 == 0 and not parameter.do_not_specialize:
                attributes[(place,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature=signature, constexprs=constants, attrs=attributes)
    built = triton.compile(source, target=H200, options=options)
    registers, stack = _resources(built.asm["cubin"])
    mixed = mixed_addresses(_tool(built.asm["cubin"], "nvdisasm", "-c"))
    instruction = next((kind for kind in ("wgmma", "mma") if f"{kind}." in built.asm["ptx"]), "none")
    return Compiled(kernel.fn.__name__, registers, stack, built.metadata.shared, instruction, mixed)


def _resources(cubin: bytes) -> tuple[int, int]:
    """Registers of a thread and its bytes of stack, where spilled registers live."""
    said = _tool(cubin, "cuobjdump", "--dump-resource-usage")
    match = re.search(r"REG:(\d+) STACK:(\d+)", said)
    if match is None:
        raise RuntimeError(f"cuobjdump said nothing about registers: {said}")
    return int(match[1]), int(match[2])


def mixed_addresses(sass: str) -> int:
    """How often a 64-bit sum of uniform registers takes one register for both halves.

    ptxas 12.8 compiles the descriptor of a wgmma operand so where two operands share an address in shared memory and
    differ in their swizzle: the register then holds neither half, and the product reads elsewhere.
    """
    lows: dict[str, str] = {}  # carry: the register whose sum made it
    mixed = 0
    for line in sass.splitlines():
        if high := re.search(r"UIADD3\.X UR\d+, (UR\d+), \S+, URZ, (UP\d)", line):
            mixed += lows.get(high[2]) == high[1]
        low = re.search(r"UIADD3 UR\d+, (UP\d), (UR\d+), \S+, URZ", line)
        if written := re.search(r"\bU[A-Z0-9.]+ (UR\d+),", line):
            lows = {carry: register for carry, register in lows.items() if register != written[1]}
        if low:
            lows[low[1]] = low[2]
    return mixed


def _tool(cubin: bytes, name: str, *options: str) -> str:
    """What one of the tools beside the compiler says of a compiled kernel."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / name
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, *options, file.name], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
