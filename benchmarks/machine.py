"""Describe the machine of a measurement."""

import platform
import time

from headwise.runs.environment import cpu_name


def machine(**settings: object) -> dict[str, object]:
    """Return this machine's description and the settings that a result depends on."""
    return {
        "cpu": cpu_name(),
        **settings,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }
