"""Confidence intervals: sacreBLEU's bootstrap, with the same seed on every machine."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwise.seeding import keyed_generator

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


def bootstrap(
    counts: NDArray[np.int64],
    score: Callable[[NDArray[np.int64]], float],
    *,
    resamples: int = RESAMPLES,
    key: tuple[object, ...],
) -> Interval:
    """Draw sentences with replacement, and score the sums of their counts.

    `counts` has a row for each sentence. The numbers drawn follow from the key alone.
    """
    generator = keyed_generator(*key)
    size = len(counts)
    scores = np.sort(
        [score(counts[generator.integers(size, size=size)].sum(0)) for _ in range(resamples)]
    )
    tail = resamples // 40  # 2.5 % on either side.
    margin = (scores[resamples - tail - 1] - scores[tail]) / 2
    return Interval(mean=float(scores.mean()), margin=float(margin))


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
