"""Text that is written token by token, up to a stop sequence.

Text is passed on as soon as no later token can change it: whole characters that cannot be part of a
stop sequence.
"""

from dataclasses import dataclass
from typing import Literal

from headwise.decoding import DrawnToken
from headwise.tasks.language_model.text_tokenizer import TextStream, TextTokenizer

Ending = Literal["end", "stop", "length"]
"""Why a continuation ended: with its document, before a stop sequence, or with its last token."""


@dataclass(frozen=True, kw_only=True)
class WrittenToken:
    """A token of a continuation, and what could have been there."""

    token: str
    offset: int
    """Where its text begins: characters of the continuation before it."""
    log_prob: float
    best: tuple[tuple[str, float], ...]
    """The most probable tokens and their log-probabilities, best first."""


@dataclass(frozen=True, kw_only=True)
class Piece:
    """What a step added to a continuation."""

    text: str
    tokens: tuple[WrittenToken, ...]
    """Those whose text begins in this piece, if tokens were asked for."""
    num_tokens: int
    """How many tokens were drawn, the end of the document not counted."""
    ending: Ending | None
    """None: it goes on."""


def join_pieces(pieces: list[Piece]) -> Piece:
    """Return pieces that follow each other as one."""
    return Piece(
        text="".join(piece.text for piece in pieces),
        tokens=tuple(token for piece in pieces for token in piece.tokens),
        num_tokens=sum(piece.num_tokens for piece in pieces),
        ending=pieces[-1].ending,
    )


class Writer:
    """Turn the tokens of one continuation into pieces of text."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        prompt: list[int],
        *,
        stop: tuple[str, ...] = (),
        has_tokens: bool = False,
    ) -> None:
        """Continue a prompt, at most to the first of the `stop` sequences, which is left out."""
        self._tokenizer, self._stop, self._has_tokens = tokenizer, stop, has_tokens
        self._stream = TextStream(tokenizer, prompt)
        self._held = ""
        """Text that may be the beginning of a stop sequence."""
        self._given = 0
        """Characters that were passed on."""
        self._tokens: list[WrittenToken] = []
        """Tokens that were not passed on."""

    def add(self, drawn: DrawnToken) -> Piece:
        """Return what a token adds."""
        is_end = drawn.id == self._tokenizer.vocab.eos
        if not is_end:
            if self._has_tokens:
                self._tokens.append(self._written(drawn))
            self._held += self._stream.add(drawn.id)
        ending: Ending | None = None
        if drawn.is_last:
            self._held += self._stream.finish()
            ending = "end" if is_end else "length"
        stops = [place for stop in self._stop if (place := self._held.find(stop)) >= 0]
        if stops:
            text, ending = self._held[: min(stops)], "stop"
        elif ending is not None:
            text = self._held
        else:
            text = self._held[: len(self._held) - self._begun()]
        self._held = self._held[len(text) :]
        self._given += len(text)
        count = len(self._tokens)
        if ending in (None, "stop"):
            count = sum(token.offset < self._given for token in self._tokens)
        tokens, self._tokens = tuple(self._tokens[:count]), self._tokens[count:]
        return Piece(text=text, tokens=tokens, num_tokens=0 if is_end else 1, ending=ending)

    def _begun(self) -> int:
        """Return how many of the last characters may be the beginning of a stop sequence."""
        return max((_overlap(self._held, stop) for stop in self._stop), default=0)

    def _written(self, drawn: DrawnToken) -> WrittenToken:
        token, *others = self._tokenizer.subwords.tokens(
            [drawn.id, *(number for number, _ in drawn.best)]
        )
        best = zip(others, (log_prob for _, log_prob in drawn.best), strict=True)
        return WrittenToken(
            token=token,
            offset=self._given + len(self._held),
            log_prob=drawn.log_prob,
            best=tuple(best),
        )


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of a text that a stop sequence begins with."""
    end = text[max(0, len(text) - len(stop) + 1) :]
    place = end.find(stop[0])
    while place >= 0:
        if stop.startswith(end[place:]):
            return len(end) - place
        place = end.find(stop[0], place + 1)
    return 0
