"""Where long sounds are cut, and when words are said."""

from itertools import pairwise, product

import numpy as np
import pytest

from headwise.tasks.transcription.long_sounds import cuts
from headwise.tasks.transcription.times import in_order

RATE = 1_000


def bursts(*spans: tuple[int, int], length: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Make noise of a length that is quiet but for some spans."""
    generator = np.random.default_rng(1)
    samples = 0.001 * generator.standard_normal(length)
    for start, end in spans:
        samples[start:end] += generator.standard_normal(end - start)
    return samples.astype(np.float32)


def test_a_short_sound_is_not_cut() -> None:
    assert cuts(bursts((0, 900), length=1_000), 1_000, RATE) == []


def test_a_long_one_is_cut_in_its_pauses() -> None:
    spans = ((100, 600), (900, 1_500), (1_800, 2_200), (2_500, 3_300))
    found = cuts(bursts(*spans, length=3_500), 1_200, RATE)
    assert not any(start < cut < end for cut in found for start, end in spans)
    assert all(end - start <= 1_200 for start, end in pairwise([0, *found, 3_500]))
    assert len(found) >= 3


@pytest.mark.parametrize("longest", [2, 3, 10, 499, 2_000])
def test_no_part_is_longer_than_the_longest_and_none_is_empty(longest: int) -> None:
    for samples in (np.zeros(2_500, np.float32), bursts((0, 2_500), length=2_500)):
        bounds = [0, *cuts(samples, longest, RATE), 2_500]
        assert all(0 < end - start <= longest for start, end in pairwise(bounds))
        assert len(bounds) <= 2 + 2 * -(-2_500 // longest)


def test_places_in_order_have_the_most_weight() -> None:
    generator = np.random.default_rng(1)
    for rows, columns in ((1, 1), (1, 4), (3, 4), (4, 3), (5, 5)):
        weights = generator.random((rows, columns))
        weights /= weights.sum(1, keepdims=True)
        ways = [way for way in product(range(columns), repeat=rows) if list(way) == sorted(way)]
        best = max(ways, key=lambda way: sum(np.log(weights[np.arange(rows), list(way)])))
        assert in_order(weights) == list(best)
