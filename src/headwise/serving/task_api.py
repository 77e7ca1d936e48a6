"""Routes of the tasks other than translation: POST /v1/<verb>, answered by a plain handler.

A task says how it is served in a module of its own (`served` in its row of `TASKS`). Handlers
run in the compute thread, in turns with searches: a request waits for its turn like any other, and
counts towards its client's limits.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from headwise.serving.bodies import json_request
from headwise.serving.errors import ERRORS
from headwise.serving.limits import RefusedError
from headwise.serving.service import Service
from headwise.tasks.panel import Panel


class ServedTask(Protocol):
    """How a task answers requests."""

    verb: str
    """Requests are sent to /v1/<verb>."""
    request: type[BaseModel]
    """It may have a field `model`, for the name of one of several models."""
    answer: type[BaseModel]
    panel: Panel

    def load(self, run: Path, checkpoint: str | None, device: str) -> Any:
        """Load a run's predictor."""
        ...

    def texts(self, asked: Any) -> list[str]:
        """Return the texts of a request, which count towards the limits."""
        ...

    def handle(self, predictor: Any, asked: Any) -> BaseModel:
        """Answer a request. What cannot be answered is a RequestError."""
        ...


@dataclass(frozen=True, kw_only=True)
class TaskModel:
    """A model of another task than translation, and its name."""

    name: str
    task: str
    served: ServedTask
    predictor: Any
    card: dict[str, Any] = field(default_factory=dict)
    """Facts about it for people, as JSON."""

    def about(self) -> dict[str, Any]:
        """Return what the web page needs."""
        return {
            "name": self.name,
            "task": self.task,
            "path": f"/v1/{self.served.verb}",
            "panel": asdict(self.served.panel),
            "card": self.card,
        }


def routes(service: Service, models: list[TaskModel]) -> APIRouter:
    """Make a route for each task that has a model, and one that lists these models."""
    router = APIRouter(prefix="/v1", tags=["Tasks"])

    @router.get("/tasks", summary="The models of other tasks than translation", responses=ERRORS)
    async def tasks() -> dict[str, list[dict[str, Any]]]:
        return {"models": [model.about() for model in models]}

    for served in {model.task: model.served for model in models}.values():
        own = [model for model in models if model.served is served]
        schema = {"$ref": f"#/components/schemas/{served.request.__name__}"}
        router.add_api_route(
            f"/{served.verb}",
            _route(service, served, own),
            methods=["POST"],
            summary=served.panel.title,
            response_model=served.answer,
            responses=ERRORS,
            openapi_extra={
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": schema}},
                }
            },
        )
    return router


def _route(
    service: Service, served: ServedTask, models: list[TaskModel]
) -> Callable[[Request], Any]:
    async def route(request: Request) -> Response:
        asked = await json_request(request, served.request, service.limits)
        return await service.for_client(request, _answer(service, served, models, asked, request))

    return route


async def _answer(
    service: Service, served: ServedTask, models: list[TaskModel], asked: Any, request: Request
) -> Response:
    model = _find(models, getattr(asked, "model", None))
    texts, client = served.texts(asked), request.state.client
    request.state.facts.update(model=model.name, characters=sum(map(len, texts)))
    service.check_size(texts)
    service.bulk_calls.check_room(client)
    service.rate.take(client, sum(map(len, texts)))
    call = partial(served.handle, model.predictor, asked)
    answer: BaseModel = await service.between_steps(call, client, is_long=True)
    return Response(answer.model_dump_json(), media_type="application/json")


def _find(models: list[TaskModel], name: str | None) -> TaskModel:
    for model in models:
        if name in (None, model.name):
            return model
    known = ", ".join(model.name for model in models)
    raise RefusedError(404, f"there is no model of that name: the models are {known}")
