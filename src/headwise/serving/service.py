"""Run the models: their queues, health, deadlines and limits, whatever the task."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request

from headwise.decoding import Hypothesis
from headwise.serving.batching import Batcher
from headwise.serving.calls import Calls
from headwise.serving.client_limits import CharacterRate, Concurrency
from headwise.serving.compute import ComputeThread, Driver, InLoop, Work
from headwise.serving.limits import Limits, RefusedError, too_long
from headwise.serving.models import GenerationModel, Models, ServedModel
from headwise.serving.observation import Metrics
from headwise.serving.writing import TOGETHER, Job, Result

T = TypeVar("T")

_CLOSE_SECONDS = 1.0
"""How long a turn in progress may take to end when the service is closed."""


@dataclass(eq=False)
class _Pending:
    """A request in progress, which can be refused before its deadline."""

    timeout: asyncio.Timeout
    refusal: RefusedError | None = None

    def refuse(self, refusal: RefusedError) -> None:
        """Refuse the request, unless that or its deadline has already happened."""
        if self.refusal is None and not self.timeout.expired():
            self.refusal = refusal
            self.timeout.reschedule(asyncio.get_running_loop().time())


class Service:
    """Every model with its queue, and whether requests are accepted."""

    def __init__(
        self,
        models: Models,
        limits: Limits,
        metrics: Metrics,
        compute: ComputeThread,
        *,
        num_others: int = 0,
    ) -> None:
        """Search in `compute`, except for models with workers.

        `num_others` models are of other tasks, and have no queue of their own.
        """
        self.models, self.limits, self.metrics = models, limits, metrics
        self._num_models = len(models.all) + len(models.generators) + num_others
        self._compute = compute
        in_loop = InLoop()
        self._drivers: dict[str, Driver] = {
            model.name: compute if model.workers is None else in_loop for model in models.all
        }
        self._batchers: dict[str, Batcher[list[int], list[Hypothesis]]] = {
            model.name: Batcher(
                model.name,
                model.search,
                limits,
                metrics,
                self._drivers[model.name],
                default=model.translator.settings(),
                shares=model.shares,
                is_free=lambda model=model: model.is_free,  # type: ignore[misc]
            )
            for model in models.all
        }
        self._writers = {
            model.name: self._writer(model, compute, metrics) for model in models.generators
        }
        self.light_calls = Calls(limits, compute, is_bulk=False)
        self.bulk_calls = Calls(limits, compute, is_bulk=True)
        self._work: list[tuple[Driver, Work]] = [
            *((self._drivers[name], batcher) for name, batcher in self._batchers.items()),
            *((compute, writer) for writer in self._writers.values()),
            (compute, self.light_calls),
            (compute, self.bulk_calls),
        ]
        self._workers = {model.workers for model in models.all if model.workers is not None}
        self.rate = CharacterRate(limits.rate)
        self._concurrency = Concurrency(limits.requests)
        self._hang_seconds = max(limits.hang_seconds, limits.deadline)
        self.is_accepting = False
        self._pending: set[_Pending] = set()
        metrics.ready.set_function(lambda: float(self.is_ready))

    def _writer(
        self, model: GenerationModel, compute: ComputeThread, metrics: Metrics
    ) -> Batcher[Job, Result]:
        """Make the queue of a language model."""
        tokens = metrics.generated_tokens.labels(model.name)
        close_draws = metrics.close_draws.labels(model.name)

        def count(drawn: int, close: int) -> None:
            tokens.inc(drawn)
            close_draws.inc(close)

        return Batcher(
            model.name,
            lambda *_: model.search(compute.call_soon, count),
            self.limits,
            metrics,
            compute,
            default=TOGETHER,
        )

    async def start(self) -> None:
        """Accept requests from now on; call this in the event loop that handles them."""
        for workers in self._workers:
            await workers.watch(self._hang_seconds)
        for driver, work in self._work:
            driver.add(work)
        self.is_accepting = True

    def close(self) -> None:
        """End all work."""
        for driver, work in self._work:
            driver.remove(work, _CLOSE_SECONDS)
        for workers in self._workers:
            workers.unwatch()

    def stop_accepting(self) -> None:
        """Accept no more requests; those in progress may finish. Safe in a signal handler."""
        self.is_accepting = False

    def cancel_requests(self) -> None:
        """Refuse the requests that are still in progress."""
        for pending in self._pending:
            pending.refuse(
                RefusedError(503, "the server is stopping: try again in a moment", retry_after=5)
            )

    @property
    def num_pending(self) -> int:
        """How many requests are in progress."""
        return len(self._pending)

    @property
    def is_ready(self) -> bool:
        """Whether requests are accepted, and some model can answer them."""
        return self.is_accepting and len(self.broken()) < self._num_models

    @property
    def is_healthy(self) -> bool:
        """False if a restart would help: the compute thread or all models hang or have crashed."""
        if not self.is_accepting:
            return True  # Starting or stopping.
        return (
            self._compute.has(self.light_calls)
            and self._compute.has(self.bulk_calls)
            and self._compute.stalled_seconds < self._hang_seconds
            and len(self.broken()) < self._num_models
        )

    def broken(self) -> dict[str, str]:
        """Return the models that cannot answer now, with the reasons."""
        found = {}
        for model in self.models.all:
            batcher = self._batchers[model.name]
            if not self._drivers[model.name].has(batcher):
                found[model.name] = "has crashed"
            elif model.workers is not None:
                if not model.workers.num_ready:
                    found[model.name] = "has no worker that is ready"
            elif self._hangs(batcher):
                found[model.name] = "hangs"
        for name, writer in self._writers.items():
            if not self._compute.has(writer):
                found[name] = "has crashed"
            elif self._hangs(writer):
                found[name] = "hangs"
        return found

    def _hangs(self, batcher: Batcher[Any, Any]) -> bool:
        stalled_seconds = max(self._compute.stalled_seconds, batcher.stalled_seconds)
        return stalled_seconds >= self._hang_seconds

    def batcher(self, model: ServedModel) -> Batcher[list[int], list[Hypothesis]]:
        """Return a model's queue; raise RefusedError if the model cannot answer now."""
        self._check_works(model.name)
        return self._batchers[model.name]

    def writer(self, model: GenerationModel) -> Batcher[Job, Result]:
        """Return a language model's queue; raise RefusedError if the model cannot answer now."""
        self._check_works(model.name)
        return self._writers[model.name]

    def _check_works(self, name: str) -> None:
        if reason := self.broken().get(name):
            raise RefusedError(
                503, f"the model {name} {reason}: try again in a moment", retry_after=5
            )

    def check_size(self, texts: Sequence[str]) -> None:
        """Raise RefusedError for too many texts or characters."""
        if len(texts) > self.limits.texts:
            raise too_long("texts", len(texts), self.limits.texts)
        characters = sum(map(len, texts))
        if characters > self.limits.characters:
            raise too_long("characters", characters, self.limits.characters)

    async def between_steps(self, call: Callable[[], T], client: str, *, is_long: bool) -> T:
        """Return a call's result; make a long call between two steps of the searches.

        In the event loop it would block other requests, and in another thread the GIL would delay
        every step.
        """
        if not is_long:
            return call()
        (result,) = await self.bulk_calls.results([call], client)
        found: T = result
        return found

    async def for_client(self, request: Request, work: Coroutine[Any, Any, T]) -> T:
        """Await work until the deadline, the client's disconnection or the server's stop."""
        try:
            with self._concurrency.one(request.state.client):
                return await self._until_deadline(request, work)
        finally:
            work.close()  # If it was refused, it has not started.

    async def _until_deadline(self, request: Request, work: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(self.limits.deadline) as timeout:
                pending = _Pending(timeout)
                self._pending.add(pending)
                disconnection = asyncio.ensure_future(_refuse_on_disconnect(request, pending))
                try:
                    return await work
                finally:
                    self._pending.discard(pending)
                    disconnection.cancel()
        except TimeoutError as error:
            if not timeout.expired():
                raise
            raise pending.refusal or RefusedError(
                504,
                f"this took longer than {self.limits.deadline:g} seconds: send less at a time, "
                "or try again in a moment",
            ) from error


async def _refuse_on_disconnect(request: Request, pending: _Pending) -> None:
    """Refuse a request once its client has disconnected."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    pending.refuse(RefusedError(499, "the client has disconnected"))
