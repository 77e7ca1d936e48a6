import numpy as np
import pytest

from headwise.data.fingerprints import Fingerprints


@pytest.mark.parametrize("largest", [50, 3000, 2**64 - 1])
def test_new_is_what_a_set_of_python_has_not(largest: int) -> None:
    generator = np.random.default_rng(0)
    ours, theirs = Fingerprints(), set()
    for size in generator.integers(0, 100, 200):
        numbers = generator.integers(0, largest, size, dtype=np.uint64, endpoint=True)
        expected = []
        for number in numbers.tolist():
            expected.append(number not in theirs)
            theirs.add(number)
        assert ours.add(numbers).tolist() == expected
        assert len(ours) == len(theirs)


def test_a_number_takes_eight_bytes_in_few_arrays() -> None:
    fingerprints = Fingerprints()
    for start in range(0, 100_000, 100):
        fingerprints.add(np.arange(start, start + 100, dtype=np.uint64))
    runs = fingerprints._runs
    assert sum(run.nbytes for run in runs) == 8 * 100_000
    assert len(runs) < 10
