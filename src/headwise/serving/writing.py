"""Write the continuations of many clients together, and pass on their text as it is written."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from headwise.decoding import SearchSettings
from headwise.tasks.language_model.drafts import Draft
from headwise.tasks.language_model.generator import Generator
from headwise.tasks.language_model.writing import Piece, join_pieces

TOGETHER = SearchSettings(beam=1)
"""Continuations are drawn together, whatever settings each has: so these are the same for all."""

_MOST_PIECES = 64
"""How many pieces of a continuation are kept apart."""

CallSoon = Callable[[asyncio.AbstractEventLoop, Callable[[], None]], None]


class Arrivals:
    """The pieces of a request's continuations, as they arrive in its event loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._pieces: dict[int, list[Piece]] = {}
        self._has_news = asyncio.Event()

    def put(self, pieces: Sequence[tuple[int, Piece]]) -> None:
        """Add pieces, each with the number of its continuation."""
        for index, piece in pieces:
            self._pieces.setdefault(index, []).append(piece)
        self._has_news.set()

    def wake(self) -> None:
        """Have `take` return, even if there is nothing."""
        self._has_news.set()

    async def take(self) -> dict[int, Piece]:
        """Wait for pieces; return what has arrived of each continuation since the last call."""
        await self._has_news.wait()
        self._has_news.clear()
        found = {index: join_pieces(pieces) for index, pieces in self._pieces.items()}
        self._pieces = {}
        return found


@dataclass(frozen=True, eq=False)
class Job:
    """A continuation of a request."""

    draft: Draft
    context: int
    index: int
    """Which continuation of the request it is."""
    arrivals: Arrivals | None
    """Where its pieces go as they are written; None: only the whole is wanted."""

    def __len__(self) -> int:
        """Return how many tokens the model attends to at most, for its place in the batch."""
        return min(self.context, self.draft.num_read(self.context) + self.draft.drawing.limit)


Result = Piece | None
"""A whole continuation; None if the logits were NaN."""


class GenerationSearch:
    """The continuations that are written together: a `Search` of jobs."""

    def __init__(
        self, generator: Generator, call_soon: CallSoon, on_step: Callable[[int, int], None]
    ) -> None:
        """Pass pieces on by `call_soon`; count by `on_step` tokens, and draws that were close."""
        self._drafts, self._call_soon, self._on_step = generator.writing(), call_soon, on_step
        self._jobs: dict[int, Job] = {}
        self._pieces: dict[int, list[Piece]] = {}

    def __len__(self) -> int:
        """Return how many are being written."""
        return len(self._jobs)

    @property
    def is_ready(self) -> bool:
        """Whether there are any."""
        return len(self) > 0

    def accepts(self, newcomers: int) -> bool:
        """Return whether this is a good time to add so many."""
        return self._drafts.accepts(newcomers)

    def add(self, sources: Mapping[int, Job]) -> None:
        """Begin to write continuations."""
        self._jobs.update(sources)
        self._pieces.update({number: [] for number in sources})
        self._drafts.add({number: job.draft for number, job in sources.items()})

    def advance(self) -> list[tuple[int, Result]]:
        """Take a step, and pass on what it added; return the continuations that it ended."""
        close = self._drafts.close_draws
        found = self._drafts.advance()
        self._on_step(len(found), self._drafts.close_draws - close)
        done: list[tuple[int, Result]] = []
        news: dict[Arrivals, list[tuple[int, Piece]]] = {}
        for number, piece in found.items():
            if piece is None:
                done.append((number, None))
                self._forget(number)
                continue
            job, pieces = self._jobs[number], self._pieces[number]
            pieces.append(piece)
            if len(pieces) > _MOST_PIECES:
                pieces[:] = [join_pieces(pieces)]
            if job.arrivals is not None:
                news.setdefault(job.arrivals, []).append((job.index, piece))
            if piece.ending is not None:
                done.append((number, join_pieces(pieces)))
                self._forget(number)
        if news:
            self._call_soon(next(iter(news)).loop, partial(_put_all, news))
        return done

    def drop(self, numbers: Collection[int]) -> None:
        """Stop writing some."""
        for number in numbers:
            if number in self._jobs:
                self._forget(number)
        self._drafts.drop(numbers)

    def _forget(self, number: int) -> None:
        del self._jobs[number], self._pieces[number]


def _put_all(news: Mapping[Arrivals, Sequence[tuple[int, Piece]]]) -> None:
    for arrivals, pieces in news.items():
        arrivals.put(pieces)
