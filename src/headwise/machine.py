"""The machine: its cores, their maker, and whether an error means that memory ran out."""

import os
from functools import cache
from pathlib import Path

_OUT_OF_MEMORY = ("allocate memory", "out of memory", "Storage size calculation overflowed")
"""In messages of torch's allocators: on a CPU they raise plain RuntimeErrors."""


def num_cores() -> int:
    """Count the cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def is_amd() -> bool:
    """Return whether the processor is one of AMD's; where nothing says so, it is not."""
    try:
        return "AuthenticAMD" in Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return False


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether Python or torch, on any device, could not allocate memory."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)
    )
