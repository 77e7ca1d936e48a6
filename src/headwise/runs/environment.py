"""What a session of training runs on, and whether that is still what the last one ran on."""

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headwise import __version__
from headwise.files import replace_file
from headwise.runs.directory import RunDirectory

_KEPT_BITS = ("headwise", "torch", "numpy", "threads", "processes", "device", "cpu")
"""What must be the same for a resumed run to be the same to the last bit."""


def describe(device: torch.device, processes: int) -> dict[str, Any]:
    """Describe this machine and this software."""
    on_gpu = device.type == "cuda"
    return {
        "headwise": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "processes": processes,
        "device": torch.cuda.get_device_name(device) if on_gpu else device.type,
    }


def record_session(run: RunDirectory, session: dict[str, Any], step: int) -> list[str]:
    """Add a session to environment.json; describe what in it may change the last bits."""
    path = run.environment_file
    sessions = read_sessions(path)
    warnings = []
    if sessions:
        warnings = [
            f"{key} was {sessions[-1].get(key)!r} in the last session and is {session[key]!r} now"
            for key in _KEPT_BITS
            if sessions[-1].get(key) != session[key]
        ]
    started = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    sessions.append({"started": started, "from_step": step, **session})
    replace_file(path, (json.dumps({"sessions": sessions}, indent=1) + "\n").encode())
    return warnings


def cores() -> int:
    """Count the cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_name() -> str:
    """Name the processor."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def read_sessions(path: Path) -> list[dict[str, Any]]:
    """Read the sessions so far; a file that cannot be read is a history lost, not a run."""
    try:
        sessions = json.loads(path.read_text("utf-8"))["sessions"]
        return [session for session in sessions if isinstance(session, dict)]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
