"""Translation: a trained run as a function from text to text."""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import torch

from headwise.config import Config
from headwise.data import Subwords
from headwise.decoding import Hypothesis, SearchSettings, Watcher
from headwise.errors import RequestError
from headwise.recipes import search_as
from headwise.runs.directory import RunDirectory
from headwise.runs.model import TrainedModel, load_model
from headwise.tasks.sentences import split_sentences, split_to_fit
from headwise.tasks.torch_engine import SamplingSettings, TorchEngine
from headwise.tasks.tracing import TracedPair, traceable_ids

_STRONGEST_PENALTY = 50
"""Of the exponents people use, 1 is large; numbers beyond this one overflow."""

_HALF_PAIR = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One translation of a sentence."""

    text: str
    score: float
    """What candidates are compared by: the log-probability divided by the length penalty."""
    log_prob: float
    """The natural logarithm of its probability, the end of the sentence included."""
    tokens: tuple[str, ...]
    ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Translation:
    """What became of one text: its candidates, best first, or parts that were translated alone."""

    source: str
    candidates: tuple[Candidate, ...]
    source_tokens: tuple[str, ...] = ()
    parts: tuple["Translation", ...] = ()
    """The sentences it was cut into, if it was; then its only candidate is theirs joined."""

    @property
    def text(self) -> str:
        """The best translation."""
        return self.candidates[0].text if self.candidates else ""

    @property
    def score(self) -> float:
        """The best translation's score."""
        return self.candidates[0].score if self.candidates else 0.0


class Engine(Protocol):
    """What searches for translations: ids in, hypotheses out."""

    def translate(
        self,
        sources: list[list[int]],
        settings: SearchSettings,
        max_extra_tokens: int,
        prefixes: list[list[int]] | None = None,
        watcher: Watcher[list[Hypothesis]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Translate sentences, given as ids without their ends, to at most so many more tokens.

        With `prefixes`, each translation begins with the ids given for it. A `watcher` is told what
        is found; whether it can give up a sentence is up to the engine.
        """
        ...

    def token_log_probs(self, pairs: list[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Return the log-probability of each token of each target, then that of its end."""
        ...


class Translator:
    """Translate text with a trained run. Any number of threads may use one at a time or at once."""

    def __init__(
        self,
        engine: Engine,
        source: Subwords,
        target: Subwords,
        config: Config,
        *,
        longest_source: int,
        name: str,
    ) -> None:
        self._engine, self._source, self._target = engine, source, target
        self.config = config
        self.longest_source = longest_source
        """Tokens of the longest source that training may have seen; longer ones are cut up."""
        self.name = name
        """Where the weights come from."""

    @classmethod
    def load(
        cls,
        run: str | Path,
        *,
        checkpoint: str | None = None,
        device: str = "cpu",
        batch_size: int | None = None,
        overrides: Sequence[str] = (),
    ) -> "Translator":
        """Load a run directory: its average, else its best checkpoint, else its last.

        Overrides are [decode] settings such as "decode.stop=count", laid over the run's own.
        """
        directory = RunDirectory(Path(run))
        trained = load_model(directory, checkpoint)
        trained = replace(trained, config=search_as(trained.config, overrides))
        return cls.of_model(
            trained,
            longest_source=directory.longest_source(),
            device=device,
            batch_size=batch_size,
        )

    @classmethod
    def of_model(
        cls,
        trained: TrainedModel,
        *,
        longest_source: int,
        device: str = "cpu",
        batch_size: int | None = None,
    ) -> "Translator":
        """Translate with a model that is loaded already."""
        return cls(
            TorchEngine(trained.model.to(torch.device(device)), batch_size=batch_size),
            trained.source,
            trained.target,
            trained.config,
            longest_source=longest_source,
            name=str(trained.weights),
        )

    def settings(
        self,
        *,
        beam: int | None = None,
        alpha: float | None = None,
        nbest: int = 1,
        min_length: int = 0,
    ) -> SearchSettings:
        """Return how the run's recipe searches, with what is changed for this call."""
        decode = self.config.decode
        width = decode.beam if beam is None else beam
        if width < 1 or nbest < 1 or min_length < 0:
            raise RequestError("beam and nbest are at least 1, and min_length is at least 0")
        strength = decode.alpha if alpha is None else alpha
        if not 0 <= strength <= _STRONGEST_PENALTY:
            raise RequestError(
                f"alpha = {strength} must be a number from 0 to {_STRONGEST_PENALTY}"
            )
        width = max(width, nbest)
        return SearchSettings(
            beam=width,
            alpha=strength,
            penalty=decode.penalty,
            # A beam of one is greedy search, as everyone means by it: it ends with its first end.
            stop=decode.stop if width > 1 else "count",
            nbest=nbest,
            min_length=min_length,
        )

    def translate(
        self,
        texts: Sequence[str],
        *,
        beam: int | None = None,
        alpha: float | None = None,
        nbest: int = 1,
        min_length: int = 0,
        split: bool = False,
        sampling: SamplingSettings | None = None,
        first: int = 0,
        prefixes: Sequence[str] | None = None,
    ) -> list[Translation]:
        """Translate each text; results come in the order of the texts.

        With `split` a text is a paragraph, whose sentences are translated one by one and joined.
        So is any text that is longer than training may have seen. A text of nothing but white space
        translates to nothing. With `sampling` the candidates are drawn at random; what is drawn
        for a text depends on its number, counted from `first`. With `prefixes`, each translation
        begins with the tokens of the text given for it, which may be empty.
        """
        settings = self.settings(beam=beam, alpha=alpha, nbest=nbest, min_length=min_length)
        prepared = self.prepare(texts, split=split)
        begun = None if prefixes is None else self._begun(prepared, prefixes)
        if sampling is None:
            return self.finish(prepared, self.search(prepared.sources, settings, begun))
        if begun is not None:
            raise RequestError("a beginning can be forced when searching, not when sampling")
        drawn = self._torch_engine("sampling").sample(
            prepared.sources,
            sampling,
            self.config.decode.max_extra_tokens,
            [(first + text, part) for text, part in prepared.places],
            count=settings.nbest,
            min_length=settings.min_length,
        )
        return self.finish(prepared, drawn)

    def prepare(self, texts: Sequence[str], *, split: bool = False) -> "Prepared":
        """Cut texts into the sentences that are to be searched for: the first part of `translate`.

        With `search` and `finish`, the others, a server searches for sentences of many at once.
        """
        jobs = [self._job(text, split) for text in texts]
        parts = [
            _Part(text=part, ids=self._source.encode(part.strip()), place=(number, place))
            for number, job in enumerate(jobs)
            for place, part in enumerate(job.parts)
        ]
        return Prepared(jobs, parts)

    def search(
        self,
        sources: list[list[int]],
        settings: SearchSettings,
        prefixes: list[list[int]] | None = None,
        watcher: Watcher[list[Hypothesis]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Search for the translations of sentences, given as ids, with the ids they begin with."""
        extra = self.config.decode.max_extra_tokens
        return self._engine.translate(sources, settings, extra, prefixes, watcher)

    def finish(
        self, prepared: "Prepared", found: Sequence[Sequence[Hypothesis]]
    ) -> list[Translation]:
        """Make translations of what was found for the sources of prepared texts."""
        hypotheses = iter(found)
        translated = iter(
            [
                self._translation(part, next(hypotheses) if part.wanted else ())
                for part in prepared.parts
            ]
        )
        return [self._result(job, translated) for job in prepared.jobs]

    def token_log_probs(self, translations: Sequence[Translation]) -> list[list[float]]:
        """Return how probable each token of the best candidates was, and their ends, as logarithms.

        Of translations in parts there is none: ask for their parts.
        """
        pairs = [
            (self._source.encode(each.source.strip()), list(each.candidates[0].ids))
            for each in translations
            if each.candidates and not each.parts
        ]
        found = iter(self._engine.token_log_probs(pairs))
        return [next(found) if t.candidates and not t.parts else [] for t in translations]

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Return the log-probability of each pair's second text as a translation of its first."""
        engine = self._torch_engine("scoring")
        ids = [(self._source.encode(s), self._target.encode(t)) for s, t in pairs]
        for source, _ in ids:
            if len(source) > self.longest_source:
                raise RequestError(
                    f"a source of {len(source):,} tokens is longer than the "
                    f"{self.longest_source:,} that training may have seen"
                )
        return engine.log_probs(ids)

    def alignment(self, translation: Translation) -> list[tuple[int, int]]:
        """Return which source token each token of the best translation attends to most."""
        engine = self._torch_engine("alignment")
        if not translation.parts:
            if not translation.candidates:
                return []
            source = self._source.encode(translation.source.strip())
            return engine.alignment(source, list(translation.candidates[0].ids))
        links, source_start, target_start = [], 0, 0
        for part in translation.parts:
            links += [(s + source_start, t + target_start) for s, t in self.alignment(part)]
            source_start += len(part.source_tokens)
            target_start += len(part.candidates[0].ids) if part.candidates else 0
        return links

    def trace(
        self, source: str, target: str | None = None, *, most_tokens: int = sys.maxsize
    ) -> TracedPair:
        """Return the attention within a pair; without a target, that of the best translation.

        A source or target that is given and has more than `most_tokens` is refused, as is one
        longer than the model may have seen or would write.
        """
        engine = self._torch_engine("attention")
        longest = min(self.longest_source, most_tokens)
        source_ids = traceable_ids("source", source, self._source, longest)
        if target is None:
            (translation,) = self.translate([source])
            target, target_ids = translation.text, list(translation.candidates[0].ids)
        else:
            longest = engine.longest_output(source_ids, self.config.decode.max_extra_tokens)
            target_ids = traceable_ids("target", target, self._target, min(longest, most_tokens))
        return TracedPair(
            source=source.strip(),
            target=target.strip(),
            source_tokens=tuple(self._source.tokens(source_ids)),
            target_tokens=tuple(self._target.tokens(target_ids)),
            trace=engine.trace(source_ids, target_ids),
        )

    def fits(self, text: str) -> bool:
        """Return whether a text is short enough to be translated whole."""
        return len(self._source.encode(text)) <= self.longest_source

    def count_target_tokens(self, text: str) -> int:
        """Count the tokens of a translation, the end of the sentence included."""
        return len(self._target.encode(text)) + 1

    @property
    def can_align(self) -> bool:
        """Whether the engine shows its attention."""
        return isinstance(self._engine, TorchEngine)

    def _torch_engine(self, what: str) -> TorchEngine:
        if not isinstance(self._engine, TorchEngine):
            raise RequestError(f"{what} needs the torch engine")
        return self._engine

    def _job(self, text: str, split: bool) -> "_Job":
        if "\0" in text:
            raise RequestError("a text with a NUL character cannot be translated")
        if _HALF_PAIR.search(text):
            raise RequestError("a text with half of a surrogate pair is no Unicode text")
        if not text.strip():
            return _Job(text, [], False)
        # The number of characters first: it bounds the work of encoding what is absurdly long.
        if not split and len(text) <= 16 * self.longest_source:
            ids = self._source.encode(text)
            if len(ids) <= self.longest_source:
                return _Job(text, [text], False)
        language = self.config.data.source_language
        if split and len(text) <= 16 * self.longest_source:
            parts = split_sentences(text, language)
            fitting = [p for p in parts if len(self._source.encode(p)) <= self.longest_source]
            if len(fitting) == len(parts):
                return _Job(text, parts, len(parts) > 1)
        return _Job(text, split_to_fit(text, self._source, self.longest_source, language), True)

    def _begun(self, prepared: "Prepared", prefixes: Sequence[str]) -> list[list[int]]:
        """Return the ids that the translation of each source of the texts must begin with."""
        if len(prefixes) != len(prepared.jobs):
            raise RequestError(f"{len(prepared.jobs):,} texts but {len(prefixes):,} beginnings")
        begun = []
        for job, prefix in zip(prepared.jobs, prefixes, strict=True):
            ids = self._target.encode(prefix.strip())
            if ids and (job.is_split or not job.parts):
                raise RequestError(
                    "a text that is empty or translated in parts cannot have a forced beginning"
                )
            if len(ids) > len(self._source.encode(job.text)) + self.config.decode.max_extra_tokens:
                raise RequestError(
                    f"a beginning of {len(ids):,} tokens is longer than its translation may become"
                )
            begun.append(ids)
        return [begun[text] for text, _ in prepared.places]

    def _translation(self, part: "_Part", hypotheses: Sequence[Hypothesis]) -> Translation:
        return Translation(
            source=part.text,
            candidates=tuple(self._candidate(hypothesis) for hypothesis in hypotheses),
            source_tokens=tuple(self._source.tokens(part.ids)),
        )

    def _candidate(self, hypothesis: Hypothesis) -> Candidate:
        ids = list(hypothesis.ids)
        # Bytes may spell a line break; a translation is a line.
        text = self._target.decode(ids).replace("\r", " ").replace("\n", " ")
        return Candidate(
            text=text,
            score=hypothesis.score,
            log_prob=hypothesis.log_prob,
            tokens=tuple(self._target.tokens(ids)),
            ids=hypothesis.ids,
        )

    def _result(self, job: "_Job", translated: Iterator[Translation]) -> Translation:
        parts = [next(translated) for _ in job.parts]
        if not job.is_split:
            return parts[0] if parts else Translation(source=job.text, candidates=())
        best = [part.candidates[0] for part in parts if part.candidates]
        # What stood between the sentences stands between their translations.
        pieces = []
        for part in parts:
            lead = part.source[: len(part.source) - len(part.source.lstrip())]
            trail = part.source[len(part.source.rstrip()) :] if part.source.strip() else ""
            pieces.append(f"{lead}{part.text}{trail}")
        joined = Candidate(
            text="".join(pieces).strip(),
            score=sum(candidate.score for candidate in best) / max(1, len(best)),
            log_prob=sum(candidate.log_prob for candidate in best),
            tokens=tuple(token for candidate in best for token in candidate.tokens),
            ids=tuple(token for candidate in best for token in candidate.ids),
        )
        return Translation(
            source=job.text,
            candidates=(joined,),
            source_tokens=tuple(token for part in parts for token in part.source_tokens),
            parts=tuple(parts),
        )


@dataclass(frozen=True)
class _Job:
    """A text and the sentences it is to be translated by."""

    text: str
    parts: list[str]
    is_split: bool


@dataclass(frozen=True, kw_only=True)
class _Part:
    """A sentence of a text."""

    text: str
    ids: list[int]
    place: tuple[int, int]
    """The number of its text, and its own within that."""

    @property
    def wanted(self) -> bool:
        """Whether there is anything to translate: not where there is only white space."""
        return bool(self.text.strip())


@dataclass(frozen=True)
class Prepared:
    """Texts cut into sentences."""

    jobs: list[_Job]
    parts: list[_Part]

    @property
    def sources(self) -> list[list[int]]:
        """The ids of every sentence that is to be searched for."""
        return [part.ids for part in self.parts if part.wanted]

    @property
    def places(self) -> list[tuple[int, int]]:
        """The number of each such sentence's text, and its own within that."""
        return [part.place for part in self.parts if part.wanted]
