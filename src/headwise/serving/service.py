"""Texts in, translations out: what the API's routes share."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request
from torch import Tensor

from headwise.errors import ConfigError, RequestError
from headwise.inspect.attention import MOST_TOKENS, all_layers, layer_weights, record_json
from headwise.serving.batching import Batcher
from headwise.serving.calls import Calls
from headwise.serving.compute import computer
from headwise.serving.in_loop import InLoop
from headwise.serving.limits import Limits, RefusedError, too_long
from headwise.serving.metrics import Metrics
from headwise.serving.models import Models, ServedModel
from headwise.serving.rates import CharacterRate, Concurrency
from headwise.tasks.translation.translator import Translation, join_alignments

T = TypeVar("T")

_MOST_INLINE_CHARACTERS = 1000
_MOST_INLINE_TOKENS = 10_000
"""What is cut into sentences, and what is made into an answer, in the event loop: both take a few
milliseconds."""

_SLICE_TOKENS = 1024
"""How many source and target tokens are scored between two looks at whether to go on."""


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
        for model in models.all:
            _check_recipe(model, limits)
        in_loop = InLoop()
        self._batchers = {
            model.name: Batcher(
                model.name,
                model.search,
                limits,
                metrics,
                computer if model.workers is None else in_loop,
                default=model.translator.settings(),
                shares=model.shares,
                is_free=lambda model=model: model.is_free,  # type: ignore[misc]
            )
            for model in models.all
        }
        self._light_calls = Calls(limits, computer, is_bulk=False)
        self._bulk_calls = Calls(limits, computer, is_bulk=True)
        self._workers = {model.workers for model in models.all if model.workers is not None}
        self._rate = CharacterRate(limits.rate)
        self._concurrency = Concurrency(limits.requests)
        self._hang_seconds = max(limits.hang_seconds, limits.deadline)
        self.is_accepting = False
        self._waiting: set[_Waiting] = set()
        metrics.ready.set_function(lambda: float(self.is_ready))

    async def start(self) -> None:
        """Take requests from now on; to be called in the event loop that will bring them."""
        for workers in self._workers:
            await workers.watch(self._hang_seconds)
        for batcher in self._batchers.values():
            batcher.start()
        self._light_calls.start()
        self._bulk_calls.start()
        self.is_accepting = True

    @property
    def is_ready(self) -> bool:
        """Whether requests are taken, and some model can answer them."""
        return self.is_accepting and len(self.broken()) < len(self.models.all)

    @property
    def is_healthy(self) -> bool:
        """False where a restart would help: the compute thread or all models hang or crashed."""
        if not self.is_accepting:
            return True  # It starts, or stops.
        return (
            self._light_calls.is_alive
            and self._bulk_calls.is_alive
            and computer.stalled_seconds < self._hang_seconds
            and len(self.broken()) < len(self.models.all)
        )

    def broken(self) -> dict[str, str]:
        """Return the models that cannot answer now, with the reasons."""
        found = {}
        for model in self.models.all:
            batcher = self._batchers[model.name]
            if not batcher.is_alive:
                found[model.name] = "has crashed"
            elif model.workers is not None:
                if not model.workers.num_ready:
                    found[model.name] = "has no worker that is ready"
            elif max(computer.stalled_seconds, batcher.stalled_seconds) >= self._hang_seconds:
                found[model.name] = "hangs"
        return found

    def stop_accepting(self) -> None:
        """Take no more requests; those that are here may finish. Safe in a signal handler."""
        self.is_accepting = False

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
        self._light_calls.close(1.0)
        self._bulk_calls.close(1.0)
        for workers in self._workers:
            workers.unwatch()

    async def translate(
        self,
        model: ServedModel,
        texts: Sequence[str],
        client: str,
        *,
        beam: int | None = None,
        alpha: float | None = None,
        nbest: int = 1,
        min_length: int = 0,
        split: bool = True,
    ) -> list[Translation]:
        """Translate texts as the Translator does, their sentences together with other clients'."""
        self._check_size(texts)
        self._check_model(model)
        translator, batcher = model.translator, self._batchers[model.name]
        width = max(nbest, translator.config.decode.beam if beam is None else beam)
        if width > self.limits.candidates:
            raise RefusedError(400, f"beam and nbest may be {self.limits.candidates} at most")
        settings = translator.settings(beam=beam, alpha=alpha, nbest=nbest, min_length=min_length)
        batcher.check_room(client)
        if split:
            # Every line with text is a sentence at least, which is found out before any is cut.
            lines = sum(bool(line.strip()) for text in texts for line in text.splitlines())
            self._check_cost([translator.longest_output([0])] * lines, width)
        is_long = sum(map(len, texts)) > _MOST_INLINE_CHARACTERS
        if is_long:
            self._bulk_calls.check_room(client)
        prepare = partial(translator.prepare, texts, split=split)
        prepared = await self.between_steps(prepare, client, is_long=is_long)
        longest = [translator.longest_output(ids) for ids in prepared.sources]
        self._check_cost(longest, width)
        batcher.check_room(client, len(longest))
        self._rate.take(client, sum(map(len, texts)))
        # No output is longer than its source allows. So a larger minimum changes nothing but the
        # settings, and with them who may be searched together.
        settings = replace(settings, min_length=min(min_length, max(longest, default=0)))
        ticket = batcher.submit(prepared.sources, settings, client)
        try:
            found = await ticket.future
        finally:
            batcher.drop(ticket)
        tokens = sum(len(each.ids) for hypotheses in found for each in hypotheses)
        finish = partial(translator.finish, prepared, found)
        return await self.between_steps(finish, client, is_long=tokens > _MOST_INLINE_TOKENS)

    async def between_steps(self, call: Callable[[], T], client: str, *, is_long: bool) -> T:
        """Return what a call returns; a long one is made between two steps of the searches.

        Here it would hold the event loop, and in another thread Python's lock would hold up every
        step.
        """
        if not is_long:
            return call()
        (result,) = await self._bulk_calls.results([call], client)
        found: T = result
        return found

    async def answered(
        self, make: Callable[[], T], translations: Sequence[Translation], client: str
    ) -> T:
        """Return the answer that a call makes of translations."""
        parts = [part for each in translations for part in each.parts or (each,)]
        tokens = sum(len(each.tokens) for part in parts for each in part.candidates)
        return await self.between_steps(make, client, is_long=tokens > _MOST_INLINE_TOKENS)

    async def alignments(
        self, model: ServedModel, translations: Sequence[Translation], client: str
    ) -> list[list[tuple[int, int]]]:
        """Return the alignment of each translation."""
        heads = model.translator.config.model.num_heads
        sentences = [part for each in translations for part in each.parts or (each,)]
        for part in sentences:
            s, t = _sizes(part)
            if heads * s * t > self.limits.attention_weights:
                raise RefusedError(413, "a sentence is too long to be aligned: leave alignment out")
        calls = [partial(model.translator.alignment, part) for part in sentences]
        found = iter(await self._calls_for(sentences).results(calls, client))
        return [
            join_alignments(each.parts or (each,), [next(found) for _ in each.parts or (each,)])
            for each in translations
        ]

    async def token_log_probs(
        self, model: ServedModel, translations: Sequence[Translation], client: str
    ) -> list[list[float]]:
        """Return how probable each token of the best candidates was, sentence by sentence."""
        sentences = [part for each in translations for part in each.parts or (each,)]
        slices = _slices(sentences, _SLICE_TOKENS)
        calls = [partial(model.translator.token_log_probs, each) for each in slices]
        found = await self._calls_for(sentences).results(calls, client)
        return [log_probs for each in found for log_probs in each]

    async def attention(
        self, model: ServedModel, translation: Translation, client: str
    ) -> tuple[list[str], int]:
        """Return the attention of a text's sentences as JSON, and how many did not fit."""
        parts = [part for part in translation.parts or (translation,) if part.candidates]
        sizes = model.translator.config.model
        left, fitting = self.limits.attention_weights, []
        for part in parts:
            s, t = _sizes(part)
            left -= sizes.num_layers * sizes.num_heads * (s * s + t * t + t * s)
            if left < 0 or max(s, t) > MOST_TOKENS + 1:
                break
            fitting.append(part)
        if parts and not fitting:
            raise RefusedError(413, "the first sentence is too long for its attention to be shown")
        traces = [partial(model.translator.trace_translation, part) for part in fitting]
        records = []
        calls = self._calls_for(fitting)
        for pair in await calls.results(traces, client):
            layers = [partial(_layer_json, layer) for layer in all_layers(pair)]
            records.append(record_json(pair, await calls.results(layers, client)))
        return records, len(parts) - len(records)

    async def for_client(self, request: Request, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work as long as the client does and the deadline and the server allow."""
        try:
            with self._concurrency.one(request.state.client):
                return await self._until_deadline(request, work)
        finally:
            work.close()  # Where it was refused, it never began.

    async def _until_deadline(self, request: Request, work: Coroutine[Any, Any, T]) -> T:
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

    def _calls_for(self, sentences: Sequence[Translation]) -> Calls:
        """Return whose turns calls for some sentences have: those of short requests, or of long."""
        is_bulk = sum(len(each.source) for each in sentences) > _MOST_INLINE_CHARACTERS
        return self._bulk_calls if is_bulk else self._light_calls

    def _check_cost(self, longest: Sequence[int], width: int) -> None:
        """Refuse sentences, given by their longest outputs, that may take too many tokens."""
        cost = width * sum(longest)
        if cost > self.limits.cost:
            raise RefusedError(
                400,
                f"{len(longest):,} sentences with a beam of {width} may take {cost:,} tokens, more "
                f"than {self.limits.cost:,}: send fewer sentences at a time, or a smaller beam",
            )

    def _check_model(self, model: ServedModel) -> None:
        if reason := self.broken().get(model.name):
            raise RefusedError(
                503, f"the model {model.name} {reason}: try again in a moment", retry_after=5
            )

    def _check_size(self, texts: Sequence[str]) -> None:
        if len(texts) > self.limits.texts:
            raise too_long("texts", len(texts), self.limits.texts)
        characters = sum(map(len, texts))
        if characters > self.limits.characters:
            raise too_long("characters", characters, self.limits.characters)


def _check_recipe(model: ServedModel, limits: Limits) -> None:
    """Raise ConfigError for a run that would be refused at every request by its own recipe."""
    translator = model.translator
    try:
        settings = translator.settings()
    except RequestError as error:
        raise ConfigError(f"{model.name}: its recipe cannot be served: {error}") from error
    if settings.beam > limits.candidates:
        raise ConfigError(
            f"{model.name}: its decode.beam is {settings.beam}, and at most {limits.candidates} "
            "is served: set it in the run's config.toml"
        )
    longest = min(translator.longest_source, limits.characters)
    cost = settings.beam * translator.longest_output([0] * longest)
    if cost > limits.cost:
        raise ConfigError(
            f"{model.name}: its longest sentence may take {cost:,} tokens, and {limits.cost:,} is "
            "the most that is served: give a larger --max-cost, or set decode.max_extra_tokens or "
            "decode.beam in the run's config.toml"
        )


def _sizes(sentence: Translation) -> tuple[int, int]:
    """Return the tokens of a sentence and of its best translation, with their ends."""
    target = sentence.candidates[0].tokens if sentence.candidates else ()
    return len(sentence.source_tokens) + 1, len(target) + 1


def _slices(sentences: Sequence[Translation], tokens: int) -> Iterator[list[Translation]]:
    """Cut sentences into what has about so many tokens each."""
    slice_: list[Translation] = []
    size = 0
    for sentence in sentences:
        more = sum(_sizes(sentence))
        if slice_ and size + more > tokens:
            yield slice_
            slice_, size = [], 0
        slice_.append(sentence)
        size += more
    if slice_:
        yield slice_


def _layer_json(layer: Tensor) -> str:
    return json.dumps(layer_weights(layer), separators=(",", ":"))


async def _end_with_client(request: Request, waiting: _Waiting) -> None:
    """Give a request up once its client has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    waiting.end(RefusedError(499, "the client has left"))
