"""What a search is told, and what it asks of a model."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal, Protocol, Self, TypeVar

from torch import Tensor


class DecodingState(Protocol):
    """Where a model stands in several outputs at once."""

    def select(self, rows: Tensor, group: int = 1) -> Self:
        """Return the state of the given rows, which come in groups from one source each."""
        ...


S = TypeVar("S", bound=DecodingState)
Step = Callable[[Tensor, S], tuple[Tensor, S]]
R = TypeVar("R", contravariant=True)


class Watcher(Protocol[R]):
    """Who looks on while sentences, known by their numbers, are searched."""

    def unwanted(self) -> Collection[int]:
        """Return which sentences to give up; asked before each step, so it had better be quick."""
        ...

    def done(self, sentence: int, results: R) -> None:
        """Take the results of a sentence as soon as it is done; others may take longer."""
        ...


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """How to search (§6.1)."""

    beam: int = 4
    alpha: float = 0.6
    penalty: Literal["gnmt", "power"] = "gnmt"
    stop: Literal["bound", "count"] = "bound"
    nbest: int = 1
    min_length: int = 0
    """Tokens that every output has at least, its end not counted."""

    def length_penalty(self, length: Tensor | int) -> Tensor | float:
        """Return what a log-probability is divided by; the length counts the end of the sentence.

        Paper: §6.1, after Wu et al. (2016), eq. 14.
        """
        base = (5 + length) / 6 if self.penalty == "gnmt" else length
        return base**self.alpha
