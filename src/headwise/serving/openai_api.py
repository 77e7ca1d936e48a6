"""OpenAI's API for language models: POST /v1/completions, GET /v1/models/<name>.

What a client may send, and how it is answered, is in `openai_types`.
"""

import secrets
import time
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from headwise.errors import RequestError
from headwise.serving.bodies import checked, json_fields
from headwise.serving.events import MEDIA_TYPE, EventStream, event
from headwise.serving.generation import Order, Writing, make_answer, submit
from headwise.serving.limits import RefusedError
from headwise.serving.models import GenerationModel
from headwise.serving.openai_errors import error_object
from headwise.serving.openai_types import (
    OPENAI_ERRORS,
    Completion,
    CompletionChoice,
    CompletionRequest,
    ModelEntry,
    Usage,
    check_supported,
    model_entry,
)
from headwise.serving.service import Service
from headwise.serving.writing import Arrivals
from headwise.tasks.language_model.writing import Piece

_SEEDS = 2**62


def routes(service: Service) -> APIRouter:
    """Make the routes."""
    router = APIRouter(prefix="/v1", tags=["OpenAI"])
    schema = {"$ref": f"#/components/schemas/{CompletionRequest.__name__}"}

    @router.post(
        "/completions",
        summary="Continue texts, as OpenAI's API",
        response_model=Completion,
        responses=OPENAI_ERRORS | {200: {"content": {MEDIA_TYPE: {}}}},
        openapi_extra={
            "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}
        },
    )
    async def completions(request: Request) -> Response:
        fields = await json_fields(request, service.limits)
        check_supported(fields)
        asked = checked(CompletionRequest, fields)
        model = service.models.generator(asked.model)
        answer = _Answer(service, model, asked, request)
        request.state.facts.update(model=model.name, characters=sum(map(len, asked.prompts)))
        if asked.stream:
            return EventStream(service, request, answer.events(), _problem)
        return await service.for_client(request, answer.whole())

    @router.get(
        "/models/{name}", include_in_schema=False
    )  # The page /docs sends paths as they are.
    async def model(name: str) -> ModelEntry:
        return model_entry(service.models.generator(name))

    return router


class _Answer:
    """The answer to one request, whole or in events."""

    def __init__(
        self, service: Service, model: GenerationModel, asked: CompletionRequest, request: Request
    ) -> None:
        self._service, self._model, self._asked = service, model, asked
        self._client: str = request.state.client
        self._id, self._created = f"cmpl-{secrets.token_hex(12)}", int(time.time())
        # Without a seed, each answer is another.
        seed = secrets.randbelow(_SEEDS) if asked.seed is None else asked.seed
        self._order = Order(
            prompts=asked.prompts,
            settings=model.generator.settings(
                temperature=asked.temperature,
                top_p=asked.top_p,
                seed=seed,
                beam=0,
                count=asked.n or 1,
                max_tokens=asked.max_tokens,
            ),
            stop=asked.stop or [],
            num_best=asked.logprobs,
        )

    async def whole(self) -> Response:
        """Return the completions once they have ended."""
        writing = await submit(self._service, self._model, self._order, self._client)
        try:
            found = await writing.whole()
        finally:
            writing.drop()

        def make() -> str:
            choices = [
                self._choice(index, piece, is_first=True) for index, piece in enumerate(found)
            ]
            tokens = sum(piece.num_tokens for piece in found)
            return self._completion(choices, _usage(writing, tokens)).model_dump_json()

        content = await make_answer(self._service, self._order, found, self._client, make)
        return Response(content, media_type="application/json")

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Yield events with what is added to the completions."""
        arrivals = Arrivals()
        writing = await submit(self._service, self._model, self._order, self._client, arrivals)
        has_usage = self._asked.stream_options is not None and (
            self._asked.stream_options.include_usage
        )
        tokens, begun = 0, set[int]()
        try:
            async for pieces in writing.pieces():
                for index, piece in pieces.items():
                    tokens += piece.num_tokens
                    is_first = index not in begun
                    begun.add(index)
                    choice = self._choice(index, piece, is_first=is_first)
                    if choice.text or piece.tokens or piece.ending:
                        yield self._event([choice], None, has_usage=has_usage)
        finally:
            writing.drop()
        if has_usage:
            yield self._event([], _usage(writing, tokens), has_usage=True)

    def _event(
        self, choices: list[CompletionChoice], usage: Usage | None, *, has_usage: bool
    ) -> bytes:
        left_out = None if has_usage else {"usage"}
        return event(self._completion(choices, usage).model_dump(exclude=left_out))

    def _completion(self, choices: list[CompletionChoice], usage: Usage | None) -> Completion:
        return Completion(
            id=self._id,
            created=self._created,
            model=self._model.name,
            choices=choices,
            usage=usage,
        )

    def _choice(self, index: int, piece: Piece, *, is_first: bool) -> CompletionChoice:
        prompt = self._order.prompts[index // self._order.settings.count]
        echoed = prompt if self._asked.echo and is_first else ""
        return CompletionChoice.of(
            index,
            piece,
            echoed=echoed,
            has_tokens=self._order.num_best is not None,
        )


def _usage(writing: Writing, tokens: int) -> Usage:
    return Usage(
        prompt_tokens=writing.num_prompt_tokens,
        completion_tokens=tokens,
        total_tokens=writing.num_prompt_tokens + tokens,
    )


def _problem(error: RequestError) -> dict[str, Any]:
    status = error.status if isinstance(error, RefusedError) else 400
    return {"error": error_object(status, str(error))}
