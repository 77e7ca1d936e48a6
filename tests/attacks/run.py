"""Attack servers, one attack each and then all at once, and record what happens."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.attacks.innocent import Innocent, ask
from tests.attacks.swarm import attacks
from tests.servers import Running, start_serve

ROOT = Path(__file__).parents[2]

ALONE_SECONDS = 5.0
HOLDING_SECONDS = 15.0
"""For attacks that hold connections: longer than the server lets them."""
HOLDING = ("readers", "hoarders", "flood")
TOGETHER_SECONDS = 60.0
UNLOADED_SECONDS = 10.0
RECOVERY_SECONDS = 60.0
ALL = "all"


def measure(run: Path, directory: Path, source: Path | None = None) -> dict[str, Any]:
    """Return the figures of every attack on the server of a source tree, by default this one."""
    source = source or ROOT / "src"
    results: dict[str, Any] = {
        "commit": _commit(source),
        "measured": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
    }
    with _environment(source):
        with start_serve(run, directory) as server:
            with Innocent(server.port) as client:
                time.sleep(UNLOADED_SECONDS)
            results["unloaded"] = _figures(server, client)
        names = list(attacks())
        results["attacks"] = {
            name: _attacked(
                run, directory, [name], HOLDING_SECONDS if name in HOLDING else ALONE_SECONDS
            )
            for name in names
        }
        results["attacks"][ALL] = _attacked(run, directory, names, TOGETHER_SECONDS)
    return results


def _attacked(run: Path, directory: Path, names: list[str], seconds: float) -> dict[str, Any]:
    """Attack a new server in some ways at once."""
    with start_serve(run, directory) as server:
        swarm = subprocess.Popen(
            [sys.executable, "-m", "tests.attacks.swarm", str(server.port), str(seconds), *names],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        try:
            assert swarm.stdout is not None
            assert swarm.stdout.readline() == "begin\n"
            with Innocent(server.port) as client:
                output, _ = swarm.communicate(timeout=seconds + 60)
        finally:
            swarm.kill()
            swarm.wait()
        statuses: Counter[str] = sum(map(Counter, json.loads(output).values()), Counter())
        figures = _figures(server, client)
        recovered = _recovers(server)
        if not recovered:
            server.process.kill()  # It might not stop when asked to, either.
    return {**figures, "statuses": dict(sorted(statuses.items())), "recovered": recovered}


def _figures(server: Running, client: Innocent) -> dict[str, Any]:
    crashed = server.process.poll() is not None
    return {
        "health": client.health.figures(),
        "translations": client.translations.figures(),
        "peak_mb": None if crashed else sum(map(_peak_mb, _processes(server.pid))),
    }


def _recovers(server: Running) -> bool:
    """Return whether the server answers again after the attack."""
    body = json.dumps({"q": "ban"}).encode()
    until = time.monotonic() + RECOVERY_SECONDS
    while time.monotonic() < until and server.process.poll() is None:
        if ask(server.port, "POST", "/v1/translate", body) == "200":
            return True
        time.sleep(0.2)
    return False


def _processes(process: int) -> list[int]:
    """Return a process and its descendants."""
    threads = Path(f"/proc/{process}/task").glob("*/children")
    children = [int(child) for thread in threads for child in thread.read_text().split()]
    return [process, *(each for child in children for each in _processes(child))]


def _peak_mb(process: int) -> int:
    (line,) = [
        line
        for line in Path(f"/proc/{process}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    ]
    return int(line.split()[1]) // 1024


def _commit(source: Path) -> str:
    return subprocess.run(
        ["git", "-C", str(source), "describe", "--always", "--dirty", "--exclude=*"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


@contextmanager
def _environment(source: Path) -> Iterator[None]:
    """Let the servers import the package from a source tree, and compute with one thread."""
    before = dict(os.environ)
    os.environ.update(PYTHONPATH=str(source.resolve()), OMP_NUM_THREADS="1")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
