"""What searches for translations: ids in, hypotheses out."""

from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from headwise.decoding import Found, Hypothesis, SearchSettings


class LostError(Exception):
    """Some sentences of a search will never be done; it goes on with the others."""

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        super().__init__(f"{len(errors)} sentences were lost")
        self.errors = errors
        """Why, for each of them."""


class OngoingSearch(Protocol):
    """A search for the translations of sentences that come, known by their numbers, at any time."""

    def __len__(self) -> int:
        """Return how many sentences are under way."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether `advance` has something to do, and need not wait for it."""
        ...

    def accepts(self, newcomers: int) -> bool:
        """Return whether it is a good time for so many to be added."""
        ...

    def add(self, sources: Mapping[int, list[int]]) -> None:
        """Begin with new sentences."""
        ...

    def advance(self) -> Found:
        """Go on a step; return the sentences that are done by then, or raise LostError."""
        ...

    def drop(self, numbers: Collection[int]) -> None:
        """Give up some sentences, as soon as it can be done."""
        ...


class Engine(Protocol):
    """What searches for translations: ids in, hypotheses out."""

    @property
    def is_free(self) -> bool:
        """Whether a search that begins now is computed now, and waits for no other."""
        ...

    def translate(
        self,
        sources: list[list[int]],
        settings: SearchSettings,
        max_extra_tokens: int,
        prefixes: list[list[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Translate sentences, given as ids without their ends, to at most so many more tokens.

        With `prefixes`, each translation begins with the ids given for it.
        """
        ...

    def search(
        self,
        settings: SearchSettings,
        max_extra_tokens: int,
        on_ready: Callable[[], None] = lambda: None,
    ) -> OngoingSearch:
        """Begin a search that sentences can be added to while it goes on.

        One that goes on by itself calls `on_ready`, from any thread, when it has found something.
        """
        ...

    def token_log_probs(self, pairs: list[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Return the log-probability of each token of each target, then that of its end."""
        ...
