"""`headwise` and `python` as programs that start without importing torch again.

Importing it takes two seconds, and the tests run about a hundred commands. So a process that has
imported it forks one process for each command, which has the caller's files, folder and
environment. What depends on how Python starts or on signals is tested with `python -m headwise`.

    python -m tests.preloaded SOCKET               serve, until stdin ends
    python tests/preloaded.py SOCKET headwise …    run a command, exit with its code
"""

import array
import gc
import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STREAMS = (0, 1, 2)


@contextmanager
def preloaded_programs() -> Iterator[Path]:
    """Start the process, and yield a folder to put first in PATH."""
    with tempfile.TemporaryDirectory(prefix="hw-") as name:  # Short, as the paths of sockets are.
        directory = Path(name)
        path = directory / "socket"
        for program in ("headwise", "python"):
            call = [sys.executable, "-I", "-S", __file__, str(path), program]
            (directory / program).write_text(f'#!/bin/sh\nexec {shlex.join(call)} "$@"\n')
            (directory / program).chmod(0o755)
        serving = [sys.executable, "-m", "tests.preloaded", str(path)]
        process = subprocess.Popen(
            serving, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[1]
        )
        with process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield directory
            process.terminate()


def _run(path: str, arguments: list[str]) -> int:
    """Have a command run with the files of this process; return its exit code."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        request = {"arguments": arguments, "folder": os.getcwd(), "environment": dict(os.environ)}
        socket.send_fds(connection, [b"*"], list(_STREAMS))
        connection.sendall(json.dumps(request).encode())
        connection.shutdown(socket.SHUT_WR)
        return array.array("i", connection.recv(4))[0]


def _wait_for_a_command(path: str) -> list[str]:
    """Return its arguments, in a new process that is like the caller's."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(path)
    listening.listen()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nothing is to be known of those that wait.
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([listening.fileno(), 0], [], [])
        if 0 in ready:  # The tests ended, or were killed.
            sys.exit()
        connection, _ = listening.accept()
        if os.fork():
            connection.close()
            continue
        listening.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _, files, _, _ = socket.recv_fds(connection, 1, len(_STREAMS))
        with connection.makefile("rb") as reading:
            request = json.loads(reading.read())
        command = os.fork()
        if command:
            for file in files:
                os.close(file)
            _, status = os.waitpid(command, 0)
            connection.sendall(array.array("i", [os.waitstatus_to_exitcode(status)]).tobytes())
            os._exit(0)
        connection.close()
        for file, stream in zip(files, _STREAMS, strict=True):
            os.dup2(file, stream)
            os.close(file)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        return [str(argument) for argument in request["arguments"]]


def _serve(path: str) -> None:
    import torch  # noqa: F401

    gc.freeze()  # Else most of a short command's time is the collection of torch's objects at exit.
    program, *arguments = _wait_for_a_command(path)
    if program == "headwise":
        from headwise.cli import main

        sys.argv = [program, *arguments]
        main()
    else:
        if arguments[:2] == ["-W", "error"]:
            warnings.simplefilter("error")
            arguments = arguments[2:]
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            sys.path[0] = os.getcwd()
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
            return
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).parent.absolute())
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        _serve(sys.argv[1])
    else:
        sys.exit(_run(sys.argv[1], sys.argv[2:]))
