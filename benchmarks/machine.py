"""What a result was measured on."""

import platform
import time
from pathlib import Path


def machine(**settings: object) -> dict[str, object]:
    """Describe this machine, with whatever else a result depends on."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text("utf-8").splitlines()
        cpu = next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), cpu)
    return {
        "cpu": cpu,
        **settings,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }
