"""Words: everything of a step in one copy, buffers that grow and buffers that must not, and errors of a device."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from photocall_engine import device
from photocall_engine.device import Landing, device_errors
from photocall_engine.runner import DeviceLost
from photocall_engine.words import Words, WordsFull

CPU = torch.device("cpu")


def test_what_is_laid_arrives_and_the_same_array_once() -> None:
    words = Words(CPU, 64)
    words.begin()
    later = words.reserve(3)
    a, b = np.arange(5, dtype=np.int32), np.arange(6).reshape(2, 3) + 10
    at_a, at_b, again = words.put(a), words.put(b, room=9), words.put(a)
    behind = words.reserve(1)
    words.write(later, np.array([7, 8, 9]))
    words.send()
    assert again == at_a
    assert behind - at_b >= 9
    assert at_a % 4 == at_b % 4 == 0
    assert words.view(later, 3).tolist() == [7, 8, 9]
    assert words.view(at_a, 5).tolist() == a.tolist()
    assert words.view(at_b, 6).tolist() == b.flatten().tolist()


def test_a_second_filling_changes_nothing_before_it_is_sent() -> None:
    words = Words(CPU, 16)
    for value in (1, 2):
        words.begin()
        at = words.put(np.full(4, value, np.int32))
        words.send()
    words.begin()
    words.put(np.full(4, 3, np.int32))
    assert words.view(at, 4).tolist() == [2, 2, 2, 2]


def test_growing_keeps_what_was_laid() -> None:
    words = Words(CPU, 4)
    words.begin()
    first = words.put(np.arange(4, dtype=np.int32))
    second = words.put(np.arange(100, dtype=np.int32))
    words.send()
    assert words.view(first, 4).tolist() == [0, 1, 2, 3]
    assert words.view(second, 100).tolist() == list(range(100))


def test_a_fixed_buffer_refuses_with_the_numbers() -> None:
    words = Words(CPU, 8, fixed=True)
    address = words.tensor.data_ptr()
    words.begin()
    words.put(np.zeros(5, np.int32))
    with pytest.raises(WordsFull, match="12 words in a buffer of 8"):
        words.put(np.zeros(4, np.int32))
    assert words.tensor.data_ptr() == address


def test_what_was_laid_can_be_repeated() -> None:
    words = Words(CPU, 64)
    words.begin()
    first, second = words.reserve(3), words.reserve(3)
    words.write(first, np.asarray([4, 5, 6]))
    words.repeat(first, second, 3)
    words.send()
    assert words.view(second, 3).tolist() == [4, 5, 6]


def test_an_error_of_a_lost_device_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a sticky CUDA error every call fails, a plain synchronisation too; other errors stay what they are."""
    with pytest.raises(ZeroDivisionError), device_errors(CPU):
        raise ZeroDivisionError
    monkeypatch.setattr(device, "is_lost", lambda place: place.type == "cuda")
    with (
        pytest.raises(DeviceLost, match="cuda can no longer be used: RuntimeError: an illegal memory access") as caught,
        device_errors(torch.device("cuda")),
    ):
        raise RuntimeError("an illegal memory access")
    assert isinstance(caught.value.__cause__, RuntimeError)
    with pytest.raises(RuntimeError, match="out of memory"), device_errors(CPU):
        raise RuntimeError("out of memory")


def test_results_come_back() -> None:
    both = Landing(torch.arange(6).view(2, 3), torch.zeros(0, 4)).values()
    assert both[0].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert both[1].shape == (0, 4)
