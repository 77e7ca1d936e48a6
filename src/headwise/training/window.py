"""Means over the last few updates: what a line of metrics says."""

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from headwise.training.distributed import World


@dataclass(frozen=True, kw_only=True)
class Means:
    """Figures of the updates since the last line of metrics."""

    loss: float
    """Smoothed loss for each target token, in nats."""
    nll: float
    """Negative log-likelihood of each target token, in nats."""
    perplexity: float
    rate: float
    """The last update's learning rate."""
    gradient_norm: float
    tokens_per_second: dict[str, float]
    """By field of the task: source and target, ..."""
    padding: float
    """Share of the batches' positions that held padding."""
    outside: float
    """Share of the time not spent in forward, backward and optimizer."""

    def to_dict(self) -> dict[str, float]:
        """Return everything as a line of metrics has it."""
        speeds = {f"{name}_tokens_per_second": v for name, v in self.tokens_per_second.items()}
        others = {name: v for name, v in vars(self).items() if name != "tokens_per_second"}
        return {**others, **speeds}


class Window:
    """Add up batches and updates, and tell their means."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything and start the clock."""
        self._smoothed = self._nll = self._loss_tokens = 0.0
        self._cells = self._filled = 0.0
        self._updates = 0
        self._tokens: Counter[str] = Counter()
        self._norms = self._rate = 0.0
        self._seconds = self._compute = 0.0
        self._since = time.perf_counter()

    def resume(self) -> None:
        """Go on after a pause, which counts as no time at all."""
        self._since = time.perf_counter()

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Count the time of the block as spent on the model."""
        start = time.perf_counter()
        yield
        self._compute += time.perf_counter() - start

    def add_batch(
        self, *, smoothed: float, nll: float, targets: int, positions: int, filled: int
    ) -> None:
        """Add the losses of one of this process's batches, and how much of it is no padding."""
        self._smoothed += smoothed
        self._nll += nll
        self._loss_tokens += targets
        self._cells += positions
        self._filled += filled

    def add_update(self, *, rate: float, norm: float, tokens: Mapping[str, int]) -> None:
        """Add an update, with the tokens of all processes together."""
        self._updates += 1
        self._rate = rate
        self._norms += norm
        self._tokens.update(tokens)
        now = time.perf_counter()
        self._seconds += now - self._since
        self._since = now

    def gather(self, world: World) -> None:
        """Add what the other processes have added."""
        own = [self._smoothed, self._nll, self._loss_tokens, self._cells, self._filled]
        self._smoothed, self._nll, self._loss_tokens, self._cells, self._filled = world.sum(own)

    def means(self) -> Means:
        """Return the means so far, of at least one update."""
        nll = self._nll / self._loss_tokens
        return Means(
            loss=self._smoothed / self._loss_tokens,
            nll=nll,
            perplexity=perplexity(nll),
            rate=self._rate,
            gradient_norm=self._norms / self._updates,
            tokens_per_second={n: count / self._seconds for n, count in self._tokens.items()},
            padding=1 - self._filled / self._cells,
            outside=1 - self._compute / self._seconds,
        )


def perplexity(nll: float) -> float:
    """Return e^nll; beyond the range of numbers, infinity."""
    return math.exp(nll) if nll < 700 else math.inf
