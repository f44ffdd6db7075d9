"""Programmatic dependent launch: a kernel's programs come onto the device while the kernel before it still ends.

A kernel launched with `**overlap()` takes DEPENDENT and begins with

    if DEPENDENT:
        gdc_launch_dependents()
        gdc_wait()

before its first access to memory. The first line lets the next kernel's programs begin as soon as all of this one's
have begun; the second holds a program until the kernel before has ended and all it wrote can be seen. Every kernel that
may begin early also waits, so that one has ended means that all before it have; a kernel launched without this waits
for its predecessor whole, as ever. Works in captured graphs; needs compute capability 9 (PTX `griddepcontrol`).
What it saves is the time between two kernels, about a microsecond each.
"""

from __future__ import annotations

from functools import cache

import torch

on: bool | None = None
"""Read at each launch, so before graphs are captured; `ops.bench.overlap` compares. None: wherever the device can."""


def overlap() -> dict[str, bool]:
    """Arguments of a launch: the kernel's DEPENDENT and Triton's option, always both or neither."""
    chosen = _device_can() if on is None else on
    return {"DEPENDENT": chosen, "launch_pdl": chosen}


@cache
def _device_can() -> bool:
    return torch.cuda.is_available() and torch.cuda.get_device_capability()[0] >= 9
