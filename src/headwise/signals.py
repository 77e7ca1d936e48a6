"""Signals that ask for an end, where the same wish may come more than once."""

import time

SAME_SECONDS = 1.0


class StopWishes:
    """When an end was asked for, and whether somebody insists.

    A terminal tells every process in it, and `timeout`, `sudo` or a service manager pass on what
    they are told: two signals at once, in either order, are one wish.
    """

    _first: float | None = None

    def insists(self) -> bool:
        """Note a signal; return whether an end was asked for already, and it is not that again."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
        return now - self._first > SAME_SECONDS
