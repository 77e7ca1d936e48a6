"""What the processes of a test session make once between them, such as a trained run."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a directory with what `make` writes to one; the first process that asks calls it.

    Each process has a copy of its own: what the tests of one write, those of another do not see.
    """
    base = factory.getbasetemp()
    # pytest-xdist gives each of its workers a directory in that of the session.
    session = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    made = session / f"made-{name}"
    with (session / f"made-{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # A process that dies leaves no lock.
        if not made.exists():
            unfinished = factory.mktemp(f"unfinished-{name}")
            make(unfinished)
            unfinished.rename(made)
    copy = factory.mktemp(name)
    shutil.copytree(made, copy, symlinks=True, dirs_exist_ok=True)
    return copy
