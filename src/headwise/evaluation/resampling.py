"""Confidence intervals: sacreBLEU's bootstrap, with the same seed on every machine."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

RESAMPLES = 1000
"""How many test sets of the same size are drawn with replacement."""

SEED = 12345
"""sacreBLEU's default, so that its own command gives our numbers."""

MOST_RESAMPLED = 10_000
"""The sentences up to which `score` gives intervals: sacreBLEU holds all resamples at once, for
chrF 80 kB a sentence, and an interval of so many sentences is narrow anyway."""

_SEED_VARIABLE = "SACREBLEU_SEED"


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A 95 % confidence interval, as sacreBLEU gives it: the resamples' mean and half the width."""

    mean: float
    margin: float


@contextmanager
def fixed_seed() -> Iterator[None]:
    """Make sacreBLEU use our seed: it reads the seed from the environment only."""
    before = os.environ.get(_SEED_VARIABLE)
    os.environ[_SEED_VARIABLE] = str(SEED)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SEED_VARIABLE]
        else:
            os.environ[_SEED_VARIABLE] = before
