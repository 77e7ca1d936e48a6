"""How to decode, and what decoding needs from a model."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, Self, TypeVar

from torch import Tensor

from headwise.config import Vocab


class DecodingState(Protocol):
    """The state of a model that decodes several outputs at once.

    Several adjacent rows may continue the same source: an encoded sentence, or a prompt.
    """

    def select(self, rows: Tensor, rows_per_source: int = 1) -> Self:
        """Return the state of the given rows, each `rows_per_source` of them from one source."""
        ...

    def reset(self, sources: Tensor) -> Self:
        """Return the state when some sources are no longer used; their rows stay."""
        ...

    def replace(self, sources: Tensor, other: Self) -> Self:
        """Return the state with another's sources, and their rows, in the place of some."""
        ...


S = TypeVar("S", bound=DecodingState)
Step = Callable[[Tensor, S], tuple[Tensor, S]]
"""step(ids [R], state) -> (logits [R, V], state)"""

Constraint = Callable[[S], Tensor]
"""constraint(state) -> which tokens may come next, bool [R, V]

It is given the state after the step that read the last ids, with a row for each row of the logits.
What it needs to know of earlier tokens is in the state, which is reordered with the hypotheses.
Some rows are not in use and may have read any ids: what it returns for these is ignored.
"""

Length = TypeVar("Length", float, Tensor)


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    """How to search (§6.1): the `decode` section of a config, with what a request changes."""

    beam: int = 4
    alpha: float = 0.6
    penalty: Literal["gnmt", "power"] = "gnmt"
    stop: Literal["bound", "count"] = "bound"
    nbest: int = 1
    min_length: int = 0
    """Tokens that every output has at least, its end not counted."""

    def length_penalty(self, length: Length) -> Length:
        """Return what a log-probability is divided by; the length counts the end of the sentence.

        Paper: §6.1, after Wu et al. (2016), eq. 14.
        """
        return length_penalty(length, self.alpha, self.penalty)


def length_penalty(length: Length, alpha: float, penalty: Literal["gnmt", "power"]) -> Length:
    """Return ((5 + length) / 6)^alpha ("gnmt") or length^alpha ("power")."""
    base = (5 + length) / 6 if penalty == "gnmt" else length
    result: Length = base**alpha
    return result


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """How to draw outputs at random instead of searching for the best."""

    temperature: float = 1.0
    top_k: int = 0
    """How many of the most probable tokens may be drawn; 0: any."""
    top_p: float = 1.0
    """Only the most probable tokens that together have this much probability may be drawn."""
    seed: int = 1


def forbidden_ids(vocab: Vocab) -> list[int]:
    """Return the ids that are never part of an output; they keep their probability."""
    return sorted({vocab.pad, vocab.bos} - {vocab.eos})
