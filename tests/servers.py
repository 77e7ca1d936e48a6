"""Servers for tests: in this process or another, each on a free port, and always stopped."""

import asyncio
import copy
import dataclasses
import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from headwise.serving.clients import AllowedHosts, TrustedProxies
from headwise.serving.compute import ComputeThread
from headwise.serving.keys import Keys
from headwise.serving.limits import Limits
from headwise.serving.models import ServedModel
from headwise.serving.protocol import tls_context
from headwise.serving.server import Server, listen, make_server
from headwise.serving.task_api import TaskModel
from headwise.tasks.language_model.generator import Generator
from headwise.tasks.translation.translator import Translator

COMPUTE = ComputeThread()
"""Computes for all servers in this process, as the one of `headwise serve` does."""

TLS = Path(__file__).parent / "tls"
CERTIFICATE, PRIVATE_KEY = TLS / "certificate.pem", TLS / "key.pem"


def in_languages(translator: Translator, source: str, target: str) -> Translator:
    """Copy a translator, with two languages in its config; both share the model."""
    config = translator.config
    data = dataclasses.replace(config.data, source_language=source, target_language=target)
    copied = copy.copy(translator)
    copied.config = dataclasses.replace(config, data=data)
    return copied


class Running:
    """A running server, and ways to send it requests."""

    def __init__(
        self, port: int, *, pid: int = 0, log: Path | None = None, has_tls: bool = False
    ) -> None:
        self.port, self.url = port, f"{'https' if has_tls else 'http'}://127.0.0.1:{port}"
        self.tls = ssl.create_default_context(cafile=CERTIFICATE) if has_tls else None
        self.pid, self._log = pid or os.getpid(), log

    process: subprocess.Popen[str]
    uvicorn: Server

    @property
    def log(self) -> Path:
        assert self._log is not None, "a server in this process logs nothing"
        return self._log

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        timeout: float = 30,
    ) -> tuple[int, Any, http.client.HTTPMessage]:
        """Make one request; send a body other than bytes as JSON, and parse JSON."""
        sent = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        if self.tls is not None:
            connection = http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=timeout, context=self.tls
            )
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            content: Any = answer.read()
            if content and answer.headers.get("content-type") == "application/json":
                content = json.loads(content)
            return answer.status, content, answer.headers
        finally:
            connection.close()

    def translate(self, q: object, **fields: object) -> Any:
        status, answer, _ = self.ask("POST", "/v1/translate", {"q": q, **fields})
        assert status == 200, answer
        return answer["translations"]

    def metric(self, name: str) -> float:
        """Return a metric of its only model."""
        lines = self.ask("GET", "/metrics")[1].decode().splitlines()
        (line,) = [line for line in lines if line.startswith(f"{name}{{")]
        return float(line.rpartition(" ")[2])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)


@contextmanager
def running(
    models: Sequence[ServedModel | TaskModel],
    *,
    limits: Limits | None = None,
    keys: Keys | None = None,
    origins: tuple[str, ...] = (),
    hosts: AllowedHosts | None = None,
    proxies: TrustedProxies | None = None,
    has_tls: bool = False,
) -> Iterator[Running]:
    """Run a server while the block runs."""
    server = make_server(
        models,
        COMPUTE,
        limits=limits,
        keys=keys,
        origins=origins,
        hosts=hosts,
        proxies=proxies,
        tls=tls_context(CERTIFICATE, PRIVATE_KEY) if has_tls else None,
    )
    listener = listen("127.0.0.1", 0)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    try:
        wait_for(lambda: server.started)
        found = Running(listener.getsockname()[1], has_tls=has_tls)
        found.uvicorn = server
        yield found
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()
        assert not thread.is_alive()


@contextmanager
def start_serve(run: Path, directory: Path, *options: str) -> Iterator[Running]:
    """Run `headwise serve` in a process of its own while the block runs."""
    log = directory / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "headwise", "serve", str(run), "--port", "0", *options],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("serving at http"), log.read_text()
        server = Running(
            int(line.rpartition(":")[2]),
            pid=process.pid,
            log=log,
            has_tls=line.startswith("serving at https:"),
        )
        wait_for(lambda: server.ask("GET", "/readyz")[0] == 200)
        server.process = process
        yield server
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def wait_for(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait until a condition holds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until or condition(), "the condition did not become true"
        time.sleep(0.01)


class SlowSteps:
    """Make each step of a translator's or generator's model take some seconds, and count them."""

    def __init__(self, translator: Translator | Generator, seconds: float) -> None:
        self._model: Any = translator.model
        self._seconds, self.count = seconds, 0

    def wait(self) -> None:
        time.sleep(self._seconds)

    def __enter__(self) -> Self:
        step = self._model.step

        def slow(*arguments: Any) -> Any:
            self.count += 1
            self.wait()
            return step(*arguments)

        self._model.step = slow
        return self

    def __exit__(self, *_: object) -> None:
        del self._model.step


class PausedSteps(SlowSteps):
    """Make each step of a translator's model wait until all are released, and count them."""

    def __init__(self, translator: Translator | Generator) -> None:
        super().__init__(translator, 0)
        self._is_released = threading.Event()

    def wait(self) -> None:
        assert self._is_released.wait(120)

    def release(self) -> None:
        self._is_released.set()

    def __exit__(self, *_: object) -> None:
        self.release()
        super().__exit__()


def served(run: Path, *, name: str = "run", source: str = "xx", target: str = "yy") -> ServedModel:
    """Load a run as a served model between two languages."""
    translator = in_languages(Translator.load(run), source, target)
    return ServedModel(name=name, translator=translator)


def post_form(server: Running, path: str, *parts: tuple[str, bytes, bool]) -> tuple[int, Any]:
    """Send a multipart form of parts: name, content and whether it is a file."""
    body = b""
    for name, content, is_file in parts:
        file_name = '; filename="a"' if is_file else ""
        head = f'--x\r\nContent-Disposition: form-data; name="{name}"{file_name}\r\n\r\n'
        body += head.encode() + content + b"\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=x"}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.request("POST", path, body + b"--x--\r\n", kind)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()
