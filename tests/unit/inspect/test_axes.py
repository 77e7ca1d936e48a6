import math

import pytest

from headwise.inspect.axes import linear_axis, log_axis


@pytest.mark.parametrize(
    ("low", "high", "from_zero", "labels"),
    [
        (50, 20_000, True, "0 5k 10k 15k 20k"),
        (2.1, 9.8, False, "2 4 6 8 10"),
        (50, 1800, True, "0 500 1,000 1,500"),
        (0, 7e-4, True, "0 2e-4 4e-4 6e-4"),
        (0.91, 0.96, False, "0.91 0.92 0.93 0.94 0.95 0.96"),
        (1.0e6, 2.5e6, False, "1.0M 1.5M 2.0M 2.5M"),
        (-3, 3, False, "-2 0 2"),
        (0, 5e12, True, "0 1e12 2e12 3e12 4e12 5e12"),
    ],
)
def test_ticks_are_round(low: float, high: float, from_zero: bool, labels: str) -> None:
    axis = linear_axis(low, high, from_zero=from_zero)
    assert " ".join(axis.labels) == labels


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (3, 900, "5 10 20 50 100 200 500 1,000"),
        (3, 30_000, "10 100 1,000 10k"),
        (1e-3, 1e90, "1e-6 10M 1e20 1e33 1e46 1e59 1e72 1e85"),
    ],
)
def test_ticks_of_a_logarithmic_axis(low: float, high: float, labels: str) -> None:
    axis = log_axis(low, high)
    assert " ".join(axis.labels) == labels
    assert axis.place(axis.ticks[1]) - axis.place(axis.ticks[0]) > 0


NUMBERS = [0.0, 1e-100, 1e-9, 0.1, 1.0, 1.0 + 1e-12, 3.7, 1e6, 1e15, 1e15 + 1, 1e100]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("from_zero", [False, True])
def test_every_range_has_an_axis_that_holds_it(sign: int, from_zero: bool) -> None:
    for a in NUMBERS:
        for b in NUMBERS:
            low, high = sorted((sign * a, b))
            axis = linear_axis(low, high, from_zero=from_zero)
            assert 0 <= axis.place(low) <= axis.place(high) <= 1
            assert all(-1e-9 <= axis.place(tick) <= 1 + 1e-9 for tick in axis.ticks)
            assert 2 <= len(axis.ticks) <= 8, (low, high)
            assert len(set(axis.labels)) == len(axis.labels), (low, high, axis.labels)
            if from_zero:
                assert "0" in axis.labels


def test_a_place_on_a_logarithmic_axis_goes_by_ratios() -> None:
    axis = log_axis(1, 10_000)
    steps = [axis.place(10 ** (n + 1)) - axis.place(10**n) for n in range(4)]
    assert steps == pytest.approx([steps[0]] * 4)
    assert 0 < axis.place(1) < axis.place(10_000) < 1
    assert math.isclose(axis.place(1), 1 - axis.place(10_000))
