"""One wish told twice, and two wishes."""

import time

import pytest

from headwise.signals import StopWishes


def test_what_comes_at_once_is_the_same_wish_and_what_comes_later_insists(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    wishes = StopWishes()
    assert not wishes.insists()
    now = 100.9
    assert not wishes.insists()
    now = 101.1
    assert wishes.insists()
    assert not StopWishes().insists()
