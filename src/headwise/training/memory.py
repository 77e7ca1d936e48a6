"""How much memory there is, and how much of it has been used."""

import resource
import sys
from pathlib import Path

import torch

_MIB = 2**20


def peak_mib(device: torch.device) -> float:
    """Return the most memory that this process has held at a time, on the device it trains on."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / _MIB
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / _MIB if sys.platform == "darwin" else peak / 1024


def available_mib(device: torch.device) -> float | None:
    """Return how much memory could still be had on a device; None where it cannot be known."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] / _MIB
    info = Path("/proc/meminfo")
    if not info.exists():
        return None
    amounts = [_amount(line) for line in info.read_text("utf-8").splitlines()]
    available = next((amount for key, amount in amounts if key == "MemAvailable"), None)
    limit = _group_limit_mib()
    return min(filter(None, (available, limit)), default=None)


def _amount(line: str) -> tuple[str, float]:
    key, _, rest = line.partition(":")
    return key, int(rest.split()[0]) / 1024


def _group_limit_mib() -> float | None:
    """Return what a container leaves of the machine's memory, where it limits it."""
    limit, current = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if not limit.exists() or not current.exists():
        return None
    text = limit.read_text("utf-8").strip()
    if not text.isdecimal():
        return None
    return max(0.0, (int(text) - int(current.read_text("utf-8"))) / _MIB)
