"""POST /v1/generate: continuations of a prompt, whole or as they are written."""

from collections.abc import AsyncGenerator
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from headwise.errors import RequestError
from headwise.serving.bodies import json_request
from headwise.serving.errors import ERRORS
from headwise.serving.events import MEDIA_TYPE, EventStream, event
from headwise.serving.generation import Order, make_answer, submit
from headwise.serving.limits import RefusedError
from headwise.serving.models import GenerationModel
from headwise.serving.service import Service
from headwise.serving.writing import Arrivals
from headwise.tasks.language_model.serving import (
    GenerateAnswer,
    GenerateEvent,
    GenerateRequest,
    TokenAnswer,
)
from headwise.tasks.language_model.writing import Piece


def routes(service: Service) -> APIRouter:
    """Make the route."""
    router = APIRouter(prefix="/v1", tags=["Tasks"])
    schema = {"$ref": f"#/components/schemas/{GenerateRequest.__name__}"}

    @router.post(
        "/generate",
        summary="Continue a text",
        response_model=GenerateAnswer,
        responses=ERRORS | {200: {"content": {MEDIA_TYPE: {}}}},
        openapi_extra={
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}
        },
    )
    async def generate(request: Request) -> Response:
        asked = await json_request(request, GenerateRequest, service.limits)
        model = service.models.generator(asked.model)
        order = _order(model, asked)
        request.state.facts.update(model=model.name, characters=len(asked.prompt))
        if asked.stream:
            events = _events(service, model, order, request.state.client)
            return EventStream(service, request, events, _problem)
        return await service.for_client(request, _whole(service, model, order, request))

    return router


def _order(model: GenerationModel, asked: GenerateRequest) -> Order:
    if asked.n is not None and "count" in asked.model_fields_set and asked.n != asked.count:
        raise RefusedError(400, "n and count are the same: send one of them")
    settings = model.generator.settings(
        temperature=asked.temperature,
        top_k=asked.top_k,
        top_p=asked.top_p,
        seed=asked.seed,
        beam=0,
        count=asked.n or asked.count,
        max_tokens=asked.max_tokens,
    )
    return Order(
        prompts=[asked.prompt], settings=settings, stop=asked.stop, num_best=asked.logprobs
    )


async def _whole(
    service: Service, model: GenerationModel, order: Order, request: Request
) -> Response:
    client = request.state.client
    writing = await submit(service, model, order, client)
    try:
        found = await writing.whole()
    finally:
        writing.drop()

    def make() -> str:
        answer = GenerateAnswer.of(found, has_tokens=order.num_best is not None)
        return answer.model_dump_json(exclude_none=True)

    return Response(
        await make_answer(service, order, found, client, make), media_type="application/json"
    )


async def _events(
    service: Service, model: GenerationModel, order: Order, client: str
) -> AsyncGenerator[bytes, None]:
    writing = await submit(service, model, order, client, Arrivals())
    try:
        async for pieces in writing.pieces():
            for index, piece in pieces.items():
                if piece.text or piece.tokens or piece.ending:
                    yield _event(index, piece, has_tokens=order.num_best is not None)
    finally:
        writing.drop()


def _event(index: int, piece: Piece, *, has_tokens: bool) -> bytes:
    tokens = [TokenAnswer.of(token) for token in piece.tokens] if has_tokens else None
    found = GenerateEvent(index=index, text=piece.text, ending=piece.ending, tokens=tokens)
    return event(found.model_dump(exclude_none=True))


def _problem(error: RequestError) -> dict[str, Any]:
    return {"error": str(error)}
