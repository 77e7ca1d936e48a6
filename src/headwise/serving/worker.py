"""A process that searches for translations, with its share of the cores.

`workers.py` starts it, sends it sentences and is sent what was found for them. It ends with the
connection between them, however that came to its end.
"""

import pickle
import select
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import torch

from headwise.config import ModelConfig, Vocab
from headwise.decoding import Found, SearchSettings
from headwise.model import Transformer
from headwise.runs.tensors import read_tensors
from headwise.serving import logs
from headwise.serving.compute import step_back
from headwise.serving.fairness import Turns
from headwise.tasks.translation.torch_engine import TorchEngine, TorchSearch

_PIECE = 1 << 16
_LENGTH = struct.Struct("!I")
_ALIVE_SECONDS = 1.0
"""How often a worker with something to do says that it is alive."""


@dataclass(frozen=True)
class SearchKey:
    """What sentences that are searched for together have in common."""

    number: int
    """Which of the server's searches it is: there may be several with the same settings."""
    model: str
    settings: SearchSettings
    max_extra_tokens: int
    is_bulk: bool
    """Whether it is for clients with much under way."""


@dataclass(frozen=True)
class Load:
    """An order to load a model."""

    name: str
    config: ModelConfig
    vocab: Vocab
    weights: int
    """The number of a file that was open when the process was started."""


@dataclass(frozen=True)
class Add:
    """An order to search for some sentences, known by their numbers."""

    key: SearchKey
    sources: dict[int, list[int]]
    clients: dict[int, str]
    """Which client each sentence is for."""


@dataclass(frozen=True)
class Drop:
    """An order to give up some sentences."""

    numbers: Sequence[int]


@dataclass(frozen=True)
class Loaded:
    """News: a model is there."""

    name: str


@dataclass(frozen=True)
class Done:
    """News: what was found for some sentences."""

    found: Found


@dataclass(frozen=True)
class Dropped:
    """News: some sentences were given up, as ordered."""

    numbers: Sequence[int]


@dataclass(frozen=True)
class Alive:
    """News: steps are being taken, though nothing was found for a while."""


@dataclass(frozen=True)
class Failed:
    """News: some sentences could not be searched for. Why was logged."""

    numbers: list[int]


Order = Load | Add | Drop
News = Loaded | Done | Dropped | Alive | Failed


def packed(message: Order | News) -> bytes:
    """Return a message as it is sent."""
    content = pickle.dumps(message)
    return _LENGTH.pack(len(content)) + content


class Inbox:
    """Messages, out of the bytes of them that have come."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Return the messages that are whole by what has just come.

        They are from a process of our own that nobody else can talk to: to unpickle them is safe.
        """
        self._bytes += data
        messages = []
        while len(self._bytes) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self._bytes)[0]
            if len(self._bytes) < end:
                break
            messages.append(pickle.loads(self._bytes[_LENGTH.size : end]))  # noqa: S301
            del self._bytes[:end]
        return messages


@dataclass(eq=False)
class _Running:
    search: TorchSearch
    waiting: dict[int, list[int]] = field(default_factory=dict)
    """Who has not joined yet."""
    tokens: dict[int, tuple[str, int]] = field(default_factory=dict)
    """The client and the size of each sentence that was not found yet."""
    turn: int = 0
    """When it was last its turn."""

    def clients(self) -> Counter[str]:
        """Return how much of the search is each client's."""
        sizes: Counter[str] = Counter()
        for client, tokens in self.tokens.values():
            sizes[client] += tokens
        return sizes


class Worker:
    """Every search that this process does, a step at a time.

    Whose turn it is, is decided as in the server (`batching.py`).
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._inbox = connection, Inbox()
        self._engines: dict[str, TorchEngine] = {}
        self._searches: dict[SearchKey, _Running] = {}
        self._turns, self._numbers = Turns(), count()
        self._said_at = 0.0

    def run(self) -> None:
        """Do as told until there is nobody left to tell."""
        coming = select.poll()  # The number of a connection may be too high for `select`.
        coming.register(self._connection, select.POLLIN)
        while True:
            # With nothing to do, wait until something comes.
            patience = 0 if self._searches else None
            while coming.poll(patience):
                data = self._connection.recv(_PIECE)
                if not data:
                    return
                for order in self._inbox.feed(data):
                    self._obey(order)
                patience = 0
            if self._searches:
                self._go_on(min(self._searches, key=self._place))

    def _obey(self, order: Order) -> None:
        if isinstance(order, Load):
            self._load(order)
        elif isinstance(order, Add):
            self._add(order)
        else:
            self._drop(order)

    def _load(self, order: Load) -> None:
        weights = read_tensors(Path(f"/dev/fd/{order.weights}"))
        model = Transformer(order.config, order.vocab)
        for name, parameter in model.named_parameters():
            parameter.data = weights[name]  # Mapped, not copied: all workers share the memory.
        self._engines[order.name] = TorchEngine(model)
        self._say(Loaded(order.name))

    def _add(self, order: Add) -> None:
        running = self._searches.get(order.key)
        if running is None:
            engine = self._engines[order.key.model]
            search = engine.search(order.key.settings, order.key.max_extra_tokens)
            running = self._searches[order.key] = _Running(search)
        running.waiting.update(order.sources)
        for number, ids in order.sources.items():
            client = order.clients[number]
            self._turns.wake(client)
            running.tokens[number] = client, (len(ids) + 1) * order.key.settings.beam

    def _drop(self, order: Drop) -> None:
        for key, running in list(self._searches.items()):
            unwanted = running.tokens.keys() & set(order.numbers)
            for number in unwanted:
                running.waiting.pop(number, None)
                del running.tokens[number]
            running.search.drop(unwanted)
            if not running.tokens:
                del self._searches[key]
        self._say(Dropped(order.numbers))

    def _place(self, key: SearchKey) -> tuple[tuple[float, float], int]:
        """Return what decides whose turn it is; a client's own searches take turns."""
        running = self._searches[key]
        clients = (client for client, _ in running.tokens.values())
        return self._turns.place(clients, is_bulk=key.is_bulk), running.turn

    def _go_on(self, key: SearchKey) -> None:
        """Let newcomers join a search, and take one step of it."""
        running, began = self._searches[key], time.perf_counter()
        search, running.turn = running.search, next(self._numbers)
        try:
            if running.waiting and search.accepts(len(running.waiting)):
                search.add(running.waiting)
                running.waiting = {}
            found = search.advance()
        except Exception:  # Whatever it is, it is this search's: others go on.
            logs.log_error("a search has failed", model=key.model)
            del self._searches[key]
            self._say(Failed(sorted(running.tokens)))
            return
        seconds = time.perf_counter() - began
        self._turns.charge(running.clients(), seconds, is_bulk=key.is_bulk)
        for number, _ in found:
            running.tokens.pop(number, None)
        if not running.tokens:
            del self._searches[key]
        if found:
            self._say(Done(found))
        elif time.monotonic() - self._said_at > _ALIVE_SECONDS:
            self._say(Alive())

    def _say(self, news: News) -> None:
        self._said_at = time.monotonic()
        self._connection.sendall(packed(news))


def main() -> None:
    """Work for whoever has the other end of a connection, given by its number."""
    logs.configure()
    step_back()
    connection = socket.socket(fileno=int(sys.argv[1]))
    torch.set_num_threads(int(sys.argv[2]))
    with suppress(ConnectionError):  # Whoever started this has ended: nobody waits for anything.
        Worker(connection).run()
