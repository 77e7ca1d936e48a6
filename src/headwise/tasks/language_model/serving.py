"""A language model on the server: what is sent to POST /v1/generate, and the answer.

Its requests are not handled one after the other, as those of other tasks: headwise.serving writes
the continuations of all together.
"""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from headwise.config import LONGEST_CONTINUATION
from headwise.tasks.language_model.generator import Generator
from headwise.tasks.language_model.writing import Ending, Piece, WrittenToken
from headwise.tasks.panel import Panel

_MOST_STOPS = 4
_LONGEST_STOP = 100
MOST_BEST = 5
"""Most probable tokens that are returned for each token."""


def _as_list(given: object) -> object:
    return [given] if isinstance(given, str) else given


Stops = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=_LONGEST_STOP)]],
    Field(max_length=_MOST_STOPS),
    BeforeValidator(_as_list, json_schema_input_type=str | list[str]),
]
"""Sequences of characters before which a continuation ends: one, or a list."""


class GenerateRequest(BaseModel):
    """A text to continue, and how."""

    model_config = ConfigDict(extra="forbid")

    prompt: str = Field(description="The text to continue; empty for the start of a document.")
    model: str | None = Field(None, description="A name of /v1/tasks; by default the first.")
    temperature: float | None = Field(None, ge=0, allow_inf_nan=False)
    top_k: int | None = Field(None, ge=0, description="Draw from so many tokens; 0: from all.")
    top_p: float | None = Field(None, gt=0, le=1, description="Draw from this much probability.")
    seed: int = Field(1, ge=0, lt=2**63, description="The same seed gives the same answer.")
    count: int = Field(1, ge=1, le=16, description="How many continuations.")
    n: int | None = Field(None, ge=1, le=16, description="The same as count.")
    max_tokens: int = Field(
        64, ge=1, le=LONGEST_CONTINUATION, description="Most tokens of a continuation."
    )
    stop: Stops = Field(default=[], description="What continuations end before, if they have it.")
    logprobs: int | None = Field(
        None,
        ge=0,
        le=MOST_BEST,
        description="Return tokens and their log-probabilities, and for each so many of the most "
        "probable ones.",
    )
    stream: bool = Field(False, description="Send the text as it is written, in events.")


class TokenAnswer(BaseModel):
    """A token of a continuation."""

    token: str
    offset: int = Field(description="Where its text begins, in characters.")
    log_prob: float = Field(description="Natural logarithm of its probability.")
    best: dict[str, float] = Field(description="The most probable tokens, best first.")

    @classmethod
    def of(cls, token: WrittenToken) -> "TokenAnswer":
        """Convert a token for an answer."""
        return cls(
            token=token.token,
            offset=token.offset,
            log_prob=token.log_prob,
            best=dict(token.best),
        )


class GenerateAnswer(BaseModel):
    """The continuations."""

    text: str = Field(description="The first continuation.")
    texts: list[str]
    endings: list[Ending] = Field(
        description="Why each ended: with its document (end), before a stop sequence (stop), or "
        "with its last token (length)."
    )
    tokens: list[list[TokenAnswer]] | None = Field(
        None, description="The tokens of each continuation, if logprobs was given."
    )

    @classmethod
    def of(cls, continuations: list[Piece], *, has_tokens: bool) -> "GenerateAnswer":
        """Make the answer."""
        texts = [each.text for each in continuations]
        tokens = [[TokenAnswer.of(token) for token in each.tokens] for each in continuations]
        return cls(
            text=texts[0],
            texts=texts,
            endings=[each.ending or "length" for each in continuations],
            tokens=tokens if has_tokens else None,
        )


class GenerateEvent(BaseModel):
    """What a stream adds to a continuation."""

    index: int = Field(description="Which continuation, from 0.")
    text: str
    ending: Ending | None = Field(None, description="Why it ended, in its last event.")
    tokens: list[TokenAnswer] | None = None


class ServedLanguageModel:
    """Continues a prompt."""

    verb = "generate"
    request, answer = GenerateRequest, GenerateAnswer
    panel = Panel(
        title="Continue a text",
        label="Text",
        button="Continue",
        field="prompt",
        result="text",
        kind="stream",
    )

    def load(self, run: Path, checkpoint: str | None, device: str) -> Generator:
        """Load a run."""
        return Generator.load(run, checkpoint=checkpoint, device=device)


SERVED = ServedLanguageModel()
