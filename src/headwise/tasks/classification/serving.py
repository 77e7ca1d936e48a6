"""A classifier on the server: POST /v1/classify."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from headwise.errors import RequestError
from headwise.tasks.classification.classifier import Classifier
from headwise.tasks.panel import Panel

_MOST_TEXTS = 256
"""Of a request: the server computes nothing else meanwhile."""


class ClassifyRequest(BaseModel):
    """Texts to classify."""

    model_config = ConfigDict(extra="forbid")

    q: str | list[str] = Field(description="A text, or several.")
    model: str | None = Field(None, description="A name of /v1/tasks; by default the first.")
    top: int = Field(3, ge=1, le=100, description="How many classes with their probabilities.")


class ClassProbability(BaseModel):
    """A class and its probability."""

    label: str
    probability: float


class ClassifiedText(BaseModel):
    """What a text is."""

    labels: list[str] = Field(
        description="The most probable class; or all that are, where a text may have several."
    )
    classes: list[ClassProbability] = Field(description="The most probable classes.")
    is_cut: bool = Field(description="Whether the text is longer than what is read.")


class ClassifyAnswer(BaseModel):
    """The classes of each text."""

    text: str = Field(description="The first text's classes, for people.")
    texts: list[ClassifiedText]


class ServedClassifier:
    """Classifies texts."""

    verb = "classify"
    request, answer = ClassifyRequest, ClassifyAnswer
    panel = Panel(
        title="Classify a text",
        label="Text",
        button="Classify",
        field="q",
        result="text",
        live=True,
    )

    def load(self, run: Path, checkpoint: str | None, device: str) -> Classifier:
        """Load a run."""
        return Classifier.load(run, checkpoint=checkpoint, device=device)

    def texts(self, asked: ClassifyRequest) -> list[str]:
        """Return the texts."""
        return [asked.q] if isinstance(asked.q, str) else asked.q

    def handle(self, classifier: Classifier, asked: ClassifyRequest) -> ClassifyAnswer:
        """Classify the texts."""
        texts = self.texts(asked)
        if not 1 <= len(texts) <= _MOST_TEXTS:
            raise RequestError(f"q may have from 1 to {_MOST_TEXTS} texts")
        found = classifier.classify(texts, top=asked.top)
        lines = [f"{each.label}: {100 * each.probability:.1f} %" for each in found[0].answers]
        return ClassifyAnswer(
            text="\n".join(lines),
            texts=[
                ClassifiedText(
                    labels=list(each.labels),
                    classes=[
                        ClassProbability(label=answer.label, probability=answer.probability)
                        for answer in each.answers
                    ],
                    is_cut=each.is_cut,
                )
                for each in found
            ],
        )


SERVED = ServedClassifier()
