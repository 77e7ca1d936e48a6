"""A small language model with random weights, behind a server."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headwise.serving.task_api import TaskModel
from headwise.tasks.language_model.generator import Generator
from headwise.tasks.table import served_task
from tests.servers import Running


def served_generator(generator: Generator, name: str = "lm") -> TaskModel:
    served = served_task(generator.config)
    return TaskModel(name=name, task="language-model", served=served, predictor=generator)


@contextmanager
def streaming(
    server: Running, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> Iterator[http.client.HTTPResponse]:
    """Send a request; its answer can be read while the block runs, then the client hangs up."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        sent = {"Content-Type": "application/json", **(headers or {})}
        connection.request("POST", path, json.dumps(body), sent)
        yield connection.getresponse()
    finally:
        connection.close()


def events(answer: http.client.HTTPResponse) -> Iterator[Any]:
    """Yield the events of a stream as they come, the last one too if it is [DONE]."""
    for line in answer:
        if line.startswith(b"data: "):
            data = line.removeprefix(b"data: ").strip()
            yield "[DONE]" if data == b"[DONE]" else json.loads(data)
        else:
            assert line == b"\n"
