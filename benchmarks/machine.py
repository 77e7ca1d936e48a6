"""What a result was measured on."""

import platform
import time

from headwise.runs.environment import cpu_name


def machine(**settings: object) -> dict[str, object]:
    """Describe this machine, with whatever else a result depends on."""
    return {
        "cpu": cpu_name(),
        **settings,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }
