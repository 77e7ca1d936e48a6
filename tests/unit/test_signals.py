"""A signal that is forwarded twice, and one that is sent again."""

import time

import pytest

from headwise.signals import StopSignals


def test_only_a_later_signal_is_a_repeat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    signals = StopSignals()
    assert not signals.is_repeat()
    now = 100.9
    assert not signals.is_repeat()
    now = 101.1
    assert signals.is_repeat()
    assert not StopSignals().is_repeat()
