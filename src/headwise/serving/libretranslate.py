"""LibreTranslate's routes, for the clients that it has already: JSON, and both kinds of forms."""

import json
from collections.abc import Mapping
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from pydantic import ValidationError

from headwise.inspect.languages import language_name
from headwise.serving.errors import ERRORS, sentence_of
from headwise.serving.limits import RefusedError
from headwise.serving.messages import DetectedLanguage, LibreAnswer, LibreLanguage, LibreRequest
from headwise.serving.service import Service
from headwise.tasks.translation import Translation

_SCHEMA = {"schema": {"$ref": "#/components/schemas/LibreRequest"}}
_CONTENT = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data")
_BODY = {"requestBody": {"required": True, "content": dict.fromkeys(_CONTENT, _SCHEMA)}}


def routes(service: Service) -> APIRouter:
    """Make the routes."""
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
        fields = fields_of(request.headers.get("content-type", ""), await request.body())
        try:
            asked = LibreRequest.model_validate(fields)
        except ValidationError as error:
            raise RefusedError(400, sentence_of(error.errors())) from error
        return await service.for_client(request, _translate(service, asked, request))

    @router.get(
        "/languages",
        summary="Languages that are translated from, each with those it is translated to",
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
        raise RefusedError(400, 'only "text" can be translated: leave the markup out, or format')
    model = service.models.between(asked.source, asked.target)
    texts = asked.q if isinstance(asked.q, list) else [asked.q]
    request.state.facts.update(model=model.name, characters=sum(map(len, texts)))
    translations = await service.translate(model, texts, nbest=asked.alternatives + 1)
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
    return [candidate.text for candidate in translation.candidates[1:]]


def fields_of(content_type: str, body: bytes) -> dict[str, Any]:
    """Return the fields of a request, in whichever of three ways it states them."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        return _single(parse_qs(_text(body), keep_blank_values=True))
    if kind == "multipart/form-data":
        return _single(_multipart(content_type, body))
    try:
        fields = json.loads(_text(body))
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, "the body is not JSON, and not said to be a form") from error
    if not isinstance(fields, dict):
        raise RefusedError(400, "the body must be an object with the fields q, source and target")
    return fields


def _single(fields: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return each field's value, or values where it has more than one."""
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


def _multipart(content_type: str, body: bytes) -> dict[str, list[str]]:
    # The parser takes a header as it would stand in a message; line breaks would end it.
    header = b"Content-Type: " + " ".join(content_type.split()).encode("latin-1", "replace")
    message = BytesParser(policy=HTTP).parsebytes(header + b"\r\n\r\n" + body)
    if not message.is_multipart():
        raise RefusedError(400, "the body is not the form that it is said to be")
    fields: dict[str, list[str]] = {}
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(content, bytes):
            fields.setdefault(name, []).append(_text(content))
    return fields


def _text(content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RefusedError(400, "the body is not UTF-8 text") from error
