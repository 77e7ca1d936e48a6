import time

import pytest
import torch

from headwise.training.distributed import World
from headwise.training.window import Window

ALONE = World(rank=0, size=1, device=torch.device("cpu"))


def test_means_are_over_tokens_and_updates() -> None:
    window = Window()
    window.add_batch(smoothed=30.0, nll=20.0, targets=10, positions=10, filled=8)
    window.add_batch(smoothed=10.0, nll=4.0, targets=30, positions=10, filled=8)
    window.add_update(rate=0.1, norm=3.0, tokens={"source": 50, "target": 40})
    window.add_batch(smoothed=0.0, nll=0.0, targets=0, positions=10, filled=8)
    window.add_update(rate=0.2, norm=5.0, tokens={"source": 50, "target": 40})
    window.gather(ALONE)
    means = window.means()
    assert means.loss == pytest.approx(1.0)
    assert means.nll == pytest.approx(0.6)
    assert means.perplexity == pytest.approx(1.8221188)
    assert (means.rate, means.gradient_norm) == (0.2, 4.0)
    assert {"source_tokens_per_second", "target_tokens_per_second"} < means.to_dict().keys()
    assert means.padding == pytest.approx(0.2), "two of ten positions"
    assert means.tokens_per_second["source"] / means.tokens_per_second["target"] == pytest.approx(
        1.25
    )


def test_a_pause_counts_as_no_time_and_computing_as_none_outside(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "perf_counter", lambda: now)
    window = Window()
    now += 50
    window.resume()
    now += 1
    with window.computing():
        now += 3
    window.add_batch(smoothed=1.0, nll=1.0, targets=1, positions=10, filled=8)
    window.add_update(rate=0.1, norm=1.0, tokens={"source": 20, "target": 20})
    means = window.means()
    assert means.tokens_per_second["target"] == pytest.approx(20 / 4)
    assert means.outside == pytest.approx(1 / 4)


def test_a_cleared_window_knows_nothing_of_before() -> None:
    window = Window()
    for loss in (100.0, 2.0):
        window.clear()
        window.add_batch(smoothed=loss, nll=loss, targets=2, positions=10, filled=8)
        window.add_update(rate=0.1, norm=1.0, tokens={"source": 1, "target": 1})
    assert window.means().loss == pytest.approx(1.0)


def test_a_perplexity_beyond_all_numbers_is_infinite() -> None:
    window = Window()
    window.add_batch(smoothed=1e4, nll=1e4, targets=1, positions=10, filled=8)
    window.add_update(rate=0.1, norm=1.0, tokens={"source": 1, "target": 1})
    assert window.means().perplexity == float("inf")
