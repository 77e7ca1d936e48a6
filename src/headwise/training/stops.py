"""When training ends: at a limit, or when it is told to."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from headwise.config import TrainConfig
from headwise.runs.state import TrainingState
from headwise.signals import StopSignals

_SHOW_CURSOR = b"\x1b[?25h\n"


def share_done(train: TrainConfig, state: TrainingState, epochs: float, minutes: float) -> float:
    """Return how near the nearest limit is: 1 once it is reached."""
    shares = [state.step / train.max_steps]
    if train.max_epochs:
        shares.append(epochs / train.max_epochs)
    if train.max_tokens:
        shares.append(state.tokens / train.max_tokens)
    if train.max_minutes:
        shares.append(minutes / train.max_minutes)
    return min(1.0, max(shares))


def limit_reached(train: TrainConfig, state: TrainingState, minutes: float) -> str:
    """Name the limit that training has reached, or nothing."""
    if state.step >= train.max_steps:
        return f"train.max_steps = {train.max_steps:,}"
    if train.max_epochs and state.epoch >= train.max_epochs:
        return f"train.max_epochs = {train.max_epochs:,}"
    if train.max_tokens and state.tokens >= train.max_tokens:
        return f"train.max_tokens = {train.max_tokens:,}"
    if train.max_minutes and minutes >= train.max_minutes:
        return f"train.max_minutes = {train.max_minutes:g}"
    if train.patience and state.validations_since_best >= train.patience:
        return f"train.patience = {train.patience}: no better validation since {state.best_step:,}"
    return ""


class StopSignal:
    """The signal that asked for an end, once one has."""

    number: int = 0


@contextmanager
def stop_signals() -> Iterator[StopSignal]:
    """Note the first SIGTERM or SIGINT; let a later one end the process at once.

    Only a program's main thread can handle signals; in any other this does nothing.
    """
    wish = StopSignal()
    if threading.current_thread() is not threading.main_thread():
        yield wish
        return

    signals = StopSignals()

    def handle(number: int, _: FrameType | None) -> None:
        if signals.is_repeat():
            if sys.stderr.isatty():
                os.write(2, _SHOW_CURSOR)  # A live view may have hidden it.
            os._exit(128 + number)
        wish.number = wish.number or number

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
