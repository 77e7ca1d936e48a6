"""Translate for clients, with alignment, token scores and attention, within the limits."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from torch import Tensor

from headwise.errors import ConfigError, RequestError
from headwise.inspect.attention import MOST_TOKENS, all_layers, layer_weights, record_json
from headwise.serving.calls import Calls
from headwise.serving.limits import Limits, RefusedError
from headwise.serving.models import ServedModel
from headwise.serving.service import Service
from headwise.tasks.translation.translator import Translation, join_alignments

T = TypeVar("T")

_MOST_INLINE_CHARACTERS = 1000
_MOST_INLINE_TOKENS = 10_000
"""What is split into sentences, and what is made into a response, in the event loop: both take a
few milliseconds."""

_SLICE_TOKENS = 1024
"""How many source and target tokens are scored in one call."""


def check_recipe(model: ServedModel, limits: Limits) -> None:
    """Raise ConfigError for a run whose own recipe exceeds the limits of every request."""
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
            f"{model.name}: its longest sentence may take {cost:,} tokens, and at most "
            f"{limits.cost:,} are served: give a larger --max-cost, or set "
            "decode.max_extra_tokens or decode.beam in the run's config.toml"
        )


async def translate(
    service: Service,
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
    """Translate texts as the Translator does, batched with other clients' sentences."""
    service.check_size(texts)
    translator, batcher, limits = model.translator, service.batcher(model), service.limits
    width = max(nbest, translator.config.decode.beam if beam is None else beam)
    if width > limits.candidates:
        raise RefusedError(400, f"beam and nbest may be {limits.candidates} at most")
    settings = translator.settings(beam=beam, alpha=alpha, nbest=nbest, min_length=min_length)
    batcher.check_room(client)
    if split:
        # Every line with text has at least one sentence: check the cost before splitting.
        lines = sum(bool(line.strip()) for text in texts for line in text.splitlines())
        _check_cost([translator.longest_output([0])] * lines, width, limits)
    is_long = sum(map(len, texts)) > _MOST_INLINE_CHARACTERS
    if is_long:
        service.bulk_calls.check_room(client)
    cut_texts = partial(translator.cut, texts, split=split)
    cut = await service.between_steps(cut_texts, client, is_long=is_long)
    longest = [translator.longest_output(ids) for ids in cut.sources]
    _check_cost(longest, width, limits)
    batcher.check_room(client, len(longest))
    service.rate.take(client, sum(map(len, texts)))
    # No output is longer than its source allows. So a larger minimum has no effect but to give
    # this request other settings, and thereby a search of its own.
    settings = replace(settings, min_length=min(min_length, max(longest, default=0)))
    ticket = batcher.submit(cut.sources, settings, client)
    try:
        found = await ticket.future
    finally:
        batcher.drop(ticket)
    tokens = sum(len(each.ids) for hypotheses in found for each in hypotheses)
    finish = partial(translator.finish, cut, found)
    return await service.between_steps(finish, client, is_long=tokens > _MOST_INLINE_TOKENS)


async def make_response(
    service: Service, make: Callable[[], T], translations: Sequence[Translation], client: str
) -> T:
    """Return the response that `make` makes of translations."""
    parts = _sentences(translations)
    tokens = sum(len(each.tokens) for part in parts for each in part.candidates)
    return await service.between_steps(make, client, is_long=tokens > _MOST_INLINE_TOKENS)


async def alignments(
    service: Service, model: ServedModel, translations: Sequence[Translation], client: str
) -> list[list[tuple[int, int]]]:
    """Return the alignment of each translation."""
    heads = model.translator.config.model.num_heads
    sentences = _sentences(translations)
    for part in sentences:
        s, t = _sizes(part)
        if heads * s * t > service.limits.attention_weights:
            raise RefusedError(413, "a sentence is too long to be aligned: leave alignment out")
    calls = [partial(model.translator.alignment, part) for part in sentences]
    found = iter(await _calls_for(service, sentences).results(calls, client))
    return [
        join_alignments(each.parts or (each,), [next(found) for _ in each.parts or (each,)])
        for each in translations
    ]


async def token_log_probs(
    service: Service, model: ServedModel, translations: Sequence[Translation], client: str
) -> list[list[float]]:
    """Return the log-probability of each token of the best candidates, by sentence."""
    sentences = _sentences(translations)
    slices = _slices(sentences, _SLICE_TOKENS)
    calls = [partial(model.translator.token_log_probs, each) for each in slices]
    found = await _calls_for(service, sentences).results(calls, client)
    return [log_probs for each in found for log_probs in each]


async def attention(
    service: Service, model: ServedModel, translation: Translation, client: str
) -> tuple[list[str], int]:
    """Return the attention of a text's sentences as JSON, and how many did not fit."""
    parts = [part for part in _sentences([translation]) if part.candidates]
    sizes = model.translator.config.model
    left, fitting = service.limits.attention_weights, []
    for part in parts:
        s, t = _sizes(part)
        left -= sizes.count_attention_weights(s, t)
        if left < 0 or max(s, t) > MOST_TOKENS + 1:
            break
        fitting.append(part)
    if parts and not fitting:
        raise RefusedError(413, "the first sentence is too long for its attention to be shown")
    traces = [partial(model.translator.trace_translation, part) for part in fitting]
    records = []
    calls = _calls_for(service, fitting)
    for pair in await calls.results(traces, client):
        layers = [partial(_layer_json, layer) for layer in all_layers(pair)]
        records.append(record_json(pair, await calls.results(layers, client)))
    return records, len(parts) - len(records)


def _check_cost(longest: Sequence[int], width: int, limits: Limits) -> None:
    """Refuse sentences, given by their longest outputs, that may generate too many tokens."""
    cost = width * sum(longest)
    if cost > limits.cost:
        raise RefusedError(
            400,
            f"{len(longest):,} sentences with a beam of {width} may take {cost:,} tokens, more "
            f"than {limits.cost:,}: send fewer sentences at a time, or a smaller beam",
        )


def _calls_for(service: Service, sentences: Sequence[Translation]) -> Calls:
    """Return the queue for calls on some sentences: that of short requests, or of long ones."""
    is_bulk = sum(len(each.source) for each in sentences) > _MOST_INLINE_CHARACTERS
    return service.bulk_calls if is_bulk else service.light_calls


def _sentences(translations: Sequence[Translation]) -> list[Translation]:
    """Return the sentences of texts; a text that was not split is a single one."""
    return [part for each in translations for part in each.parts or (each,)]


def _sizes(sentence: Translation) -> tuple[int, int]:
    """Return the tokens of a sentence and of its best translation, with their ends."""
    target = sentence.candidates[0].tokens if sentence.candidates else ()
    return len(sentence.source_tokens) + 1, len(target) + 1


def _slices(sentences: Sequence[Translation], tokens: int) -> Iterator[list[Translation]]:
    """Divide sentences into slices of about so many tokens each."""
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
