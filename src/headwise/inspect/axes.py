"""Axes of charts: their range, and ticks at round numbers."""

import math
from dataclasses import dataclass

_SUFFIXES = ((1e6, "M"), (1e4, "k"))
"""Numbers from this size on are abbreviated; ten thousand, so that 2000 stays 2,000."""

_DIVISORS = {"M": 1e6, "k": 1e3, "": 1.0}

_MARGIN = 0.04
"""The share of the axis left free beyond the data, so that no curve runs along the frame."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """The range of a chart in one direction and its ticks."""

    low: float
    high: float
    ticks: tuple[float, ...]
    labels: tuple[str, ...]
    is_log: bool = False

    def place(self, value: float) -> float:
        """Return a value's position along the axis, from 0 to 1."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear_axis(low: float, high: float, *, from_zero: bool = False, most_ticks: int = 6) -> Axis:
    """Make an axis from low to high, with 0 if asked, and ticks at 1, 2 or 5 × 10ⁿ."""
    if from_zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # One value, or nearly equal ones.
        reach = 0.1 * max(abs(low), abs(high)) or 1.0
        low, high = low - reach, high + reach
    margin = _MARGIN * (high - low)
    low = low if from_zero and low == 0 else low - margin
    high = high if from_zero and high == 0 else high + margin
    step = _round_step((high - low) / most_ticks)
    ticks = [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return Axis(low=low, high=high, ticks=tuple(ticks), labels=tuple(_labels(ticks, step)))


def log_axis(low: float, high: float, *, most_ticks: int = 8) -> Axis:
    """Make a logarithmic axis for positive values, with ticks at 1, 2, 5 × 10ⁿ or at powers."""
    margin = (high / low) ** _MARGIN
    low, high = low / margin, high * margin
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [float(f"{digit}e{power}") for power in powers for digit in (1, 2, 5)]
    ticks = [tick for tick in ticks if low <= tick <= high]
    if len(ticks) > most_ticks:
        ticks = [tick for power in powers if low <= (tick := float(f"1e{power}")) <= high]
        ticks = ticks[:: math.ceil(len(ticks) / most_ticks)]
    labels = tuple(_labels([tick], tick)[0] for tick in ticks)
    return Axis(low=low, high=high, ticks=tuple(ticks), labels=labels, is_log=True)


def _round_step(least: float) -> float:
    """Return the smallest 1, 2 or 5 × 10ⁿ that is at least as large."""
    power = math.floor(math.log10(least))
    choices = (float(f"{digit}e{power}") for digit in (1, 2, 5))
    return next((step for step in choices if step >= least), float(f"1e{power + 1}"))


def _labels(ticks: list[float], step: float) -> list[str]:
    """Format ticks alike: with the decimals their step needs, thousands and millions abbreviated.

    Numbers too large or too fine for that are written as powers of ten.
    """
    largest = max(abs(tick) for tick in ticks)
    if largest >= 1e9 or step < 0.99e-3:
        return ["0" if abs(tick) < step / 2 else _power(tick) for tick in ticks]
    suffix = next((suffix for size, suffix in _SUFFIXES if largest >= size), "")
    divisor = _DIVISORS[suffix]
    decimals = max(0, -math.floor(math.log10(step / divisor * 1.0001)))
    return [
        "0" if abs(tick) < step / 2 else f"{tick / divisor:,.{decimals}f}{suffix}" for tick in ticks
    ]


def _power(value: float) -> str:
    digits, _, power = f"{value:.6e}".partition("e")
    return f"{digits.rstrip('0').rstrip('.')}e{int(power)}"
