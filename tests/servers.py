"""Servers for tests: in this process, on a port of their own, and always stopped."""

import asyncio
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwise.config import Config
from headwise.serving.clients import TrustedProxies
from headwise.serving.hosts import AllowedHosts
from headwise.serving.keys import Keys
from headwise.serving.limits import Limits
from headwise.serving.models import ServedModel
from headwise.serving.server import Server, listen, make_server
from headwise.serving.tls import tls_context
from headwise.tasks.translation.translator import Translator

TLS = Path(__file__).parent / "tls"
CERTIFICATE, PRIVATE_KEY = TLS / "certificate.pem", TLS / "key.pem"


def in_languages(translator: Translator, source: str, target: str) -> Translator:
    """The same translator, said to be between two languages."""
    config = translator.config
    data = dataclasses.replace(config.data, source_language=source, target_language=target)
    changed: Config = dataclasses.replace(config, data=data)
    return Translator(
        translator._engine,
        translator._source,
        translator._target,
        changed,
        longest_source=translator.longest_source,
        name=translator.name,
    )


class Running:
    """A server that runs, and ways to ask it."""

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
        """Make one request; a body that is no bytes is sent as JSON, and JSON is parsed."""
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
        """A figure of its only model."""
        lines = self.ask("GET", "/metrics")[1].decode().splitlines()
        (line,) = [line for line in lines if line.startswith(f"{name}{{")]
        return float(line.rpartition(" ")[2])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)


@contextmanager
def running(
    models: list[ServedModel],
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
    try:
        assert process.stdout is not None
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


def wait_for(condition: Any, seconds: float = 20) -> None:
    """Wait until something is so."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until or condition(), "it did not come to be so"
        time.sleep(0.01)


class SlowSteps:
    """Make each step of a translator's model take long, and count them."""

    def __init__(self, translator: Translator, seconds: float) -> None:
        self._model = translator._engine.model  # type: ignore[attr-defined]
        self._seconds, self.count = seconds, 0

    def __enter__(self) -> "SlowSteps":
        step = self._model.step

        def slow(*arguments: Any) -> Any:
            self.count += 1
            time.sleep(self._seconds)
            return step(*arguments)

        self._model.step = slow
        return self

    def __exit__(self, *_: object) -> None:
        del self._model.step


def served(run: Path, *, name: str = "run", source: str = "xx", target: str = "yy") -> ServedModel:
    """A run as a model that is served between two languages."""
    translator = in_languages(Translator.load(run), source, target)
    return ServedModel(name=name, translator=translator)
