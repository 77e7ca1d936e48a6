"""A process that searches for translations, with its share of the cores.

`workers.py` starts it, sends it sentences and is sent what was found for them. It ends with the
connection between them, however that came to its end.
"""

import os
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any

import torch

from headwise.config import ModelConfig, Vocab
from headwise.decoding import Found, SearchSettings
from headwise.model import Transformer
from headwise.runs.tensors import read_tensors
from headwise.serving import logs
from headwise.serving.compute import step_back
from headwise.tasks.torch_engine import TorchEngine, TorchSearch


@dataclass(frozen=True)
class SearchKey:
    """What sentences that are searched for together have in common."""

    model: str
    settings: SearchSettings
    max_extra_tokens: int


@dataclass(frozen=True)
class Load:
    """An order to load a model; the file with its weights is sent after it."""

    name: str
    config: ModelConfig
    vocab: Vocab


@dataclass(frozen=True)
class Add:
    """An order to search for some sentences, known by their numbers."""

    key: SearchKey
    sources: dict[int, list[int]]


@dataclass(frozen=True)
class Drop:
    """An order to give up some sentences."""

    numbers: Sequence[int]


@dataclass(frozen=True)
class Stop:
    """An order to end, whatever is under way."""


@dataclass(frozen=True)
class Loaded:
    """News: a model is there."""

    name: str


@dataclass(frozen=True)
class Done:
    """News: what was found for some sentences."""

    found: Found


@dataclass(frozen=True)
class Failed:
    """News: some sentences could not be searched for. Why was logged."""

    numbers: list[int]


Order = Load | Add | Drop | Stop
News = Loaded | Done | Failed


def send(connection: "Connection[Any, Any]", message: Order | News) -> None:
    """Say something to the other end of a connection.

    Plain pickle: the connection's own, which torch extends, takes ten times as long.
    """
    connection.send_bytes(pickle.dumps(message))


def receive(connection: "Connection[Any, Any]") -> Any:
    """Wait for what the other end says, which is a process of our own that nobody else talks to."""
    return pickle.loads(connection.recv_bytes())  # noqa: S301


@dataclass(eq=False)
class _Running:
    search: TorchSearch
    waiting: dict[int, list[int]] = field(default_factory=dict)
    """Who has not joined yet."""
    numbers: set[int] = field(default_factory=set)
    """Who has come, and was not found yet."""


class Worker:
    """Every search that this process does, by turns, a step at a time."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        self._connection = connection
        self._engines: dict[str, TorchEngine] = {}
        self._searches: dict[SearchKey, _Running] = {}

    def run(self) -> None:
        """Do as told until told to stop, or until there is nobody left to tell."""
        while True:
            # With nothing to do, wait until something comes.
            while self._connection.poll(0 if self._searches else None):
                order: Order = receive(self._connection)
                if isinstance(order, Stop):
                    return
                self._obey(order)
            for key, running in list(self._searches.items()):
                self._go_on(key, running)

    def _obey(self, order: Load | Add | Drop) -> None:
        if isinstance(order, Load):
            self._load(order)
        elif isinstance(order, Add):
            self._add(order)
        else:
            self._drop(order)

    def _load(self, order: Load) -> None:
        file = recv_handle(self._connection)
        weights = read_tensors(Path(f"/dev/fd/{file}"))
        os.close(file)
        model = Transformer(order.config, order.vocab)
        for name, parameter in model.named_parameters():
            parameter.data = weights[name]  # Mapped, not copied: all workers share the memory.
        self._engines[order.name] = TorchEngine(model)
        send(self._connection, Loaded(order.name))

    def _add(self, order: Add) -> None:
        running = self._searches.get(order.key)
        if running is None:
            engine = self._engines[order.key.model]
            search = engine.search(order.key.settings, order.key.max_extra_tokens)
            running = self._searches[order.key] = _Running(search)
        running.waiting.update(order.sources)
        running.numbers.update(order.sources)

    def _drop(self, order: Drop) -> None:
        for key, running in list(self._searches.items()):
            unwanted = running.numbers.intersection(order.numbers)
            for number in unwanted:
                running.waiting.pop(number, None)
            running.search.drop(unwanted)
            running.numbers -= unwanted
            if not running.numbers:
                del self._searches[key]

    def _go_on(self, key: SearchKey, running: _Running) -> None:
        """Let newcomers join a search, and take one step of it."""
        search = running.search
        try:
            if running.waiting and search.accepts(len(running.waiting)):
                search.add(running.waiting)
                running.waiting = {}
            found = search.advance()
        except Exception:  # Whatever it is, it is this search's: others go on.
            logs.log_error("a search has failed", model=key.model)
            del self._searches[key]
            send(self._connection, Failed(sorted(running.numbers)))
            return
        running.numbers.difference_update(number for number, _ in found)
        if not running.numbers:
            del self._searches[key]
        if found:
            send(self._connection, Done(found))


def main() -> None:
    """Work for whoever has the other end of a connection, given by its number."""
    logs.configure()
    step_back()
    connection, threads = Connection(int(sys.argv[1])), int(sys.argv[2])
    torch.set_num_threads(threads)
    # Whoever started this has ended, and nobody waits for anything any more.
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        Worker(connection).run()
