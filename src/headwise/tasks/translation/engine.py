"""What a Translator needs of an engine, and what an engine may offer beyond it.

Engines compute on token ids. Every engine is an `Engine`; `Scores`, `Aligns` and `Samples` are
capabilities that some have as well.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Protocol, runtime_checkable

from headwise.decoding import Found, Hypothesis, SamplingSettings, SearchSettings
from headwise.model import Trace


class LostError(Exception):
    """Some sentences of a search failed; the search continues with the others."""

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        super().__init__(f"{len(errors)} sentences were lost")
        self.errors = errors
        """The error of each failed sentence, by its number."""


class OngoingSearch(Protocol):
    """A search that numbered sentences can be added to at any time."""

    def __len__(self) -> int:
        """Return how many sentences are being searched."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether `advance` would return without waiting."""
        ...

    def accepts(self, newcomers: int) -> bool:
        """Return whether this is a good time to add so many sentences."""
        ...

    def add(self, sources: Mapping[int, list[int]]) -> None:
        """Start searching for new sentences."""
        ...

    def advance(self) -> Found:
        """Take a step; return the sentences that it finished, or raise LostError."""
        ...

    def drop(self, numbers: Collection[int]) -> None:
        """Cancel some sentences as soon as possible."""
        ...


class Engine(Protocol):
    """Search for translations: ids in, hypotheses out."""

    @property
    def is_free(self) -> bool:
        """Whether a new search would be computed at once, without waiting for another."""
        ...

    def translate(
        self,
        sources: list[list[int]],
        settings: SearchSettings,
        max_extra_tokens: int,
        prefixes: list[list[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Translate sentences, given as ids without eos; return the hypotheses of each, best first.

        An output has at most `max_extra_tokens` more tokens than its source. With `prefixes`, each
        output begins with the ids given for it.
        """
        ...

    def search(
        self,
        settings: SearchSettings,
        max_extra_tokens: int,
        on_ready: Callable[[], None] = lambda: None,
    ) -> OngoingSearch:
        """Start a search that sentences can be added to while it runs.

        A search that computes in the background calls `on_ready`, from any thread, when it has
        results.
        """
        ...


@runtime_checkable
class Scores(Protocol):
    """Compute the probabilities of given translations."""

    def token_log_probs(self, pairs: list[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Return the log-probability of each token of each target, then of its eos."""
        ...


@runtime_checkable
class Aligns(Protocol):
    """Show attention weights."""

    @property
    def attends(self) -> bool:
        """Whether the model has attention; without, the methods below cannot be called."""
        ...

    def alignment(self, source: list[int], target: list[int]) -> list[tuple[int, int]]:
        """Return, for each target token, the source token that it attends to most."""
        ...

    def trace(self, source: list[int], target: list[int]) -> Trace:
        """Return every attention weight of a pair, both with eos."""
        ...


@runtime_checkable
class Samples(Protocol):
    """Draw translations at random."""

    def sample(
        self,
        sources: list[list[int]],
        settings: SamplingSettings,
        max_extra_tokens: int,
        keys: list[tuple[int, int]],
        *,
        count: int,
        min_length: int,
    ) -> list[list[Hypothesis]]:
        """Draw `count` translations of each source; `keys` and the seed decide what is drawn."""
        ...
