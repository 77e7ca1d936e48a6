"""Transcribers on the server: POST /v1/transcribe, with files."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from headwise.config import FramesConfig
from headwise.data.images import MOST_UNTRUSTED_PIXELS
from headwise.errors import DataError, RequestError
from headwise.tasks.panel import Panel
from headwise.tasks.tracing import data_uri
from headwise.tasks.transcription.kinds import kind_of
from headwise.tasks.transcription.long_sounds import Piece, pieces_of
from headwise.tasks.transcription.transcriber import Transcriber, Transcription
from headwise.tasks.vectors.audio import AudioEncoder

_MOST_SECONDS = 60.0
"""Of a sound in a request: the server computes nothing else meanwhile."""


class TranscribeRequest(BaseModel):
    """Files to transcribe, as parts of the form with names of files, and what else is asked for."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = Field(None, description="A name of /v1/tasks; by default the first.")
    times: bool = Field(False, description="Whether to say when each word of a sound is said.")
    picture: bool = Field(False, description="Whether to send what the model reads, as a picture.")


class WordSaid(BaseModel):
    """A word of a sound."""

    word: str
    start: float = Field(description="Seconds from the beginning of the sound.")
    end: float


class TokenWritten(BaseModel):
    """A token of a transcription."""

    text: str
    attention: list[float] = Field(
        description="For each field of the picture, how much the decoder attends to it when it "
        "writes the token: the mean of the heads of its last layer but one."
    )


class PictureWritten(BaseModel):
    """An image or a sound as the model reads it, and where the decoder looks."""

    kind: Literal["image", "sound"]
    png: str = Field(description="A data URI.")
    rows: int = Field(description="Of the fields over it that the model reads one by one.")
    columns: int
    tokens: list[TokenWritten]


class TranscribedFile(BaseModel):
    """What is written in an image, or said in a sound."""

    text: str
    log_prob: float = Field(description="The natural logarithm of its probability.")
    is_cut: bool = Field(description="Whether an image is wider than what is read of it.")
    parts: int = Field(description="Into how many parts a long sound was cut.")
    words: list[WordSaid] = Field(description="The words of a sound, if times were asked for.")
    picture: PictureWritten | None = Field(
        None, description="If it was asked for, of a file of one part that is not too large."
    )


class TranscribeAnswer(BaseModel):
    """The text of each file."""

    text: str = Field(description="The text of the first file.")
    files: list[TranscribedFile]


class ServedTranscriber:
    """Transcribes images or sounds."""

    verb = "transcribe"
    request, answer = TranscribeRequest, TranscribeAnswer

    def __init__(self, unit: str, panel: Panel) -> None:
        self.unit, self.panel = unit, panel

    def load(self, run: Path, checkpoint: str | None, device: str) -> Transcriber:
        """Load a run, and check that files of its kind can be read."""
        transcriber = Transcriber.load(run, checkpoint=checkpoint, device=device)
        kind_of(transcriber.config).check_installed()
        return transcriber

    def panel_of(self, transcriber: Transcriber) -> Panel:
        """Say at which rate and for how long to record, or how large an image may be."""
        data = transcriber.config.data
        if isinstance(data, FramesConfig):
            return replace(self.panel, rate=data.rate, longest_seconds=_MOST_SECONDS)
        return replace(self.panel, most_pixels=MOST_UNTRUSTED_PIXELS)

    def handle_file(
        self, transcriber: Transcriber, asked: TranscribeRequest, content: bytes
    ) -> TranscribedFile:
        """Decode and transcribe a file."""
        if asked.times and transcriber.input != "audio":
            raise RequestError("times are of words in sounds: images have none")
        try:
            pieces = _received(transcriber, content)
        except DataError as error:
            raise RequestError(str(error)) from error
        found = transcriber.transcribe_pieces(pieces, times=asked.times)
        return TranscribedFile(
            text=found.text,
            log_prob=found.log_prob,
            is_cut=found.is_cut,
            parts=found.num_parts,
            words=[WordSaid(**vars(each)) for each in found.words],
            picture=_picture(transcriber, pieces, found) if asked.picture else None,
        )

    def answer_of(self, found: list[TranscribedFile]) -> TranscribeAnswer:
        """Join the answers for each file."""
        return TranscribeAnswer(text=found[0].text, files=found)


def _received(transcriber: Transcriber, content: bytes) -> list[Piece]:
    encoder: Any = transcriber.encoder
    if isinstance(encoder, AudioEncoder):
        return pieces_of(content, encoder, transcriber.config.data, _MOST_SECONDS)
    return [Piece(encoder.encode(encoder.received(content)))]


def _picture(
    transcriber: Transcriber, pieces: list[Piece], found: Transcription
) -> PictureWritten | None:
    ids, encoded = list(found.ids), pieces[0].encoded
    if len(pieces) > 1 or not transcriber.is_traceable(encoded, ids):
        return None
    picture = transcriber.encoder.picture(encoded)
    assert picture is not None
    layers = transcriber.traced(encoded, ids).decoder.cross_attention
    # Without the class token.
    weights = layers[max(0, len(layers) - 2)][0].double().mean(0)[:, 1:]  # [T, S]
    tokens = transcriber.targets.tokens(ids)
    return PictureWritten(
        kind=picture.kind,
        png=data_uri(picture.png),
        rows=picture.rows,
        columns=picture.columns,
        tokens=[
            TokenWritten(text=token, attention=[round(each, 4) for each in row])
            for token, row in zip(tokens, weights.tolist(), strict=False)
        ],
    )


IMAGES = ServedTranscriber(
    "images",
    Panel(
        title="Read a line of text",
        label="Image",
        button="Choose an image",
        field="file",
        input="image",
        result="files",
        kind="transcriptions",
        fields={"picture": True},
    ),
)
AUDIO = ServedTranscriber(
    "sounds",
    Panel(
        title="Write down what is said",
        label="Sound",
        button="Choose a sound",
        field="file",
        input="sound",
        result="files",
        kind="transcriptions",
        fields={"picture": True, "times": True},
    ),
)
