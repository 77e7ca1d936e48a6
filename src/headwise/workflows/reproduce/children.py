"""Trainings in processes of their own, some at a time."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import IO, Any

import torch

from headwise.errors import HeadwiseError
from headwise.workflows.reproduce.cell import Training

_LOOK_SECONDS = 2.0
"""From one look at running trainings to the next."""

_STOP_SECONDS = 60.0
"""How long a stopped training may take to save, before it is killed."""


def threads_each(jobs: int) -> int:
    """Return the threads of a training: one if several run at a time, else all there are."""
    return 1 if jobs > 1 else torch.get_num_threads()


def run_trainings(
    trainings: Sequence[Training],
    *,
    jobs: int,
    on_result: Callable[[Training, dict[str, Any]], None],
    on_look: Callable[[], None] = lambda: None,
) -> None:
    """Run trainings, `jobs` at a time, and pass on each result as it comes.

    The error of a training is raised when all others have ended, so that it does not keep them from
    being trained. An exception such as KeyboardInterrupt stops them: they save, and the next call
    goes on from there. `on_look` is called every few seconds.
    """
    children = Children(threads_each(jobs))
    errors: list[str] = []
    with ThreadPoolExecutor(jobs) as pool:
        futures = {pool.submit(children.train, training): training for training in trainings}
        waiting = set(futures)
        try:
            while waiting:
                ended, waiting = wait(waiting, _LOOK_SECONDS, FIRST_COMPLETED)
                for future in ended:
                    try:
                        result = future.result()
                    except HeadwiseError as error:
                        errors.append(str(error))
                    else:
                        on_result(futures[future], result)
                on_look()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            children.stop()
    if errors:
        raise HeadwiseError("; ".join(errors))


class Children:
    """The processes that train, so that all of them can be stopped."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_stopped = False

    def train(self, training: Training) -> dict[str, Any]:
        """Train in a new process and return its results."""
        with tempfile.TemporaryFile() as errors:
            process = self._start(errors)
            try:
                # The end of stdin tells the process that this one is gone: it stays open.
                output = self._exchange(process, training.to_json())
            finally:
                with self._lock:
                    self._running.discard(process)
            return _result(training, process.returncode, output, errors)

    def stop(self) -> None:
        """Stop all processes: each saves its last update, and ends."""
        with self._lock:
            self._is_stopped = True
            running = list(self._running)
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()

    def _start(self, errors: IO[bytes]) -> "subprocess.Popen[bytes]":
        with self._lock:
            if self._is_stopped:
                raise HeadwiseError("stopped before it began")
            process = subprocess.Popen(  # noqa: S603 - our own program
                [
                    sys.executable,
                    "-P",  # No imports from the working directory.
                    "-c",
                    "from headwise.workflows.reproduce.cell import main; main()",
                    str(self._threads),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
                env={**os.environ, "OMP_NUM_THREADS": str(self._threads)},
                start_new_session=True,  # Ctrl-C goes to this process, which stops the others.
            )
            self._running.add(process)
        return process

    def _exchange(self, process: "subprocess.Popen[bytes]", request: str) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, process.stdout:
            with suppress(BrokenPipeError):  # Then it has ended, and its exit code says how.
                process.stdin.write(f"{request}\n".encode())
            output = process.stdout.read()
            process.wait()
        return output


def _result(training: Training, code: int, output: bytes, errors: IO[bytes]) -> dict[str, Any]:
    if code == 0:
        answer = json.loads(output)
        if "result" in answer:
            return dict(answer["result"])
        raise HeadwiseError(f"{training.name}: {answer['error']}")
    errors.seek(0)
    lines = errors.read().decode("utf-8", "replace").strip().splitlines()
    why = f"exit code {code}" if code > 0 else f"signal {-code}: is there too little memory?"
    last = f": {lines[-1]}" if lines else ""
    raise HeadwiseError(f"{training.name}: its process ended with {why}{last}")
