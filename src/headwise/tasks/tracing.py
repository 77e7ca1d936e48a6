"""Texts, or what else a model reads, with their attention weights."""

from base64 import b64encode
from dataclasses import dataclass
from typing import Literal

from headwise.data import Subwords
from headwise.errors import RequestError
from headwise.model import Trace


@dataclass(frozen=True, kw_only=True)
class Picture:
    """What a model reads instead of words, drawn.

    After the class token, the positions of the source are its patches or frames, row by row.
    """

    kind: Literal["image", "sound"]
    png: bytes
    rows: int
    columns: int


def data_uri(png: bytes) -> str:
    """Return a picture as a page can hold it."""
    return f"data:image/png;base64,{b64encode(png).decode()}"


@dataclass(frozen=True, kw_only=True)
class TracedPair:
    """A source, a target and every attention weight between their tokens.

    A model without an encoder has the target only: the source and its tokens are empty, and so is
    `trace.encoder`.
    """

    source: str
    target: str
    source_tokens: tuple[str, ...]
    """Of a text without eos: the encoder's trace is one longer."""
    target_tokens: tuple[str, ...]
    """Without start and eos; the decoder reads the start too, so that its trace is one longer."""
    trace: Trace
    picture: Picture | None = None
    """Of a source that is not text, whose tokens are all of the encoder's positions."""


def traceable_ids(what: str, text: str, subwords: Subwords, longest: int) -> list[int]:
    """Return the ids of a text to trace, or raise RequestError if it cannot be traced."""
    if not text.strip():
        raise RequestError(f"the {what} is empty: attention is between words")
    # Python passes bytes of an argument that are not UTF-8 as lone surrogates.
    if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text):
        raise RequestError(f"the {what} has a NUL character, or bytes that are not UTF-8, in it")
    # Check the number of characters first: encoding an absurdly long text would take long.
    ids = subwords.encode(text.strip()) if len(text) <= 16 * longest else None
    if ids is None or len(ids) > longest:
        size = f"{len(text):,} characters" if ids is None else f"{len(ids):,} tokens"
        raise RequestError(f"a {what} of {size} is too long: give at most {longest:,} tokens")
    return ids
