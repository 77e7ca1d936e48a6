"""A command on a terminal of its own, typed at and read from as a person does."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """What a person sees and types; `seen` is all of it so far, colours and cursors included."""

    def __init__(self, process: "subprocess.Popen[bytes]", master: int) -> None:
        self.process, self._master = process, master
        self.seen = ""

    def read_until(self, text: str, seconds: float = 60) -> str:
        """Read until a text appears after all that was read before; return what was read."""
        read, deadline = b"", time.monotonic() + seconds
        while text.encode() not in read:
            left = deadline - time.monotonic()
            assert left > 0, f"no {text!r} in {read.decode(errors='replace')[-2000:]!r}"
            if select.select([self._master], [], [], min(left, 0.2))[0]:
                try:
                    read += os.read(self._master, 65536)
                except OSError:  # The other side is gone.
                    break
        found = read.decode(errors="replace")
        self.seen += found
        assert text in found, f"no {text!r} in {found[-2000:]!r}"
        return found

    def type(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def end(self, seconds: float = 60) -> int:
        """Read what is left, and return the exit code."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if select.select([self._master], [], [], 0.2)[0]:
                try:
                    read = os.read(self._master, 65536)
                except OSError:
                    break
                if not read:
                    break
                self.seen += read.decode(errors="replace")
            elif self.process.poll() is not None:
                break
        return self.process.wait(timeout=10)


@contextmanager
def on_terminal(
    *arguments: str, columns: int = 80, cwd: Path, **environment: str
) -> Iterator[Terminal]:
    """Start `headwise` on a terminal of so many columns, whose Ctrl-C reaches it."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    unset = ("COLUMNS", "LINES", "NO_COLOR")
    inherited = {key: value for key, value in os.environ.items() if key not in unset}
    process = subprocess.Popen(
        [sys.executable, "-m", "headwise", *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=cwd,
        env=inherited | {"TERM": "xterm"} | environment,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(master)


def plain(seen: str) -> str:
    """Leave out colours and cursor movements."""
    return _CONTROL.sub("", seen).replace("\r", "")
