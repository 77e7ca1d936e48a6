"""What a search is told, and what it asks of a model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, Self, TypeVar

from torch import Tensor


class DecodingState(Protocol):
    """Where a model stands in several outputs at once."""

    def select(self, rows: Tensor, group: int = 1) -> Self:
        """Return the state of the given rows, which come in groups from one source each."""
        ...

    def rest(self, sources: Tensor) -> Self:
        """Return the state when nobody wants some of its sources any more; their rows stay."""
        ...

    def replace(self, sources: Tensor, other: Self) -> Self:
        """Return the state with another's sources, and their rows, in the place of some."""
        ...


S = TypeVar("S", bound=DecodingState)
Step = Callable[[Tensor, S], tuple[Tensor, S]]


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

    def length_penalty(self, length: Tensor) -> Tensor:
        """Return what a log-probability is divided by; the length counts the end of the sentence.

        Paper: §6.1, after Wu et al. (2016), eq. 14.
        """
        base = (5 + length) / 6 if self.penalty == "gnmt" else length
        return base.pow(self.alpha)
