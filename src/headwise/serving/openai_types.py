"""What clients of OpenAI's API send to /v1/completions, and what they are sent."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from headwise.config import LONGEST_CONTINUATION
from headwise.serving.limits import RefusedError
from headwise.serving.models import GenerationModel
from headwise.serving.texts import Texts
from headwise.tasks.language_model.serving import MOST_BEST, Stops
from headwise.tasks.language_model.writing import Piece, WrittenToken

_WITHOUT_EFFECT: dict[str, tuple[object, ...]] = {
    "best_of": (None, 1),
    "frequency_penalty": (None, 0),
    "logit_bias": (None, {}),
    "presence_penalty": (None, 0),
    "suffix": (None, ""),
}
"""Parameters that are not supported, and their values that change nothing."""


class StreamOptions(BaseModel):
    """Options of a stream."""

    model_config = ConfigDict(extra="forbid")

    include_usage: bool = False


class CompletionRequest(BaseModel):
    """Texts to continue, and how."""

    model_config = ConfigDict(extra="forbid")

    prompt: Texts = Field("", description="A text or several; empty: the start of a document.")
    model: str | None = Field(None, description="A name of /v1/models; by default the first.")
    max_tokens: int = Field(
        16, ge=1, le=LONGEST_CONTINUATION, description="Most tokens of a continuation."
    )
    temperature: float | None = Field(None, ge=0, allow_inf_nan=False)
    top_p: float | None = Field(None, gt=0, le=1)
    n: int | None = Field(None, ge=1, le=16, description="Continuations of each text.")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: Stops | None = None
    logprobs: int | None = Field(None, ge=0, le=MOST_BEST)
    echo: bool | None = Field(None, description="Begin each continuation with its text.")
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    user: str | None = Field(None, description="Accepted, and not used.")

    @property
    def prompts(self) -> list[str]:
        """The texts."""
        return self.prompt if isinstance(self.prompt, list) else [self.prompt]


class CompletionLogprobs(BaseModel):
    """The tokens of a continuation."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]

    @classmethod
    def of(cls, tokens: tuple[WrittenToken, ...]) -> "CompletionLogprobs":
        """Convert tokens for an answer."""
        return cls(
            tokens=[_text(token.token) for token in tokens],
            token_logprobs=[token.log_prob for token in tokens],
            top_logprobs=[
                {_text(other): log_prob for other, log_prob in token.best} for token in tokens
            ],
            text_offset=[token.offset for token in tokens],
        )


class CompletionChoice(BaseModel):
    """A continuation, or what a stream adds to it."""

    text: str
    index: int
    logprobs: CompletionLogprobs | None
    finish_reason: Literal["stop", "length"] | None

    @classmethod
    def of(cls, index: int, piece: Piece, *, echoed: str, has_tokens: bool) -> "CompletionChoice":
        """Make the choice, with the text that is echoed before it."""
        return cls(
            text=echoed + piece.text,
            index=index,
            logprobs=CompletionLogprobs.of(piece.tokens) if has_tokens else None,
            finish_reason="stop" if piece.ending == "end" else piece.ending,
        )


class Usage(BaseModel):
    """How many tokens a request took."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(BaseModel):
    """The continuations of a request, those of the first text first."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int = Field(description="Seconds since 1970.")
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None


class ModelEntry(BaseModel):
    """A language model."""

    id: str
    object: Literal["model"] = "model"
    created: int = Field(description="Seconds since 1970, when it was loaded.")
    owned_by: str = "headwise"


class ErrorObject(BaseModel):
    """What is wrong."""

    message: str
    type: str
    param: str | None = Field(description="The wrong field of the request.")
    code: str | None


class OpenAIProblem(BaseModel):
    """An error."""

    error: ErrorObject


OPENAI_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": OpenAIProblem, "description": "The request is wrong, or sent too often."},
    "5XX": {"model": OpenAIProblem, "description": "The server is stopping, or took too long."},
}
"""The error responses of these routes, for OpenAPI."""


def check_supported(fields: dict[str, Any]) -> None:
    """Refuse parameters of OpenAI's API that would be ignored; remove those without effect."""
    for name, harmless in _WITHOUT_EFFECT.items():
        if name in fields and fields.pop(name) not in harmless:
            raise RefusedError(400, f"{name} is not supported", field=name)
    for name in ("max_tokens", "prompt"):
        if name in fields and fields[name] is None:
            del fields[name]
    prompt = fields.get("prompt")
    if prompt == []:
        raise RefusedError(400, "prompt: send at least one text", field="prompt")
    if isinstance(prompt, list) and isinstance(prompt[0], int | list):
        raise RefusedError(400, "prompt: token ids are not supported: send texts", field="prompt")
    if fields.get("echo") and fields.get("logprobs") is not None:
        raise RefusedError(
            400, "echo with logprobs is not supported: prompts have none", field="echo"
        )


def model_entry(model: GenerationModel) -> ModelEntry:
    """Describe a model."""
    return ModelEntry(id=model.name, created=model.loaded_at)


def _text(token: str) -> str:
    """Return a token as OpenAI writes it: with its spaces, or as bytes."""
    if len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
        return f"bytes:\\x{token[3:5].lower()}"
    return token.replace("\N{LOWER ONE EIGHTH BLOCK}", " ")
