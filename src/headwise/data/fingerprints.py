"""A set of 64-bit numbers that grows with the text and should take no more room than it must."""

import numpy as np
from numpy.typing import NDArray


class Fingerprints:
    """A set in 8 bytes a number; a set of Python's takes some 100.

    It is a few sorted arrays, each more than twice as long as the next: looking a number up is a
    binary search in each, and merging them costs each number a logarithm of merges.
    """

    def __init__(self) -> None:
        self._runs: list[NDArray[np.uint64]] = []

    def __len__(self) -> int:
        """Return how many different numbers have been added."""
        return sum(map(len, self._runs))

    def add(self, numbers: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Add numbers and return which of them are new, of equal ones the first alone."""
        values, places = np.unique(numbers, return_index=True)
        unseen = np.ones(len(values), dtype=bool)
        for run in self._runs:
            nearest = np.minimum(np.searchsorted(run, values), len(run) - 1)
            unseen &= run[nearest] != values
        fresh = np.zeros(len(numbers), dtype=bool)
        fresh[places[unseen]] = True
        merged = values[unseen]
        if len(merged):
            while self._runs and len(self._runs[-1]) <= 2 * len(merged):
                merged = np.concatenate([self._runs.pop(), merged])
                merged.sort(kind="stable")  # which only merges what is sorted already
            self._runs.append(merged)
        return fresh
