"""Translation's routes: their requests and answers, and the handlers between them."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from headwise.serving import translation
from headwise.serving.bodies import json_request
from headwise.serving.errors import ERRORS
from headwise.serving.limits import RefusedError
from headwise.serving.openai_types import ModelEntry, model_entry
from headwise.serving.service import Service
from headwise.serving.texts import Texts
from headwise.tasks.translation.translator import Candidate, Translation

_NEEDED = "needs the torch engine, and a model that has attention"


class TranslateRequest(BaseModel):
    """Texts to translate, the model, and search settings."""

    model_config = ConfigDict(extra="forbid")

    q: Texts = Field(description="A text or several; each is split into lines and sentences.")
    model: str | None = Field(None, description="A name of /v1/models; by default the first.")
    source: str | None = Field(None, description="Language code, instead of a model.")
    target: str | None = Field(None, description="Language code, instead of a model.")
    nbest: int = Field(1, ge=1, description="Candidates of each sentence.")
    beam: int | None = Field(None, ge=1, description="Beam width; by default the run's.")
    alpha: float | None = Field(None, ge=0, allow_inf_nan=False, description="Length penalty.")
    min_length: int = Field(0, ge=0, description="Fewest tokens of a translation.")
    split: bool = Field(True, description="Split texts into sentences, and join the translations.")
    alignment: bool = Field(False, description="Which source token each token attends to most.")
    token_scores: bool = Field(False, description="The log-probability of each token.")


class CandidateAnswer(BaseModel):
    """One translation of a sentence."""

    text: str
    score: float = Field(description="Log-probability divided by the length penalty.")
    log_prob: float = Field(description="Natural logarithm of its probability, end token included.")
    tokens: list[str]

    @classmethod
    def of(cls, candidate: Candidate) -> "CandidateAnswer":
        """Convert a candidate for an answer."""
        return cls(
            text=candidate.text,
            score=candidate.score,
            log_prob=candidate.log_prob,
            tokens=list(candidate.tokens),
        )


class SentenceAnswer(BaseModel):
    """The translation of one sentence, or of one text."""

    source: str
    text: str = Field(description="The best translation.")
    source_tokens: list[str]
    candidates: list[CandidateAnswer] = Field(description="Best first.")
    alignment: list[tuple[int, int]] | None = Field(
        None, description="Pairs of a source token and a token of the best candidate, from 0."
    )
    token_log_probs: list[float] | None = Field(
        None, description="Of each token of the best candidate, then of its end token."
    )

    @classmethod
    def of(cls, translation: Translation) -> "SentenceAnswer":
        """Convert a sentence's translation for an answer."""
        return cls(**_fields(translation))


class TextAnswer(SentenceAnswer):
    """The translation of one text, as a whole and by sentence."""

    parts: list[SentenceAnswer] = Field(
        description="Its sentences, if it was split; then its only candidate joins theirs."
    )

    @classmethod
    def of(cls, translation: Translation) -> "TextAnswer":
        """Convert a text's translation for an answer."""
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
    """The translations of all texts, in order."""

    model: str
    translations: list[TextAnswer]


class AttentionRequest(BaseModel):
    """A text to translate with attention weights."""

    model_config = ConfigDict(extra="forbid")

    q: str = Field(description="A text; attention is computed for each of its sentences.")
    model: str | None = Field(None, description="A name of /v1/models; by default the first.")
    source: str | None = Field(None, description="Language code, instead of a model.")
    target: str | None = Field(None, description="Language code, instead of a model.")


class AttentionSentence(BaseModel):
    """Every attention weight of a sentence and its best translation."""

    source: str
    target: str
    source_tokens: list[str] = Field(description="The encoder's input, end token included: S.")
    input_tokens: list[str] = Field(description="The decoder's input at each position: T.")
    output_tokens: list[str] = Field(
        description="The decoder's output there, end token included: T."
    )
    encoder: list[list[list[list[float]]]] = Field(description="[layer][head][S][S]")
    decoder: list[list[list[list[float]]]] = Field(description="[layer][head][T][T]")
    cross: list[list[list[list[float]]]] = Field(description="[layer][head][T][S]")


class AttentionAnswer(BaseModel):
    """The attention of as many sentences as fit into one answer."""

    model: str
    records: list[AttentionSentence]
    left_out: int = Field(description="Sentences at the end that did not fit.")


class ModelAnswer(BaseModel):
    """A model that is served."""

    name: str
    source: str = Field(description="Language code; empty if the run has none.")
    target: str
    attention: bool = Field(description="Whether /v1/attention works for it.")
    card: dict[str, Any] = Field(description="Recipe, size, scores, departures from the paper.")


class ModelsAnswer(BaseModel):
    """All models that are served, and the limits of one request."""

    models: list[ModelAnswer] = Field(description="Those that translate.")
    max_characters: int
    max_candidates: int
    object: Literal["list"] = "list"
    data: list[ModelEntry] = Field(description="Language models, as OpenAI's API lists them.")


def routes(service: Service) -> APIRouter:
    """Make translation's own routes."""
    router = APIRouter(prefix="/v1", tags=["Translation"])

    @router.get("/models", summary="The models that are served", responses=ERRORS)
    async def models() -> ModelsAnswer:
        return ModelsAnswer(
            models=[
                ModelAnswer(
                    name=model.name,
                    source=model.source,
                    target=model.target,
                    attention=model.translator.can_align,
                    card=model.card,
                )
                for model in service.models.all
            ],
            max_characters=service.limits.characters,
            max_candidates=service.limits.candidates,
            data=[model_entry(model) for model in service.models.generators],
        )

    @router.post(
        "/translate",
        summary="Translate, with candidates, scores, tokens and alignment",
        response_model=TranslateAnswer,
        responses=ERRORS,
        openapi_extra=_body(TranslateRequest),
    )
    async def translate(request: Request) -> Response:
        asked = await json_request(request, TranslateRequest, service.limits)
        return await service.for_client(request, _translate(service, asked, request))

    @router.post(
        "/attention",
        summary="Every attention weight of a text's sentences and their translations",
        response_model=AttentionAnswer,
        responses=ERRORS,
        openapi_extra=_body(AttentionRequest),
    )
    async def attention(request: Request) -> Response:
        asked = await json_request(request, AttentionRequest, service.limits)
        return await service.for_client(request, _attention(service, asked, request))

    return router


def _body(kind: type[BaseModel]) -> dict[str, Any]:
    """Describe a body for OpenAPI: FastAPI does not know our own parser."""
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


async def _attention(service: Service, asked: AttentionRequest, request: Request) -> Response:
    model = service.models.find(asked.model, asked.source, asked.target)
    request.state.facts.update(model=model.name, characters=len(asked.q))
    if not model.translator.can_align:
        raise RefusedError(400, f"attention {_NEEDED}")
    client = request.state.client
    (translated,) = await translation.translate(service, model, [asked.q], client)
    records, left_out = await translation.attention(service, model, translated, client)
    # Joined from JSON that was made in slices: making it here would block the event loop.
    name = json.dumps(model.name)
    return _json(f'{{"model":{name},"records":[{",".join(records)}],"left_out":{left_out}}}')


async def _translate(service: Service, asked: TranslateRequest, request: Request) -> Response:
    model = service.models.find(asked.model, asked.source, asked.target)
    texts = asked.q if isinstance(asked.q, list) else [asked.q]
    request.state.facts.update(model=model.name, characters=sum(map(len, texts)))
    if asked.alignment and not model.translator.can_align:
        raise RefusedError(400, f"alignment {_NEEDED}")
    client = request.state.client
    translations = await translation.translate(
        service,
        model,
        texts,
        client,
        beam=asked.beam,
        alpha=asked.alpha,
        nbest=asked.nbest,
        min_length=asked.min_length,
        split=asked.split,
    )
    links, log_probs = None, None
    if asked.alignment:
        links = await translation.alignments(service, model, translations, client)
    if asked.token_scores:
        log_probs = await translation.token_log_probs(service, model, translations, client)
    answer = partial(_answer, model.name, translations, links, log_probs)
    return _json(await translation.make_response(service, answer, translations, client))


def _answer(
    name: str,
    translations: Sequence[Translation],
    links: Sequence[list[tuple[int, int]]] | None,
    log_probs: Sequence[list[float]] | None,
) -> str:
    answers = [TextAnswer.of(each) for each in translations]
    for answer, alignment in zip(answers, links or (), strict=bool(links)):
        answer.alignment = alignment
    # A text that was split has no tokens of its own.
    sentences = [part for answer in answers for part in answer.parts or [answer]]
    for sentence, found in zip(sentences, log_probs or (), strict=bool(log_probs)):
        sentence.token_log_probs = found
    whole = TranslateAnswer(model=name, translations=answers)
    return whole.model_dump_json(exclude_none=True)


def _json(content: str) -> Response:
    return Response(content, media_type="application/json")
