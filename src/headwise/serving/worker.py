"""A worker process that searches, and the messages between it and the server.

`workers.py` starts it, sends it commands and receives events. It exits when the connection is
closed.
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

from headwise.config import ModelConfig, RecurrentConfig, Vocab
from headwise.decoding import Found, SearchSettings
from headwise.model.build import build_model
from headwise.runs.tensors import read_tensors
from headwise.serving import logs
from headwise.serving.compute import lower_priority
from headwise.serving.fairness import Turns
from headwise.tasks.translation.torch_engine import TorchEngine, TorchSearch

_PIECE = 1 << 16
_LENGTH = struct.Struct("!I")
_ALIVE_SECONDS = 1.0
"""How often a busy worker sends an event, at least."""


@dataclass(frozen=True)
class SearchKey:
    """Identifies a search: the properties that its sentences share."""

    number: int
    """The number of the server's search: several may have the same settings."""
    model: str
    settings: SearchSettings
    max_extra_tokens: int
    is_bulk: bool
    """Whether it is for clients with much in progress."""


@dataclass(frozen=True)
class Load:
    """Command: load a model."""

    name: str
    config: ModelConfig | RecurrentConfig
    vocab: Vocab
    weights: int
    """The file descriptor of its weights, which the process inherits."""


@dataclass(frozen=True)
class Add:
    """Command: search for some sentences, identified by numbers."""

    key: SearchKey
    sources: dict[int, list[int]]
    clients: dict[int, str]
    """The client of each sentence."""


@dataclass(frozen=True)
class Drop:
    """Command: drop some sentences."""

    numbers: Sequence[int]


@dataclass(frozen=True)
class Loaded:
    """Event: a model is loaded."""

    name: str


@dataclass(frozen=True)
class Done:
    """Event: some sentences are done, with their hypotheses."""

    found: Found


@dataclass(frozen=True)
class Dropped:
    """Event: some sentences are dropped, as commanded."""

    numbers: Sequence[int]


@dataclass(frozen=True)
class Alive:
    """Event: the worker is taking steps, though nothing is done."""


@dataclass(frozen=True)
class Failed:
    """Event: the search for some sentences failed. The worker logs the error."""

    numbers: list[int]


Command = Load | Add | Drop
Event = Loaded | Done | Dropped | Alive | Failed


def encode_message(message: Command | Event) -> bytes:
    """Encode a message for the connection."""
    content = pickle.dumps(message)
    return _LENGTH.pack(len(content)) + content


class MessageDecoder:
    """Decode messages from the bytes that have arrived."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Add received bytes; return the messages that are now complete.

        Unpickling is safe here: only our own process can write to the connection.
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
    """Sentences that have not joined the search yet."""
    tokens: dict[int, tuple[str, int]] = field(default_factory=dict)
    """The client and the size of each sentence that is not done."""
    turn: int = 0
    """The number of its last turn."""

    def clients(self) -> Counter[str]:
        """Return how many tokens of the search belong to each client."""
        sizes: Counter[str] = Counter()
        for client, tokens in self.tokens.values():
            sizes[client] += tokens
        return sizes


class Worker:
    """All searches of this process, one step at a time, in the same order as in `batching.py`."""

    def __init__(self, connection: socket.socket, engines: dict[str, TorchEngine]) -> None:
        """Search with `engines`, by model name, and with those that commands load."""
        self._connection, self._decoder = connection, MessageDecoder()
        self._engines = engines
        self._searches: dict[SearchKey, _Running] = {}
        self._turns, self._numbers = Turns(), count()
        self._sent_at = 0.0

    def run(self) -> None:
        """Handle commands and search until the connection is closed."""
        incoming = select.poll()  # `select` is limited to file descriptors below 1024.
        incoming.register(self._connection, select.POLLIN)
        while True:
            # With nothing to do, block until a command arrives.
            timeout = 0 if self._searches else None
            while incoming.poll(timeout):
                data = self._connection.recv(_PIECE)
                if not data:
                    return
                for command in self._decoder.feed(data):
                    self._handle(command)
                timeout = 0
            if self._searches:
                self._advance(min(self._searches, key=self._priority))

    def _handle(self, command: Command) -> None:
        if isinstance(command, Load):
            self._load(command)
        elif isinstance(command, Add):
            self._add(command)
        else:
            self._drop(command)

    def _load(self, command: Load) -> None:
        weights = read_tensors(Path(f"/dev/fd/{command.weights}"))
        model = build_model(command.config, command.vocab, "seq2seq")
        for name, parameter in model.named_parameters():
            parameter.data = weights[name]  # Mapped, not copied: all workers share the memory.
        self._engines[command.name] = TorchEngine(model)
        self._send(Loaded(command.name))

    def _add(self, command: Add) -> None:
        running = self._searches.get(command.key)
        if running is None:
            engine = self._engines[command.key.model]
            search = engine.search(command.key.settings, command.key.max_extra_tokens)
            running = self._searches[command.key] = _Running(search)
        running.waiting.update(command.sources)
        for number, ids in command.sources.items():
            client = command.clients[number]
            self._turns.wake(client)
            running.tokens[number] = client, (len(ids) + 1) * command.key.settings.beam

    def _drop(self, command: Drop) -> None:
        for key, running in list(self._searches.items()):
            unwanted = running.tokens.keys() & set(command.numbers)
            for number in unwanted:
                running.waiting.pop(number, None)
                del running.tokens[number]
            running.search.drop(unwanted)
            if not running.tokens:
                del self._searches[key]
        self._send(Dropped(command.numbers))

    def _priority(self, key: SearchKey) -> tuple[tuple[float, float], int]:
        """Return the priority of a search; a client's own searches take turns."""
        running = self._searches[key]
        clients = (client for client, _ in running.tokens.values())
        return self._turns.priority(clients, is_bulk=key.is_bulk), running.turn

    def _advance(self, key: SearchKey) -> None:
        """Add waiting sentences to a search, and take one step of it."""
        running, began = self._searches[key], time.perf_counter()
        search, running.turn = running.search, next(self._numbers)
        try:
            if running.waiting and search.accepts(len(running.waiting)):
                search.add(running.waiting)
                running.waiting = {}
            found = search.advance()
        except Exception:  # Fails this search only.
            logs.log_error("a search has failed", model=key.model)
            del self._searches[key]
            self._send(Failed(sorted(running.tokens)))
            return
        seconds = time.perf_counter() - began
        self._turns.charge(running.clients(), seconds, is_bulk=key.is_bulk)
        for number, _ in found:
            running.tokens.pop(number, None)
        if not running.tokens:
            del self._searches[key]
        if found:
            self._send(Done(found))
        elif time.monotonic() - self._sent_at > _ALIVE_SECONDS:
            self._send(Alive())

    def _send(self, event: Event) -> None:
        self._sent_at = time.monotonic()
        self._connection.sendall(encode_message(event))


def main() -> None:
    """Run a worker on a connection, given by its file descriptor."""
    logs.configure()
    lower_priority()
    connection = socket.socket(fileno=int(sys.argv[1]))
    torch.set_num_threads(int(sys.argv[2]))
    with suppress(ConnectionError):  # The server has ended.
        Worker(connection, {}).run()
