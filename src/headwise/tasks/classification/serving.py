"""Classifiers on the server: POST /v1/classify, with texts or with files."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from headwise.data.images import MOST_UNTRUSTED_PIXELS
from headwise.errors import DataError, RequestError
from headwise.tasks.classification.classifier import Classification, Classifier
from headwise.tasks.classification.kinds import kind_of
from headwise.tasks.encoders import Encoded
from headwise.tasks.panel import Panel
from headwise.tasks.tracing import data_uri

_MOST_WEIGHTS = 1 << 25
"""Attention weights of all layers of an image or a sound: 128 MiB."""

_MOST_TEXTS = 256
"""Of a request: the server computes nothing else meanwhile."""


class ClassifyRequest(BaseModel):
    """Texts to classify."""

    model_config = ConfigDict(extra="forbid")

    q: str | list[str] = Field(description="A text, or several.")
    model: str | None = Field(
        None, description="A name of /v1/tasks; by default the first that takes texts."
    )
    top: int = Field(3, ge=1, le=100, description="How many classes with their probabilities.")


class ClassProbability(BaseModel):
    """A class and its probability."""

    label: str
    probability: float


class ClassifiedText(BaseModel):
    """What a text, an image or a sound is."""

    labels: list[str] = Field(
        description="The most probable class; or all that are, where there may be several."
    )
    classes: list[ClassProbability] = Field(description="The most probable classes.")
    is_cut: bool = Field(description="Whether there is more of it than is read.")


class PictureRead(BaseModel):
    """An image or a sound as the model reads it."""

    kind: Literal["image", "sound"]
    png: str = Field(description="A data URI.")
    rows: int = Field(description="Of its patches or frames, which the model reads one by one.")
    columns: int
    attention: list[float] = Field(
        description="For each patch or frame, row by row, how much the last layer attends to it: "
        "of the class token or, where the answer is a mean of all positions, on average; the mean "
        "of the heads."
    )


class ClassifiedFile(ClassifiedText):
    """What an image or a sound is."""

    picture: PictureRead | None = Field(
        None, description="If it was asked for, and its attention is not too large."
    )


class ClassifyAnswer(BaseModel):
    """The classes of each text."""

    text: str = Field(description="The first text's classes, for people.")
    texts: list[ClassifiedText]


class FilesRequest(BaseModel):
    """Files to classify, as parts of the form with names of files, and what else is asked for."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(
        None, description="A name of /v1/tasks; by default the first that takes files."
    )
    top: int = Field(3, ge=1, le=100, description="How many classes with their probabilities.")
    picture: bool = Field(False, description="Whether to send what the model reads, as a picture.")


class FilesAnswer(BaseModel):
    """The classes of each file."""

    files: list[ClassifiedFile]


class _Loads:
    verb = "classify"

    def load(self, run: Path, checkpoint: str | None, device: str) -> Classifier:
        """Load a run, and check that files of its kind can be read."""
        classifier = Classifier.load(run, checkpoint=checkpoint, device=device)
        kind_of(classifier.config).check_installed()
        return classifier


class ServedTexts(_Loads):
    """Classifies texts."""

    request, answer = ClassifyRequest, ClassifyAnswer
    panel = Panel(
        title="Classify a text",
        label="Text",
        button="Classify",
        field="q",
        result="texts",
        kind="classes",
        live=True,
    )

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
            text="\n".join(lines), texts=[ClassifiedText(**_fields(each)) for each in found]
        )


class ServedFiles(_Loads):
    """Classifies images or sounds."""

    request, answer = FilesRequest, FilesAnswer

    def __init__(self, unit: str, panel: Panel) -> None:
        self.unit, self.panel = unit, panel

    def panel_of(self, classifier: Classifier) -> Panel:
        """Say at which rate and for how long to record, or how large an image may be."""
        data = classifier.config.data
        if self.panel.input == "sound":
            return replace(self.panel, rate=data.rate, longest_seconds=data.longest_seconds)
        return replace(self.panel, most_pixels=MOST_UNTRUSTED_PIXELS)

    def handle_file(
        self, classifier: Classifier, asked: FilesRequest, content: bytes
    ) -> ClassifiedFile:
        """Decode and classify a file."""
        encoder: Any = classifier.encoder
        try:
            file = encoder.encode(encoder.received(content))
        except DataError as error:
            raise RequestError(str(error)) from error
        (found,) = classifier.classify(file, top=asked.top)
        picture = _picture(classifier, file) if asked.picture else None
        return ClassifiedFile(**_fields(found), picture=picture)

    def answer_of(self, found: list[ClassifiedFile]) -> FilesAnswer:
        """Join the answers for each file."""
        return FilesAnswer(files=found)


def _fields(found: Classification) -> dict[str, Any]:
    return {
        "labels": list(found.labels),
        "classes": [
            ClassProbability(label=answer.label, probability=answer.probability)
            for answer in found.answers
        ],
        "is_cut": found.is_cut,
    }


def _picture(classifier: Classifier, file: Encoded) -> PictureRead | None:
    model = classifier.config.model
    if model.count_attention_weights(len(file.values) + 1, 0) > _MOST_WEIGHTS:
        return None
    picture = classifier.encoder.picture(file)
    assert picture is not None
    trace = classifier.traced(file)
    weights = trace.encoder.self_attention[-1][0].double().mean(0)  # [S, S]
    # Without the class token.
    seen = (weights.mean(0) if model.pooling == "mean" else weights[0])[1:]
    return PictureRead(
        kind=picture.kind,
        png=data_uri(picture.png),
        rows=picture.rows,
        columns=picture.columns,
        attention=[round(each, 4) for each in seen.tolist()],
    )


TEXT = ServedTexts()
IMAGES = ServedFiles(
    "images",
    Panel(
        title="Classify an image",
        label="Image",
        button="Choose an image",
        field="file",
        input="image",
        result="files",
        kind="classes",
        fields={"picture": True},
    ),
)
AUDIO = ServedFiles(
    "sounds",
    Panel(
        title="Classify a sound",
        label="Sound",
        button="Choose a sound",
        field="file",
        input="sound",
        result="files",
        kind="classes",
        fields={"picture": True},
    ),
)
