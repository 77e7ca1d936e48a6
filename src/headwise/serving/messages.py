"""What requests say and answers hold: the API's own, and LibreTranslate's."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from headwise.tasks.translation.translator import Candidate, Translation


def _check_texts(given: object) -> object:
    """Stop at the first entry that is not a string: the union would make an error for each."""
    if not isinstance(given, str | list):
        raise PydanticCustomError("texts", "input should be a string or a list of strings")
    if isinstance(given, list):
        for number, entry in enumerate(given):
            if not isinstance(entry, str):
                raise PydanticCustomError(
                    "texts", "entry {number} should be a string", {"number": number}
                )
    return given


Texts = Annotated[
    str | list[str],
    BeforeValidator(_check_texts),
    Field(description="A text or several; lines and sentences are cut apart."),
]


class Problem(BaseModel):
    """What is wrong, as a sentence."""

    error: str


class TranslateRequest(BaseModel):
    """Texts to translate, by which model, and how to search."""

    model_config = ConfigDict(extra="forbid")

    q: Texts
    model: str | None = Field(None, description="A name of /v1/models; by default the first.")
    source: str | None = Field(None, description="Language code, instead of a model.")
    target: str | None = Field(None, description="Language code, instead of a model.")
    nbest: int = Field(1, ge=1, description="Candidates of each sentence.")
    beam: int | None = Field(None, ge=1, description="Hypotheses kept open; the run's own.")
    alpha: float | None = Field(None, ge=0, allow_inf_nan=False, description="Length penalty.")
    min_length: int = Field(0, ge=0, description="Fewest tokens of a translation.")
    split: bool = Field(True, description="Cut texts into sentences, and join what comes of them.")
    alignment: bool = Field(False, description="Which source token each token attends to most.")
    token_scores: bool = Field(False, description="How probable each token was.")


class CandidateAnswer(BaseModel):
    """One translation of a sentence."""

    text: str
    score: float = Field(description="Log-probability divided by the length penalty.")
    log_prob: float = Field(description="Natural logarithm of its probability, its end included.")
    tokens: list[str]

    @classmethod
    def of(cls, candidate: Candidate) -> "CandidateAnswer":
        """Return a candidate as an answer holds it."""
        return cls(
            text=candidate.text,
            score=candidate.score,
            log_prob=candidate.log_prob,
            tokens=list(candidate.tokens),
        )


class SentenceAnswer(BaseModel):
    """What became of one sentence, or of one text."""

    source: str
    text: str = Field(description="The best translation.")
    source_tokens: list[str]
    candidates: list[CandidateAnswer] = Field(description="Best first.")
    alignment: list[tuple[int, int]] | None = Field(
        None, description="Pairs of a source token and a token of the best candidate, from 0."
    )
    token_log_probs: list[float] | None = Field(
        None, description="Of each token of the best candidate, then of its end."
    )

    @classmethod
    def of(cls, translation: Translation) -> "SentenceAnswer":
        """Return a sentence's translation as an answer holds it."""
        return cls(**_fields(translation))


class TextAnswer(SentenceAnswer):
    """What became of one text, as a whole and in its sentences."""

    parts: list[SentenceAnswer] = Field(
        description="The sentences it was cut into, if it was; then it has one candidate, theirs."
    )

    @classmethod
    def of(cls, translation: Translation) -> "TextAnswer":
        """Return a text's translation as an answer holds it."""
        parts = [SentenceAnswer.of(part) for part in translation.parts]
        return cls(**_fields(translation), parts=parts)


def _fields(translation: Translation) -> dict[str, Any]:
    return {
        "source": translation.source,
        "text": translation.text,
        "source_tokens": list(translation.source_tokens),
        "candidates": [CandidateAnswer.of(each) for each in translation.candidates],
    }


class TranslateAnswer(BaseModel):
    """A translation of each text, in their order."""

    model: str
    translations: list[TextAnswer]


class AttentionRequest(BaseModel):
    """A text whose attention is asked for."""

    model_config = ConfigDict(extra="forbid")

    q: str = Field(description="A text; each of its sentences has attention of its own.")
    model: str | None = Field(None, description="A name of /v1/models; by default the first.")
    source: str | None = Field(None, description="Language code, instead of a model.")
    target: str | None = Field(None, description="Language code, instead of a model.")


class AttentionSentence(BaseModel):
    """Every attention weight of a sentence and its best translation."""

    source: str
    target: str
    source_tokens: list[str] = Field(description="What the encoder reads, its end included: S.")
    input_tokens: list[str] = Field(description="What the decoder reads at each position: T.")
    output_tokens: list[str] = Field(description="What it writes there, the end included: T.")
    encoder: list[list[list[list[float]]]] = Field(description="[layer][head][S][S]")
    decoder: list[list[list[list[float]]]] = Field(description="[layer][head][T][T]")
    cross: list[list[list[list[float]]]] = Field(description="[layer][head][T][S]")


class AttentionAnswer(BaseModel):
    """The attention of as many sentences as one answer can hold."""

    model: str
    records: list[AttentionSentence]
    left_out: int = Field(description="Sentences at the end that did not fit.")


class ModelAnswer(BaseModel):
    """A model that is served."""

    name: str
    source: str = Field(description="Language code; empty where the run does not say.")
    target: str
    attention: bool = Field(description="Whether its attention can be looked at.")
    card: dict[str, Any] = Field(description="Recipe, size, scores, departures from the paper.")


class ModelsAnswer(BaseModel):
    """All models that are served, and what one request may ask of them."""

    models: list[ModelAnswer]
    max_characters: int
    max_candidates: int


class Status(BaseModel):
    """How the server is."""

    status: str
    broken: dict[str, str] | None = Field(
        None, description="The models that cannot answer now, with the reasons."
    )


class LibreRequest(BaseModel):
    """LibreTranslate's request; fields that it has and this server has no use for are ignored."""

    q: Texts
    source: str = Field(description='Language code, or "auto" where only one comes into question.')
    target: str = Field(description="Language code.")
    format: str = Field("text", description='"text"; "html" is refused.')
    alternatives: int = Field(0, ge=0, description="How many further translations to return.")
    api_key: str | None = None


class DetectedLanguage(BaseModel):
    """LibreTranslate's answer to "auto". Nothing is detected here, hence a confidence of 0."""

    confidence: float
    language: str


class LibreAnswer(BaseModel):
    """LibreTranslate's answer: lists where `q` was one."""

    translatedText: str | list[str]  # noqa: N815 - LibreTranslate's name
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815


class LibreLanguage(BaseModel):
    """A language that is translated from, and to which."""

    code: str
    name: str
    targets: list[str]
