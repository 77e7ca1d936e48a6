"""A trained language model as a function from a prompt to what follows it."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from headwise.config import (
    LONGEST_CONTINUATION,
    STRONGEST_PENALTY,
    WIDEST_BEAM,
    LanguageModelConfig,
)
from headwise.decoding import Drawing
from headwise.errors import CheckpointError, HeadwiseError, RequestError
from headwise.model import LanguageModel, Trace, build_model
from headwise.recipes import search_as
from headwise.runs.device import choose_device
from headwise.runs.directory import RunDirectory
from headwise.runs.model import load_trained
from headwise.tasks.language_model.context import ContextModel
from headwise.tasks.language_model.drafts import Draft, Drafts
from headwise.tasks.language_model.generation import (
    Continuation,
    GenerationSettings,
    draw,
    draw_steps,
    search,
)
from headwise.tasks.language_model.scoring import TextScore, score_tokens
from headwise.tasks.language_model.text_tokenizer import TextStream, TextTokenizer
from headwise.tasks.table import require_task
from headwise.tasks.tracing import TracedPair

_MOST_ROWS = 64
"""Continuations that are computed at a time."""

_MOST_SAMPLES = 100_000
"""Of one prompt; they are all kept in memory."""

_HALF_PAIR = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One continuation of a prompt."""

    text: str
    """What follows the prompt."""
    log_prob: float
    """The natural logarithm of its probability, given the prompt."""
    is_ended: bool
    """Whether the document ended; otherwise all tokens that were allowed are there."""
    ids: tuple[int, ...]
    tokens: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A prompt and its continuations."""

    prompt: str
    samples: tuple[Sample, ...]

    @property
    def text(self) -> str:
        """The first continuation."""
        return self.samples[0].text


class Generator:
    """Continue text with a trained run."""

    def __init__(
        self,
        model: LanguageModel,
        tokenizer: TextTokenizer,
        config: LanguageModelConfig,
        *,
        name: str,
    ) -> None:
        self.model, self.tokenizer, self.config = model.eval(), tokenizer, config
        self.name = name
        """Where the weights come from."""
        self._context_model = ContextModel(self.model, config.data.context)

    @classmethod
    def load(
        cls,
        run: str | Path,
        *,
        checkpoint: str | None = None,
        device: str = "cpu",
        overrides: Sequence[str] = (),
    ) -> "Generator":
        """Load a run directory: its average, else its best checkpoint, else its last.

        Overrides are [decode] settings such as "decode.top_k=40", laid over the run's own.
        """
        directory = RunDirectory(Path(run))
        config: LanguageModelConfig = directory.config()  # type: ignore[assignment]
        require_task("language-model", config, directory.path)
        try:
            tokenizer = TextTokenizer.load(directory.folder)
            vocab = tokenizer.vocab
        except HeadwiseError as error:
            raise CheckpointError(f"{directory.path}: {error}") from error
        model, weights = load_trained(
            directory,
            checkpoint,
            parameters=config.model.count_parameters(vocab, "decoder"),
            build=lambda: build_model(config.model, vocab, "decoder"),
        )
        changed: LanguageModelConfig = search_as(config, overrides)  # type: ignore[arg-type,assignment]
        return cls(model.to(choose_device(device)), tokenizer, changed, name=str(weights))

    def settings(
        self,
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 1,
        beam: int | None = None,
        count: int = 1,
        max_tokens: int | None = None,
        stop_at_end: bool = True,
    ) -> GenerationSettings:
        """Return how the run's recipe generates, with what is changed for this call."""
        decode = self.config.decode
        settings = GenerationSettings(
            temperature=decode.temperature if temperature is None else temperature,
            top_k=decode.top_k if top_k is None else top_k,
            top_p=decode.top_p if top_p is None else top_p,
            seed=seed,
            beam=decode.beam if beam is None else beam,
            alpha=decode.alpha,
            count=count,
            max_tokens=decode.max_tokens if max_tokens is None else max_tokens,
            stop_at_end=stop_at_end,
        )
        most = settings.beam or _MOST_SAMPLES
        for name, holds, expected in (
            ("temperature", 0 <= settings.temperature < float("inf"), "a number, 0 or more"),
            ("top_k", settings.top_k >= 0, "0 or more"),
            ("top_p", 0 < settings.top_p <= 1, "above 0 and at most 1"),
            ("beam", 0 <= settings.beam <= WIDEST_BEAM, f"from 0 to {WIDEST_BEAM:,}"),
            (
                "count",
                1 <= count <= most,
                f"from 1 to {most:,}" + (", the beam" if settings.beam else ""),
            ),
            ("alpha", 0 <= settings.alpha <= STRONGEST_PENALTY, f"at most {STRONGEST_PENALTY}"),
            (
                "max_tokens",
                1 <= settings.max_tokens <= LONGEST_CONTINUATION,
                f"from 1 to {LONGEST_CONTINUATION:,}",
            ),
        ):
            if not holds:
                raise RequestError(f"{name} = {getattr(settings, name)} must be {expected}")
        return settings

    def generate(
        self,
        prompt: str,
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 1,
        beam: int | None = None,
        count: int = 1,
        max_tokens: int | None = None,
        stop_at_end: bool = True,
    ) -> Generation:
        """Continue a prompt in `count` ways; an empty one begins a document.

        With `temperature` 0 the most probable token is taken each time. With `beam`, the best
        continuations that a beam search finds are returned, best first. What is drawn depends on
        the seed alone. A continuation ends with its document, unless `stop_at_end` is false, and
        after `max_tokens` tokens.
        """
        settings = self.settings(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            beam=beam,
            count=count,
            max_tokens=max_tokens,
            stop_at_end=stop_at_end,
        )
        (generation,) = self.generate_all([prompt], settings)
        return generation

    def generate_all(
        self,
        prompts: Sequence[str],
        settings: GenerationSettings | None = None,
        *,
        first: int = 0,
    ) -> list[Generation]:
        """Continue several prompts at once.

        `settings` are those that the method of this name returns. What is drawn depends on the
        seed, the number of the prompt, counted from `first`, and the number of the draw.
        """
        settings = self.settings() if settings is None else settings
        count = settings.count
        ids = [self._prompt_ids(prompt) for prompt in prompts]
        found: list[list[Continuation]] = []
        size = max(1, _MOST_ROWS // (settings.beam or count))
        with torch.inference_mode():
            for start in range(0, len(ids), size):
                part = ids[start : start + size]
                if settings.beam:
                    found += search(self._context_model, part, settings)
                    continue
                keys: list[tuple[int, ...]] = [
                    (settings.seed, first + start + number, each)
                    for number in range(len(part))
                    for each in range(count)
                ]
                drawn = draw(self._context_model, part, keys, settings)
                found += [drawn[n : n + count] for n in range(0, len(drawn), count)]
        return [
            Generation(
                prompt=prompt, samples=tuple(self._sample(prompt_ids, each) for each in samples)
            )
            for prompt, prompt_ids, samples in zip(prompts, ids, found, strict=True)
        ]

    def stream(
        self,
        prompt: str,
        *,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 1,
        max_tokens: int | None = None,
        stop_at_end: bool = True,
    ) -> Iterator[str]:
        """Yield what `generate` would return for this prompt, in pieces as they come."""
        settings = self.settings(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            beam=0,
            max_tokens=max_tokens,
            stop_at_end=stop_at_end,
        )
        ids = self._prompt_ids(prompt)
        return self._streamed(ids, settings)

    def drafts(
        self,
        prompts: Sequence[str],
        settings: GenerationSettings,
        *,
        stop: Sequence[str] = (),
        num_best: int | None = None,
    ) -> list[Draft]:
        """Return what `generate_all` would draw, to be written with others': see `writing`.

        There are `count` adjacent ones for each prompt. They end before any of the `stop`
        sequences. With `num_best` they have tokens, with so many of the most probable for each.
        """
        assert settings.beam == 0, "a beam search cannot be joined"
        assert settings.stop_at_end, "a draft ends with its document"
        ids = [tuple(self._prompt_ids(prompt)) for prompt in prompts]
        return [
            Draft(
                prompt=prompt,
                drawing=Drawing(
                    key=(settings.seed, number, each),
                    limit=settings.max_tokens,
                    temperature=settings.temperature,
                    top_k=settings.top_k,
                    top_p=settings.top_p,
                    num_best=num_best or 0,
                ),
                stop=tuple(stop),
                has_tokens=num_best is not None,
            )
            for number, prompt in enumerate(ids)
            for each in range(settings.count)
        ]

    def writing(self) -> Drafts:
        """Begin to write drafts, which can be added at any time, with no others yet."""
        return Drafts(self._context_model, self.tokenizer)

    def score(self, text: str) -> TextScore:
        """Return how well a text, as one document, is predicted, over a sliding window."""
        ids = [*self._prompt_ids(text), self.model.vocab.eos]
        score = TextScore(words=len(text.split()), num_bytes=max(1, len(text.encode())))
        for _ in score_tokens(self.model, [ids], self.config.data.context, score):
            pass
        return score

    def trace(self, source: str, target: str | None = None, *, most_tokens: int) -> TracedPair:
        """Return the attention within a text, which the decoder reads from its start."""
        if target is not None:
            raise RequestError("a language model has no target: give the text alone")
        longest = min(most_tokens, self.config.data.context - 1)
        ids = self._prompt_ids(source)
        if not source.strip() or len(ids) > longest + 1:
            raise RequestError(f"give a text of at least 1 and at most {longest:,} tokens")
        trace = Trace()
        with torch.inference_mode():
            self.model.hidden(torch.tensor([ids], device=self.model.embedding.weight.device), trace)
        return TracedPair(
            source="",
            target=source,
            source_tokens=(),
            target_tokens=tuple(self.tokenizer.subwords.tokens(ids[1:])),
            trace=trace,
        )

    def perplexity(self, text: str) -> float:
        """Return the perplexity of a token of a text, the end of the document included."""
        return self.score(text).perplexity

    def _streamed(self, ids: list[int], settings: GenerationSettings) -> Iterator[str]:
        stream = TextStream(self.tokenizer, ids)
        for drawn in draw_steps(self._context_model, [ids], [(settings.seed, 0, 0)], settings):
            ((_, token, _),) = drawn
            if token != self.model.vocab.eos and (piece := stream.add(token)):
                yield piece
        if rest := stream.finish():
            yield rest

    def _prompt_ids(self, text: str) -> list[int]:
        if "\0" in text:
            raise RequestError("a text with a NUL character cannot be read")
        if _HALF_PAIR.search(text):
            raise RequestError("a text with half of a surrogate pair is no Unicode text")
        return [self.model.vocab.start, *self.tokenizer.encode(text)]

    def _sample(self, prompt: list[int], found: Continuation) -> Sample:
        stream = TextStream(self.tokenizer, prompt)
        text = "".join([*map(stream.add, found.ids), stream.finish()])
        return Sample(
            text=text,
            log_prob=found.log_prob,
            is_ended=found.is_ended,
            ids=found.ids,
            tokens=tuple(self.tokenizer.subwords.tokens(list(found.ids))),
        )
