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
    """Pinned memory that results are copied to; one result at a time."""

    def __init__(self, device: torch.device) -> None:
        self._buffer = torch.empty(0, dtype=torch.uint8)
        self._event = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def fetch(self, tensor: torch.Tensor) -> NDArray[Any]:
        """The values on the host, once the device has come so far."""
        if self._event is None:
            return tensor.numpy()
        count = tensor.numel() * tensor.element_size()
        if count > len(self._buffer):
            self._buffer = torch.empty(2 * count, dtype=torch.uint8, pin_memory=True)
        landed = self._buffer[:count].view(tensor.dtype).view(tensor.shape)
        landed.copy_(tensor, non_blocking=True)
        self._event.record()
        self._event.synchronize()
        return landed.numpy().copy()


def backend_of(device: torch.device, dtype: torch.dtype) -> str:
    """Where K/V and weights are, as people say it."""
    if device.type != "cuda":
        return f"{device.type.upper()} ({str(dtype).removeprefix('torch.')})"
    properties = torch.cuda.get_device_properties(device)
    return f"GPU ({properties.name}, {properties.total_memory >> 20} MB VRAM)"
