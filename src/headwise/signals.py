"""Tell a repeated stop signal from the first one."""

import time

SAME_SECONDS = 1.0


class StopSignals:
    """The stop signals of this process.

    Repeated signals within `SAME_SECONDS` count once: a terminal signals every process in it, and
    `timeout`, `sudo` or a service manager forward the signals that they get.
    """

    _first: float | None = None

    def is_repeat(self) -> bool:
        """Note a signal; return whether it repeats an earlier one."""
        now = time.monotonic()
        if self._first is None:
            self._first = now
        return now - self._first > SAME_SECONDS
