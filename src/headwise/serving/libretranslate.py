"""Translation in LibreTranslate's API: its routes, requests and answers, as JSON or forms."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from headwise.languages import language_name
from headwise.serving.bodies import checked, is_json, read_json
from headwise.serving.errors import ERRORS
from headwise.serving.forms import FORMS, form_fields, media_type
from headwise.serving.limits import Limits, RefusedError
from headwise.serving.service import Service
from headwise.serving.texts import Texts
from headwise.serving.translation import translate as translate_texts
from headwise.tasks.translation.translator import Translation, join


class LibreRequest(BaseModel):
    """LibreTranslate's request; its fields that this server does not use are ignored."""

    q: Texts
    source: str = Field(
        description='Language code, or "auto" if only one has a model into the target.'
    )
    target: str = Field(description="Language code.")
    format: str = Field("text", description='"text"; "html" is refused.')
    alternatives: int = Field(0, ge=0, description="How many more translations to return.")
    api_key: str | None = None


class DetectedLanguage(BaseModel):
    """LibreTranslate's answer to "auto". The language is not detected: the confidence is 0."""

    confidence: float
    language: str


class LibreAnswer(BaseModel):
    """LibreTranslate's answer: lists where `q` was one."""

    translatedText: str | list[str]  # noqa: N815 - LibreTranslate's name
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: DetectedLanguage | list[DetectedLanguage] | None = None  # noqa: N815


class LibreLanguage(BaseModel):
    """A source language, and its target languages."""

    code: str
    name: str
    targets: list[str]


_SCHEMA = {"schema": {"$ref": "#/components/schemas/LibreRequest"}}
_CONTENT = ("application/json", *FORMS)
_BODY = {"requestBody": {"required": True, "content": dict.fromkeys(_CONTENT, _SCHEMA)}}


def routes(service: Service) -> APIRouter:
    """Make LibreTranslate's routes."""
    router = APIRouter(tags=["LibreTranslate"])

    @router.post(
        "/translate",
        summary="Translate, as LibreTranslate does",
        response_model=LibreAnswer,
        response_model_exclude_none=True,
        responses=ERRORS,
        openapi_extra=_BODY,
    )
    async def translate(request: Request) -> LibreAnswer:
        content_type = request.headers.get("content-type", "")
        asked = checked(LibreRequest, fields_of(content_type, await request.body(), service.limits))
        return await service.for_client(request, _translate(service, asked, request))

    @router.get(
        "/languages",
        summary="Source languages, each with its target languages",
        response_model=list[LibreLanguage],
        responses=ERRORS,
    )
    async def languages() -> list[LibreLanguage]:
        return [
            LibreLanguage(code=code, name=language_name(code), targets=targets)
            for code, targets in service.models.languages().items()
        ]

    return router


async def _translate(service: Service, asked: LibreRequest, request: Request) -> LibreAnswer:
    if asked.format != "text":
        raise RefusedError(400, 'only the format "text" is supported: send plain text')
    most = service.limits.candidates - 1
    if asked.alternatives > most:
        raise RefusedError(400, f"alternatives may be {most} at most")
    model = service.models.between(asked.source, asked.target)
    texts = asked.q if isinstance(asked.q, list) else [asked.q]
    request.state.facts.update(model=model.name, characters=sum(map(len, texts)))
    translations = await translate_texts(
        service, model, texts, request.state.client, nbest=asked.alternatives + 1
    )
    answer: dict[str, Any] = {"translatedText": [each.text for each in translations]}
    if asked.alternatives:
        answer["alternatives"] = [_alternatives(each) for each in translations]
    if asked.source == "auto":
        detected = DetectedLanguage(confidence=0.0, language=model.source)
        answer["detectedLanguage"] = [detected] * len(texts)
    if isinstance(asked.q, str):
        answer = {name: values[0] for name, values in answer.items()}
    return LibreAnswer(**answer)


def _alternatives(translation: Translation) -> list[str]:
    """Return more translations of a text; of several sentences, the next best of each joined."""
    if not translation.parts:
        return [candidate.text for candidate in translation.candidates[1:]]
    most = max(len(part.candidates) for part in translation.parts)
    return [join(translation.parts, rank) for rank in range(1, most)]


def fields_of(content_type: str, body: bytes, limits: Limits) -> dict[str, Any]:
    """Parse a request, which is JSON or a form according to its Content-Type."""
    if is_json(content_type):
        return read_json(body, limits)
    if media_type(content_type) in FORMS:
        return _single(form_fields(content_type, body))
    raise RefusedError(415, f"send the request with one of the Content-Types {', '.join(_CONTENT)}")


def _single(fields: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return each field's value, or its values if it has several."""
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
