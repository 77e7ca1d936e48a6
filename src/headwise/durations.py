"""Lengths of time, for people."""

_UNITS = (
    ("ms", 1e-3, 1.0),
    ("s", 1.0, 90.0),
    ("min", 60.0, 90 * 60.0),
    ("h", 3600.0, 48 * 3600.0),
    ("days", 86_400.0, 60 * 86_400.0),
    ("months", 30 * 86_400.0, float("inf")),
)
"""Each unit, its length in seconds, and the length of time from which the next is used."""


def duration(seconds: float) -> str:
    """Write a length of time in one unit: 250 ms, 1.4 s, 40 s, 12 min, 3.5 h, 20 days, 5 months."""
    unit, size, _ = next((unit for unit in _UNITS if seconds < unit[2]), _UNITS[-1])
    amount = seconds / size
    short = f"{amount:.1f}".removesuffix(".0") if amount < 10 and unit != "ms" else f"{amount:.0f}"
    return f"{short} {unit}"
