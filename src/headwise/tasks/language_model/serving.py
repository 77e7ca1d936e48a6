"""A language model on the server: POST /v1/generate."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from headwise.errors import RequestError
from headwise.tasks.language_model.generator import Generator
from headwise.tasks.panel import Panel

_MOST_TOKENS = 512
"""Of all continuations of a request together: the server computes nothing else meanwhile."""


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
    max_tokens: int = Field(64, ge=1, le=_MOST_TOKENS, description="Tokens of a continuation.")


class GenerateAnswer(BaseModel):
    """The continuations."""

    text: str = Field(description="The first continuation.")
    texts: list[str]


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
    )

    def load(self, run: Path, checkpoint: str | None, device: str) -> Generator:
        """Load a run."""
        return Generator.load(run, checkpoint=checkpoint, device=device)

    def texts(self, asked: GenerateRequest) -> list[str]:
        """Return the prompt."""
        return [asked.prompt]

    def handle(self, generator: Generator, asked: GenerateRequest) -> GenerateAnswer:
        """Generate the continuations."""
        if asked.count * asked.max_tokens > _MOST_TOKENS:
            raise RequestError(f"count × max_tokens may be {_MOST_TOKENS} at most")
        found = generator.generate(
            asked.prompt,
            temperature=asked.temperature,
            top_k=asked.top_k,
            top_p=asked.top_p,
            seed=asked.seed,
            beam=0,
            count=asked.count,
            max_tokens=asked.max_tokens,
        )
        return GenerateAnswer(text=found.text, texts=[sample.text for sample in found.samples])


SERVED = ServedLanguageModel()
