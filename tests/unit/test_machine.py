import os

import pytest
import torch

from headwise.machine import is_out_of_memory, num_cores


def test_cores_are_those_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3, 5}, raising=False)
    assert num_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert num_cores() == 1


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), True),
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"), True),
        (RuntimeError("Storage size calculation overflowed with sizes=[1, 2]"), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_out_of_memory_is_recognised_on_every_device(error: Exception, expected: bool) -> None:
    assert is_out_of_memory(error) is expected


def test_an_allocation_that_fails_is_recognised() -> None:
    with pytest.raises(RuntimeError, match="allocate memory") as caught:
        torch.empty(1 << 58, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
