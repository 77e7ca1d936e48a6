"""Routes of the tasks other than translation: POST /v1/<verb>, answered by a plain handler.

(Language models have routes of their own, in `generation_api`.)

A task says how it is served in a module of its own (`served` in its row of `TASKS`). Handlers
run in the compute thread, in turns with searches: a request waits for its turn like any other, and
counts towards its client's limits.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import Response

from headwise.config import task_rows
from headwise.serving.bodies import checked, is_json, json_fields
from headwise.serving.errors import ERRORS
from headwise.serving.forms import FORMS, form_parts, media_type, text_of
from headwise.serving.limits import RefusedError
from headwise.serving.models import cannot, none_can
from headwise.serving.service import Service
from headwise.tasks.panel import Panel

_JSON = "application/json"

_MOST_FILES = 16
"""Of a request."""

_BYTES_EACH = 1_000
"""Of a file, that count as a character towards a client's rate."""


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


@runtime_checkable
class TakesTexts(Protocol):
    """A task whose requests have texts, as JSON."""

    def texts(self, asked: Any) -> list[str]:
        """Return the texts of a request, which count towards the limits."""
        ...

    def handle(self, predictor: Any, asked: Any) -> BaseModel:
        """Answer a request. What cannot be answered is a RequestError."""
        ...


@runtime_checkable
class TakesFiles(Protocol):
    """A task whose requests have files instead of texts, as parts of a multipart form."""

    unit: str
    """What the files are, in the plural."""

    def panel_of(self, predictor: Any) -> Panel:
        """Return the panel of a model, with what it takes of a file."""
        ...

    def handle_file(self, predictor: Any, asked: Any, content: bytes) -> Any:
        """Answer for one file; what is not such a file is a RequestError.

        Between two files, other requests have their turns.
        """
        ...

    def answer_of(self, found: list[Any]) -> BaseModel:
        """Join the answers for each file."""
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

    @property
    def path(self) -> str:
        """The path that it answers."""
        return f"/v1/{self.served.verb}"

    def about(self) -> dict[str, Any]:
        """Return what the web page needs."""
        served, panel = self.served, self.served.panel
        if isinstance(served, TakesFiles):
            panel = served.panel_of(self.predictor)
        return {
            "name": self.name,
            "task": self.task,
            "path": self.path,
            "panel": asdict(panel),
            "card": self.card,
        }


def routes(service: Service, models: list[TaskModel]) -> APIRouter:
    """Make a route for each task that has a model, and one that lists these models."""
    router = APIRouter(prefix="/v1", tags=["Tasks"])

    @router.get("/tasks", summary="The models of other tasks than translation", responses=ERRORS)
    async def tasks() -> dict[str, list[dict[str, Any]]]:
        return {"models": [model.about() for model in models]}

    verbs = {model.served.verb for model in models}
    for verb in sorted({row.verb for _, row in task_rows() if row.served} - verbs):
        router.add_api_route(
            f"/{verb}", _refusal(verb, service), methods=["POST"], include_in_schema=False
        )
    handled = [model for model in models if isinstance(model.served, TakesTexts | TakesFiles)]
    for verb in dict.fromkeys(model.served.verb for model in handled):
        own = [model for model in handled if model.served.verb == verb]
        first = own[0].served
        content: dict[str, Any] = {}
        for model in own:
            kind = "multipart/form-data" if isinstance(model.served, TakesFiles) else _JSON
            name = model.served.request.__name__
            content.setdefault(kind, {"schema": {"$ref": f"#/components/schemas/{name}"}})
        router.add_api_route(
            f"/{verb}",
            _route(service, own),
            methods=["POST"],
            summary=first.panel.title,
            response_model=reduce(or_, dict.fromkeys(model.served.answer for model in own)),
            responses=ERRORS,
            openapi_extra={"requestBody": {"required": True, "content": content}},
        )
    return router


def upload_paths(models: Sequence[TaskModel]) -> set[str]:
    """Return the paths of routes that take files."""
    return {each.path for each in models if isinstance(each.served, TakesFiles)}


def _refusal(verb: str, service: Service) -> Callable[[], Any]:
    async def route() -> Response:
        raise none_can(verb, service.models.paths())

    return route


def _route(service: Service, models: list[TaskModel]) -> Callable[[Request], Any]:
    async def route(request: Request) -> Response:
        asked = await _asked(request, models, service)
        return await service.for_client(request, _answer(service, asked, request))

    return route


@dataclass(frozen=True, kw_only=True)
class _Asked:
    model: TaskModel
    fields: Any
    files: list[bytes]


async def _asked(request: Request, models: list[TaskModel], service: Service) -> _Asked:
    """Parse a request: JSON with texts, or a form with files, as the model that it names takes."""
    kind = request.headers.get("content-type", "")
    of_files = [model for model in models if isinstance(model.served, TakesFiles)]
    of_texts = [model for model in models if isinstance(model.served, TakesTexts)]
    if of_files and media_type(kind) == FORMS[1]:
        parts = form_parts(kind, request.state.body)
        request.state.body = b""  # The files are held from now on.
        fields: dict[str, Any] = {p.name: text_of(p.content) for p in parts if not p.is_file}
        files = [part.content for part in parts if part.is_file]
        model = _find(models, fields.get("model"), service, of_files[0])
        if not isinstance(model.served, TakesFiles):
            raise RefusedError(400, f"{model.name} takes texts: send JSON")
        if not 1 <= len(files) <= _MOST_FILES:
            raise RefusedError(
                400, f"send from 1 to {_MOST_FILES} {model.served.unit}, as files of the form"
            )
        return _Asked(model=model, fields=checked(model.served.request, fields), files=files)
    if not is_json(kind) and not of_texts:
        raise RefusedError(415, f"send files in a form, with the Content-Type {FORMS[1]}")
    fields = await json_fields(request, service.limits)
    model = _find(models, fields.get("model"), service, (of_texts or models)[0])
    if isinstance(model.served, TakesFiles):
        raise RefusedError(
            400,
            f"{model.name} takes {model.served.unit}: send them as files in a form ({FORMS[1]})",
        )
    return _Asked(model=model, fields=checked(model.served.request, fields), files=[])


async def _answer(service: Service, asked: _Asked, request: Request) -> Response:
    model, client = asked.model, request.state.client
    served, predictor = model.served, model.predictor
    if isinstance(served, TakesFiles):
        # The rate is of characters: so many bytes take as long.
        size = sum(map(len, asked.files)) // _BYTES_EACH
    else:
        assert isinstance(served, TakesTexts)
        texts = served.texts(asked.fields)
        size = sum(map(len, texts))
        service.check_size(texts)
    request.state.facts.update(model=model.name, characters=size)
    service.bulk_calls.check_room(client)
    service.rate.take(client, size)
    if isinstance(served, TakesFiles):
        handle = partial(served.handle_file, predictor, asked.fields)
        calls = [partial(handle, content) for content in asked.files]
        answer = served.answer_of(await service.bulk_calls.results(calls, client))
    else:
        call = partial(served.handle, predictor, asked.fields)
        answer = await service.between_steps(call, client, is_long=True)
    return Response(answer.model_dump_json(), media_type=_JSON)


def _find(models: list[TaskModel], name: object, service: Service, default: TaskModel) -> TaskModel:
    """Return the model of a name, or the default without one."""
    if name is None:
        return default
    for model in models:
        if name == model.name:
            return model
    paths = service.models.paths()
    if isinstance(name, str) and name in paths:
        raise cannot(name, default.served.verb, paths[name])
    known = ", ".join(model.name for model in models)
    raise RefusedError(404, f"there is no model of that name: the models are {known}")
