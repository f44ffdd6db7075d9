"""What a device does to those who use it: errors that end the process, and results that come back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from numpy.typing import NDArray

from photocall_engine.runner import DeviceLost


@contextmanager
def device_errors(device: torch.device) -> Iterator[None]:
    """Raises DeviceLost instead of whatever was raised inside, where the device cannot be used any more.

    A CUDA error of that kind is sticky: after it every call fails, a plain synchronisation too. Others (no memory, a
    launch that cannot be) are the caller's, and fail one step.
    """
    try:
        yield
    except DeviceLost:
        raise
    except Exception as error:
        if is_lost(device):
            raise DeviceLost(f"{device} can no longer be used: {type(error).__name__}: {error}") from error
        raise


def is_lost(device: torch.device) -> bool:
    """Whether the device refuses to be waited for."""
    if device.type != "cuda":
        return False
    try:
        torch.cuda.synchronize(device)
    except Exception:
        return True
    return False


class Landing:
    """Results of a device on their way to the host, in stream order: `values` waits for them and for nothing behind
    them. They land in pinned memory that the allocator gives to nobody else before the copy is done."""

    def __init__(self, *tensors: torch.Tensor) -> None:
        self._landed = [tensor.to("cpu", non_blocking=True) for tensor in tensors]
        self._event = None
        if any(tensor.is_cuda for tensor in tensors):
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._event.record()

    def values(self) -> list[NDArray[Any]]:
        """On the host, in the order in which they were given."""
        if self._event is not None:
            self._event.synchronize()
        return [tensor.numpy() for tensor in self._landed]


def kind_of(device: torch.device) -> str:
    """The device as far as bits hang on it: the GPU's name, or what the CPU's library makes use of."""
    if device.type != "cuda":
        return f"{device.type} ({torch.backends.cpu.get_cpu_capability()})"
    return str(torch.cuda.get_device_properties(device).name)


def backend_of(device: torch.device, dtype: torch.dtype) -> str:
    """Where K/V and weights are, as people say it."""
    if device.type != "cuda":
        return f"{device.type.upper()} ({str(dtype).removeprefix('torch.')})"
    properties = torch.cuda.get_device_properties(device)
    return f"GPU ({properties.name}, {properties.total_memory >> 20} MB VRAM)"
