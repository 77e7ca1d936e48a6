"""Pairs of texts whose attention is looked at."""

from dataclasses import dataclass

from headwise.data import Subwords
from headwise.errors import RequestError
from headwise.model import Trace


@dataclass(frozen=True, kw_only=True)
class TracedPair:
    """A source, a target and every attention weight between their tokens."""

    source: str
    target: str
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    """Without the end of the sentence, which both have in the trace."""
    trace: Trace


def traceable_ids(what: str, text: str, subwords: Subwords, longest: int) -> list[int]:
    """Return the ids of a text whose attention is asked for, or say why it cannot be had."""
    if not text.strip():
        raise RequestError(f"the {what} is empty: attention is between words")
    # Half of a pair of surrogates is how a shell hands over bytes that are not text.
    if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text):
        raise RequestError(f"the {what} has a NUL character, or one that is no text, in it")
    # The number of characters first: it bounds the work of encoding what is absurdly long.
    ids = subwords.encode(text.strip()) if len(text) <= 16 * longest else None
    if ids is None or len(ids) > longest:
        size = f"{len(text):,} characters" if ids is None else f"{len(ids):,} tokens"
        raise RequestError(f"a {what} of {size} is too long: give at most {longest:,} tokens")
    return ids
