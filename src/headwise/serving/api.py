"""The API's own routes: everything that a Translator gives."""

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, PlainTextResponse, Response

from headwise.serving.errors import ERRORS, problem
from headwise.serving.limits import RefusedError
from headwise.serving.messages import (
    AttentionAnswer,
    AttentionRequest,
    ModelAnswer,
    ModelsAnswer,
    Status,
    TextAnswer,
    TranslateAnswer,
    TranslateRequest,
)
from headwise.serving.parsing import json_request
from headwise.serving.service import Service
from headwise.tasks.translation.translator import Translation

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


def routes(service: Service) -> APIRouter:
    """Make the routes that translate."""
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


def status_routes(service: Service) -> APIRouter:
    """Make the routes for those who look after the server."""
    router = APIRouter(tags=["Status"])

    @router.get(
        "/healthz", summary="Whether the server works", response_model=Status, responses=ERRORS
    )
    async def health() -> Response:
        if service.is_healthy:
            return JSONResponse({"status": "alive"})
        return problem(503, f"the server hangs or has crashed: {_reasons(service)}")

    @router.get(
        "/readyz", summary="Whether requests are taken", response_model=Status, responses=ERRORS
    )
    async def ready() -> Response:
        if not service.is_ready or not service.is_healthy:
            return problem(503, f"not ready: {_reasons(service)}")
        broken = service.broken()
        return JSONResponse({"status": "ready"} | ({"broken": broken} if broken else {}))

    @router.get(
        "/metrics",
        summary="Figures for Prometheus",
        response_class=PlainTextResponse,
        responses=ERRORS,
    )
    async def metrics() -> Response:
        return PlainTextResponse(service.metrics.render(), media_type=_PROMETHEUS)

    return router


def _reasons(service: Service) -> str:
    """Say what is wrong, for those who look after the server."""
    if not service.is_accepting:
        return "starting or stopping"
    broken = [f"{name} {reason}" for name, reason in service.broken().items()]
    return ", ".join(broken) or "the compute thread"


def _body(kind: type[BaseModel]) -> dict[str, Any]:
    """Describe a body for OpenAPI: FastAPI does not know what our own parser reads."""
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


async def _attention(service: Service, asked: AttentionRequest, request: Request) -> Response:
    model = service.models.find(asked.model, asked.source, asked.target)
    request.state.facts.update(model=model.name, characters=len(asked.q))
    if not model.translator.can_align:
        raise RefusedError(400, "attention needs the torch engine, and this model has another")
    client = request.state.client
    (translation,) = await service.translate(model, [asked.q], client)
    records, left_out = await service.attention(model, translation, client)
    # Put together from what was made in slices: to make it here would hold the event loop.
    name = json.dumps(model.name)
    return _json(f'{{"model":{name},"records":[{",".join(records)}],"left_out":{left_out}}}')


async def _translate(service: Service, asked: TranslateRequest, request: Request) -> Response:
    model = service.models.find(asked.model, asked.source, asked.target)
    texts = asked.q if isinstance(asked.q, list) else [asked.q]
    request.state.facts.update(model=model.name, characters=sum(map(len, texts)))
    if asked.alignment and not model.translator.can_align:
        raise RefusedError(400, "alignment needs the torch engine, and this model has another")
    client = request.state.client
    translations = await service.translate(
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
        links = await service.alignments(model, translations, client)
    if asked.token_scores:
        log_probs = await service.token_log_probs(model, translations, client)
    answer = partial(_answer, model.name, translations, links, log_probs)
    return _json(await service.answered(answer, translations, client))


def _answer(
    name: str,
    translations: Sequence[Translation],
    links: Sequence[list[tuple[int, int]]] | None,
    log_probs: Sequence[list[float]] | None,
) -> str:
    answers = [TextAnswer.of(translation) for translation in translations]
    for answer, alignment in zip(answers, links or (), strict=bool(links)):
        answer.alignment = alignment
    # A text in parts has no tokens of its own.
    sentences = [part for answer in answers for part in answer.parts or [answer]]
    for sentence, found in zip(sentences, log_probs or (), strict=bool(log_probs)):
        sentence.token_log_probs = found
    whole = TranslateAnswer(model=name, translations=answers)
    return whole.model_dump_json(exclude_none=True)


def _json(content: str) -> Response:
    return Response(content, media_type="application/json")
