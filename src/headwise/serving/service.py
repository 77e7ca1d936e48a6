"""Texts in, translations out: what the API's routes share."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ParamSpec, TypeVar

from starlette.requests import Request

from headwise.inspect.attention import MOST_TOKENS, AttentionRecord, record_of
from headwise.serving.batching import Batcher
from headwise.serving.compute import computer
from headwise.serving.in_loop import InLoop
from headwise.serving.limits import Limits, RefusedError, too_long
from headwise.serving.metrics import Metrics
from headwise.serving.models import Models, ServedModel
from headwise.tasks.translation import Translation

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(eq=False)
class _Waiting:
    """A request whose answer is waited for, unless that is ended before."""

    scope: asyncio.Timeout
    refusal: RefusedError | None = None

    def end(self, refusal: RefusedError) -> None:
        """Let the request be refused, unless it is just being so."""
        if self.refusal is None and not self.scope.expired():
            self.refusal = refusal
            self.scope.reschedule(asyncio.get_running_loop().time())


class Service:
    """Every model with its queue, and whether requests are taken."""

    def __init__(self, models: Models, limits: Limits, metrics: Metrics) -> None:
        self.models, self.limits, self.metrics = models, limits, metrics
        in_loop = InLoop()
        self._batchers = {
            model.name: Batcher(
                model.name,
                model.search,
                limits,
                metrics,
                computer if model.workers is None else in_loop,
                shares=model.shares,
            )
            for model in models.all
        }
        self._workers = {model.workers for model in models.all if model.workers is not None}
        self._accepting = False
        self._waiting: set[_Waiting] = set()
        metrics.ready.set_function(lambda: float(self.is_ready))

    async def start(self) -> None:
        """Take requests from now on; to be called in the event loop that will bring them."""
        for workers in self._workers:
            await workers.watch()
        for batcher in self._batchers.values():
            batcher.start()
        self._accepting = True

    @property
    def is_ready(self) -> bool:
        """Whether requests are taken, and there is somebody to answer them."""
        return (
            self._accepting
            and all(batcher.is_alive for batcher in self._batchers.values())
            and all(workers.num_ready for workers in self._workers)
        )

    def stop_accepting(self) -> None:
        """Take no more requests; those that are here may finish. Safe in a signal handler."""
        self._accepting = False

    def give_up(self) -> None:
        """End the requests that are still here."""
        for waiting in self._waiting:
            waiting.end(
                RefusedError(503, "the server is stopping: try again in a moment", retry_after=5)
            )

    def close(self) -> None:
        """End the work; a batch that is under way gets a second for it."""
        for batcher in self._batchers.values():
            batcher.close(1.0)
        for workers in self._workers:
            workers.unwatch()

    async def translate(
        self,
        model: ServedModel,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        alpha: float | None = None,
        nbest: int = 1,
        min_length: int = 0,
        split: bool = True,
    ) -> list[Translation]:
        """Translate texts as the Translator does, their sentences together with other callers'."""
        self._check_size(texts)
        translator, batcher = model.translator, self._batchers[model.name]
        width = translator.config.decode.beam if beam is None else beam
        if max(width, nbest) > self.limits.candidates:
            raise RefusedError(400, f"beam and nbest may be {self.limits.candidates} at most")
        settings = translator.settings(beam=beam, alpha=alpha, nbest=nbest, min_length=min_length)
        batcher.check_room()
        prepared = translator.prepare(texts, split=split)
        ticket = batcher.submit(prepared.sources, settings)
        try:
            found = await ticket.future
        finally:
            batcher.drop(ticket)
        return translator.finish(prepared, found)

    async def alignments(
        self, model: ServedModel, translations: Sequence[Translation]
    ) -> list[list[tuple[int, int]]]:
        """Return the alignment of each translation."""
        return [await _compute(model.translator.alignment, each) for each in translations]

    async def token_log_probs(
        self, model: ServedModel, translations: Sequence[Translation]
    ) -> list[list[float]]:
        """Return how probable each token of the best candidates was."""
        return await _compute(model.translator.token_log_probs, translations)

    async def attention(
        self, model: ServedModel, translation: Translation
    ) -> tuple[list[AttentionRecord], int]:
        """Return the attention of a text's sentences, and how many of them were too many."""
        parts = [part for part in translation.parts or (translation,) if part.candidates]
        sizes = model.translator.config.model
        left = self.limits.attention_weights
        records: list[AttentionRecord] = []
        for part in parts:
            s, t = len(part.source_tokens) + 1, len(part.candidates[0].tokens) + 1
            left -= sizes.num_layers * sizes.num_heads * (s * s + t * t + t * s)
            if left < 0 or max(s, t) > MOST_TOKENS + 1:
                break
            records.append(record_of(await _compute(model.translator.trace_translation, part)))
        if parts and not records:
            raise RefusedError(413, "the first sentence is too long for its attention to be shown")
        return records, len(parts) - len(records)

    async def for_client(self, request: Request, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work as long as the client does and the deadline and the server allow."""
        try:
            async with asyncio.timeout(self.limits.deadline) as scope:
                waiting = _Waiting(scope)
                self._waiting.add(waiting)
                leaving = asyncio.ensure_future(_end_with_client(request, waiting))
                try:
                    return await work
                finally:
                    self._waiting.discard(waiting)
                    leaving.cancel()
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise waiting.refusal or RefusedError(
                504,
                f"this took longer than {self.limits.deadline:g} seconds: send less at a time, "
                "or try again in a moment",
            ) from error

    def _check_size(self, texts: Sequence[str]) -> None:
        if len(texts) > self.limits.texts:
            raise too_long("texts", len(texts), self.limits.texts)
        characters = sum(map(len, texts))
        if characters > self.limits.characters:
            raise too_long("characters", characters, self.limits.characters)


async def _compute(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Have something called where models compute, between two steps; not if it is given up."""
    call = partial(function, *arguments, **options)
    return await asyncio.wrap_future(computer.submit(call))


async def _end_with_client(request: Request, waiting: _Waiting) -> None:
    """Give a request up once its client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    waiting.end(RefusedError(499, "the client has left"))
