import signal
import threading
import time
from dataclasses import replace

import pytest

from headwise.config import TrainConfig
from headwise.runs.state import TrainingState
from headwise.training.stops import limit_reached, share_done, stop_signals

START = TrainingState()


def test_a_run_goes_on_until_a_limit() -> None:
    train = TrainConfig(max_steps=10, max_epochs=3, max_tokens=100, max_minutes=5.0, patience=2)
    assert limit_reached(train, START, 0.0) == ""
    assert limit_reached(train, replace(START, step=9, epoch=2, tokens=99), 4.99) == ""
    assert limit_reached(train, replace(START, step=10), 0.0) == "train.max_steps = 10"
    assert limit_reached(train, replace(START, epoch=3), 0.0) == "train.max_epochs = 3"
    assert limit_reached(train, replace(START, tokens=100), 0.0) == "train.max_tokens = 100"
    assert limit_reached(train, START, 5.0) == "train.max_minutes = 5"
    tired = replace(START, validations_since_best=2, best_step=7)
    assert limit_reached(train, tired, 0.0).startswith("train.patience = 2")
    without = TrainConfig(max_steps=10)
    far = replace(START, epoch=99, tokens=10**9, validations_since_best=99)
    assert limit_reached(without, far, 1e6) == ""


def test_the_nearest_limit_is_how_much_is_done() -> None:
    train = TrainConfig(max_steps=100, max_epochs=2, max_tokens=1000, max_minutes=10.0)
    assert share_done(train, START, 0.0, 0.0) == 0.0
    assert share_done(train, replace(START, step=30), 0.0, 0.0) == pytest.approx(0.3)
    assert share_done(train, replace(START, step=30), 0.9, 0.0) == pytest.approx(0.45)
    assert share_done(train, replace(START, step=30, tokens=500), 0.9, 0.0) == pytest.approx(0.5)
    assert share_done(train, replace(START, step=30, tokens=500), 0.9, 7.0) == pytest.approx(0.7)
    assert share_done(train, replace(START, step=130), 0.0, 0.0) == 1.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_recorded_and_the_handlers_are_restored(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with stop_signals() as stop:
        assert stop.number == 0
        signal.raise_signal(number)
        assert stop.number == number
    assert signal.getsignal(number) is before


def test_repeated_signals_within_a_second_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    with stop_signals() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)  # As a separate signal it would end this process.
        assert stop.number == signal.SIGTERM


def test_another_thread_leaves_the_signals_alone() -> None:
    found = []

    def watch() -> None:
        with stop_signals() as stop:
            found.append((stop.number, signal.getsignal(signal.SIGTERM)))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=watch)
    thread.start()
    thread.join()
    assert found == [(0, before)]
