"""Intervals from few seeds: the variance between seeds, pooled over all rows of a table."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Student's t that 95 % lie within, for 1 to 30 degrees of freedom."""


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How much results differ by the seed alone."""

    deviation: float
    freedom: int
    """Degrees of freedom."""

    def half_width(self, *counts: int) -> float:
        """Return half of the 95 % interval of a mean of so many seeds, or of a difference of two.

        A difference has the counts of both.
        """
        return student(self.freedom) * self.deviation * math.sqrt(sum(1 / n for n in counts))


def pool(rows: Iterable[Sequence[float]]) -> Spread | None:
    """Pool the variance of several rows; None if none has two results or one is not a number."""
    squares, freedom = 0.0, 0
    for values in rows:
        if len(values) > 1:
            mean = math.fsum(values) / len(values)
            squares += math.fsum((value - mean) ** 2 for value in values)
            freedom += len(values) - 1
    if not freedom or not math.isfinite(squares):
        return None
    return Spread(deviation=math.sqrt(squares / freedom), freedom=freedom)


def pool_paired(rows: Iterable[Sequence[float]]) -> Spread | None:
    """Pool what is left of rows of equal seeds without the means of rows and of seeds.

    With the same seed, rows see the same batches and the same dropout, so that a seed may be good
    or bad for all of them. That is no part of their differences, and this spread is for those.
    """
    table = [list(values) for values in rows]
    seeds = len(table[0]) if table else 0
    freedom = (len(table) - 1) * (seeds - 1)
    if freedom < 1 or any(len(values) != seeds for values in table):
        return None
    of_rows = [math.fsum(values) / seeds for values in table]
    of_seeds = [math.fsum(column) / len(table) for column in zip(*table, strict=True)]
    mean = math.fsum(of_rows) / len(table)
    squares = math.fsum(
        (value - of_row - of_seed + mean) ** 2
        for values, of_row in zip(table, of_rows, strict=True)
        for value, of_seed in zip(values, of_seeds, strict=True)
    )
    if not math.isfinite(squares):
        return None
    return Spread(deviation=math.sqrt(squares / freedom), freedom=freedom)


def student(freedom: int) -> float:
    """Return Student's t that 95 % lie within."""
    if freedom <= len(_STUDENT):
        return _STUDENT[freedom - 1]
    return 1.96 + 2.4 / freedom  # To 0.002.
