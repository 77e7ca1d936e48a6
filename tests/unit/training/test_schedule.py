import math
from typing import Literal

import pytest

from headwise.config import TrainConfig
from headwise.training import learning_rate

Schedule = Literal["inverse-sqrt", "linear", "cosine"]


@pytest.mark.parametrize(
    ("step", "rate"), [(1, 1.746928e-7), (4000, 6.987712e-4), (100_000, 1.397542e-4)]
)
def test_the_papers_schedule(step: int, rate: float) -> None:
    """Worked out by hand: 512^-0.5 * min(step^-0.5, step * 4000^-1.5)."""
    assert learning_rate(step, TrainConfig(), d_model=512) == pytest.approx(rate, rel=1e-6)


def test_the_papers_rate_peaks_where_warm_up_ends() -> None:
    rates = [learning_rate(step, TrainConfig(), 512) for step in range(1, 10_000)]
    assert rates.index(max(rates)) + 1 == 4000
    assert learning_rate(4000, TrainConfig(), 1024) == pytest.approx(max(rates) / math.sqrt(2))


@pytest.mark.parametrize(
    ("schedule", "halfway", "end"),
    [
        ("inverse-sqrt", 2e-3 * math.sqrt(100 / 550), 2e-3 * math.sqrt(0.1)),
        ("linear", 1e-3, 0.0),
        ("cosine", 1e-3, 0.0),
    ],
)
def test_a_peak_rate_with_warm_up_and_decay(schedule: Schedule, halfway: float, end: float) -> None:
    train = TrainConfig(
        schedule=schedule,
        peak_rate=2e-3,
        warmup_steps=100,
        max_steps=1000,
    )
    assert learning_rate(1, train, 512) == pytest.approx(2e-5)
    assert learning_rate(50, train, 512) == pytest.approx(1e-3)
    assert learning_rate(100, train, 512) == pytest.approx(2e-3)
    assert learning_rate(550, train, 512) == pytest.approx(halfway)
    assert learning_rate(1000, train, 512) == pytest.approx(end, abs=1e-12)
    rates = [learning_rate(step, train, 512) for step in range(100, 1001)]
    assert rates == sorted(rates, reverse=True)
    assert learning_rate(5000, train, 512) >= 0


def test_warm_up_longer_than_the_run_is_only_warm_up() -> None:
    train = TrainConfig(schedule="linear", peak_rate=1e-3, warmup_steps=100, max_steps=50)
    assert learning_rate(50, train, 512) == pytest.approx(5e-4)


def test_updates_are_counted_from_one() -> None:
    with pytest.raises(AssertionError, match="counted from 1"):
        learning_rate(0, TrainConfig(), 512)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_decay_can_follow_the_clock(schedule: Schedule) -> None:
    train = TrainConfig(
        schedule=schedule,
        peak_rate=2e-3,
        warmup_steps=100,
        max_steps=1000,
        max_minutes=8.0,
        decay_by="clock",
    )
    # The steps decide the warm-up alone, and the minutes the decay alone.
    assert learning_rate(50, train, 512) == pytest.approx(1e-3)
    assert learning_rate(999, train, 512) == pytest.approx(2e-3)
    assert learning_rate(999, train, 512, minutes=4.0) == pytest.approx(1e-3)
    assert learning_rate(50, train, 512, minutes=4.0) == pytest.approx(0.5e-3)
    assert learning_rate(200, train, 512, minutes=8.0) == pytest.approx(0.0)
    assert learning_rate(200, train, 512, minutes=9.0) == pytest.approx(0.0)
