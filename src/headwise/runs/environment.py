"""What a session of training runs on, and whether that is still what the last one ran on."""

import hashlib
import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headwise import __version__
from headwise.files import Folder, replace_file
from headwise.machine import num_cores
from headwise.runs.directory import RunDirectory

_KEPT_BITS = ("headwise", "torch", "numpy", "threads", "processes", "device", "cpu")
"""What must be the same for a resumed run to be the same to the last bit."""

_MOST_BYTES = 4 << 20
"""Some ten thousand sessions."""

_LONGEST_TEXT = 1000
"""Characters of a value, such as the name of a processor."""


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
        "cores": num_cores(),
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


def source_digest() -> str:
    """Return a digest of this package's code and recipes: what the version alone does not tell."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(each for each in package.rglob("*") if each.suffix in (".py", ".toml")):
        digest.update(str(path.relative_to(package)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def cpu_name() -> str:
    """Name the processor."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def read_sessions(path: Path) -> list[dict[str, Any]]:
    """Read the sessions so far; without a file that can be read there are none.

    Of a session only plain values are taken: text that is not too long, and numbers.
    """
    try:
        body = Folder.of(path.parent).read_json(path.name, _MOST_BYTES)
    except (OSError, ValueError):
        return []
    sessions = body.get("sessions") if isinstance(body, dict) else None
    return [
        {key: value for key, value in session.items() if _is_plain(value)}
        for session in (sessions if isinstance(sessions, list) else [])
        if isinstance(session, dict)
    ]


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _LONGEST_TEXT
    return isinstance(value, int | float) and abs(value) < 2**63
