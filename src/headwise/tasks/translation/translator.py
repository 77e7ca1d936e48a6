"""Translation: a trained run as a function from text to text."""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headwise.config import STRONGEST_PENALTY, WIDEST_BEAM, Config
from headwise.data import Subwords
from headwise.decoding import Hypothesis, SamplingSettings, SearchSettings
from headwise.errors import RequestError
from headwise.model import Seq2Seq
from headwise.recipes import search_as
from headwise.runs.device import choose_device
from headwise.runs.directory import RunDirectory
from headwise.tasks.tracing import TracedPair, traceable_ids
from headwise.tasks.translation.cutting import CutTexts, Job, Part, cut_texts
from headwise.tasks.translation.engine import (
    Aligns,
    Engine,
    OngoingSearch,
    Samples,
    Scores,
)
from headwise.tasks.translation.torch_engine import TorchEngine
from headwise.tasks.translation.trained import TrainedModel, load_model

_LONGEST_MINIMUM = 1_000_000
"""More than any output has; far larger numbers overflow tensors."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One translation of a sentence."""

    text: str
    score: float
    """The log-probability divided by the length penalty; it ranks the candidates."""
    log_prob: float
    """The natural logarithm of its probability, eos included."""
    tokens: tuple[str, ...]
    ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Translation:
    """The translation of one text: its candidates, best first, or its parts."""

    source: str
    candidates: tuple[Candidate, ...]
    source_tokens: tuple[str, ...] = ()
    parts: tuple["Translation", ...] = ()
    """Its sentences, if it was split; then its only candidate is their joined translations."""

    @property
    def text(self) -> str:
        """The best translation."""
        return self.candidates[0].text if self.candidates else ""

    @property
    def score(self) -> float:
        """The best translation's score."""
        return self.candidates[0].score if self.candidates else 0.0


class Translator:
    """Translate text with a trained run. It is thread-safe."""

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
        """Tokens of the longest source that training may have seen; longer ones are split."""
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

        Overrides are [decode] settings such as "decode.stop=count"; they replace the run's own.
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
        """Translate with a loaded model."""
        return cls(
            TorchEngine(trained.model.to(choose_device(device)), batch_size=batch_size),
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
        """Return the run's search settings, with this call's changes."""
        decode = self.config.decode
        width = decode.beam if beam is None else beam
        if not (1 <= width <= WIDEST_BEAM and 1 <= nbest <= WIDEST_BEAM):
            raise RequestError(f"beam and nbest are at least 1 and at most {WIDEST_BEAM:,}")
        if not 0 <= min_length <= _LONGEST_MINIMUM:
            raise RequestError(f"min_length is at least 0 and at most {_LONGEST_MINIMUM:,}")
        strength = decode.alpha if alpha is None else alpha
        if not 0 <= strength <= STRONGEST_PENALTY:
            raise RequestError(f"alpha = {strength} must be a number from 0 to {STRONGEST_PENALTY}")
        width = max(width, nbest)
        return SearchSettings(
            beam=width,
            alpha=strength,
            penalty=decode.penalty,
            # A beam of one is greedy search: it stops at the first eos.
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

        With `split`, a text is a paragraph, whose sentences are translated one by one and joined;
        so is any text that is longer than training may have seen. A text of white space only
        translates to nothing. With `sampling`, candidates are drawn at random, keyed by the text's
        number, counted from `first`. With `prefixes`, each translation begins with the tokens of
        its prefix, which may be empty.
        """
        settings = self.settings(beam=beam, alpha=alpha, nbest=nbest, min_length=min_length)
        cut = self.cut(texts, split=split)
        prefix_ids = None if prefixes is None else self._prefix_ids(cut, prefixes)
        if sampling is None:
            extra = self.config.decode.max_extra_tokens
            found = self._engine.translate(cut.sources, settings, extra, prefix_ids)
            return self.finish(cut, found)
        if prefix_ids is not None:
            raise RequestError("a beginning can be forced when searching, not when sampling")
        if not isinstance(self._engine, Samples):
            raise RequestError("sampling needs the torch engine")
        drawn = self._engine.sample(
            cut.sources,
            sampling,
            self.config.decode.max_extra_tokens,
            [(first + text, part) for text, part in cut.places],
            count=settings.nbest,
            min_length=settings.min_length,
        )
        return self.finish(cut, drawn)

    def cut(self, texts: Sequence[str], *, split: bool = False) -> CutTexts:
        """Cut texts into sentences to translate: the first part of `translate`.

        With `search` and `finish`, a server does the same for the sentences of many requests.
        """
        return cut_texts(
            texts,
            self._source,
            longest=self.longest_source,
            language=self.config.data.source_language,
            split=split,
        )

    def search(
        self, settings: SearchSettings, on_ready: Callable[[], None] = lambda: None
    ) -> OngoingSearch:
        """Start a search that sentences, given as ids, can be added to while it runs.

        A search that computes in the background calls `on_ready`, from any thread.
        """
        return self._engine.search(settings, self.config.decode.max_extra_tokens, on_ready)

    def finish(self, cut: CutTexts, found: Sequence[Sequence[Hypothesis]]) -> list[Translation]:
        """Make translations from the hypotheses of texts that `cut` has cut."""
        hypotheses = iter(found)
        return [self._result(job, hypotheses) for job in cut.jobs]

    def token_log_probs(self, translations: Sequence[Translation]) -> list[list[float]]:
        """Return the log-probability of each token of the best candidates, and of their eos.

        It is empty for a translation in parts: pass the parts.
        """
        pairs = [
            (self._source.encode(each.source.strip()), list(each.candidates[0].ids))
            for each in translations
            if each.candidates and not each.parts
        ]
        found = iter(self._scoring().token_log_probs(pairs))
        return [next(found) if t.candidates and not t.parts else [] for t in translations]

    def score(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Return the log-probability of each pair's second text as a translation of its first."""
        engine = self._scoring()
        ids = [(self._source.encode(s), self._target.encode(t)) for s, t in pairs]
        for source, _ in ids:
            if len(source) > self.longest_source:
                raise RequestError(
                    f"a source of {len(source):,} tokens is longer than the "
                    f"{self.longest_source:,} that training may have seen"
                )
        return [math.fsum(tokens) for tokens in engine.token_log_probs(ids)]

    def alignment(self, translation: Translation) -> list[tuple[int, int]]:
        """Return which source token each token of the best translation attends to most."""
        engine = self._attending("alignment")
        if not translation.parts:
            if not translation.candidates:
                return []
            source = self._source.encode(translation.source.strip())
            return engine.alignment(source, list(translation.candidates[0].ids))
        return join_alignments(translation.parts, list(map(self.alignment, translation.parts)))

    def trace(
        self, source: str, target: str | None = None, *, most_tokens: int = sys.maxsize
    ) -> TracedPair:
        """Return the attention within a pair; without a target, that of the best translation.

        A given source or target of more than `most_tokens` is refused, as is one longer than the
        model may have seen or would write.
        """
        self._attending("attention")  # Before anything is computed.
        longest = min(self.longest_source, most_tokens)
        source_ids = traceable_ids("source", source, self._source, longest)
        if target is None:
            (translation,) = self.translate([source])
            target, target_ids = translation.text, list(translation.candidates[0].ids)
        else:
            longest = self.longest_output(source_ids)
            target_ids = traceable_ids("target", target, self._target, min(longest, most_tokens))
        return self._traced(source, source_ids, target, target_ids)

    def trace_translation(self, translation: Translation) -> TracedPair:
        """Return the attention of a sentence and its best translation."""
        source_ids = self._source.encode(translation.source.strip())
        best = translation.candidates[0]
        return self._traced(translation.source, source_ids, best.text, list(best.ids))

    def _traced(
        self, source: str, source_ids: list[int], target: str, target_ids: list[int]
    ) -> TracedPair:
        return TracedPair(
            source=source.strip(),
            target=target.strip(),
            source_tokens=tuple(self._source.tokens(source_ids)),
            target_tokens=tuple(self._target.tokens(target_ids)),
            trace=self._attending("attention").trace(source_ids, target_ids),
        )

    @property
    def is_free(self) -> bool:
        """Whether a new search would be computed at once, without waiting for another."""
        return self._engine.is_free

    def longest_output(self, source: Sequence[int]) -> int:
        """Return how many tokens a source's translation may have."""
        return self.config.model.fitting(len(source) + self.config.decode.max_extra_tokens)

    def fits(self, text: str) -> bool:
        """Return whether a text is short enough to be translated without splitting."""
        return len(self._source.encode(text)) <= self.longest_source

    def count_target_tokens(self, text: str) -> int:
        """Count the tokens of a translation, eos included."""
        return len(self._target.encode(text)) + 1

    @property
    def model(self) -> Seq2Seq:
        """The torch model, to be sent to another process."""
        if not isinstance(self._engine, TorchEngine):
            raise RequestError("another process needs the torch engine")
        return self._engine.model

    @property
    def can_score(self) -> bool:
        """Whether the engine computes the probabilities of given translations."""
        return isinstance(self._engine, Scores)

    @property
    def can_align(self) -> bool:
        """Whether the model has attention, and the engine shows it."""
        return isinstance(self._engine, Aligns) and self._engine.attends

    def _scoring(self) -> Scores:
        if not isinstance(self._engine, Scores):
            raise RequestError("scoring needs an engine that computes probabilities: use torch")
        return self._engine

    def _attending(self, what: str) -> Aligns:
        if not isinstance(self._engine, Aligns):
            raise RequestError(f"{what} needs the torch engine")
        if not self._engine.attends:
            raise RequestError(f"{what}: the model has none (model.attention = 'none')")
        return self._engine

    def _prefix_ids(self, cut: CutTexts, prefixes: Sequence[str]) -> list[list[int]]:
        """Return the ids of each source's prefix."""
        if len(prefixes) != len(cut.jobs):
            raise RequestError(f"{len(cut.jobs):,} texts but {len(prefixes):,} beginnings")
        found = []
        for job, prefix in zip(cut.jobs, prefixes, strict=True):
            ids = self._target.encode(prefix.strip())
            if ids and (job.is_split or not job.parts):
                raise RequestError(
                    "a text that is empty or translated in parts cannot have a forced beginning"
                )
            longest = len(self._source.encode(job.text)) + self.config.decode.max_extra_tokens
            if len(ids) > self.config.model.fitting(longest):
                raise RequestError(
                    f"a beginning of {len(ids):,} tokens is longer than its translation may become"
                )
            found.append(ids)
        return [found[text] for text, _ in cut.places]

    def _translation(self, part: Part, hypotheses: Sequence[Hypothesis]) -> Translation:
        return Translation(
            source=part.text,
            candidates=tuple(self._candidate(hypothesis) for hypothesis in hypotheses),
            source_tokens=tuple(self._source.tokens(part.ids)),
        )

    def _candidate(self, hypothesis: Hypothesis) -> Candidate:
        ids = list(hypothesis.ids)
        # Byte tokens may form a line break; a translation is one line.
        text = self._target.decode(ids).replace("\r", " ").replace("\n", " ")
        return Candidate(
            text=text,
            score=hypothesis.score,
            log_prob=hypothesis.log_prob,
            tokens=tuple(self._target.tokens(ids)),
            ids=hypothesis.ids,
        )

    def _result(self, job: Job, found: Iterator[Sequence[Hypothesis]]) -> Translation:
        parts = [self._translation(part, next(found) if part.wanted else ()) for part in job.parts]
        if not job.is_split:
            return parts[0] if parts else Translation(source=job.text, candidates=())
        best = [part.candidates[0] for part in parts if part.candidates]
        joined = Candidate(
            text=join(parts),
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


def join_alignments(
    parts: Sequence[Translation], links: Sequence[list[tuple[int, int]]]
) -> list[tuple[int, int]]:
    """Join the alignments of a text's sentences."""
    joined, source_start, target_start = [], 0, 0
    for part, pairs in zip(parts, links, strict=True):
        joined += [(s + source_start, t + target_start) for s, t in pairs]
        source_start += len(part.source_tokens)
        target_start += len(part.candidates[0].ids) if part.candidates else 0
    return joined


def join(parts: Sequence[Translation], rank: int = 0) -> str:
    """Join the translations of a text's sentences: the best of each, or those of another rank.

    White space between the sentences is kept, line breaks included.
    """
    pieces = []
    for part in parts:
        lead = part.source[: len(part.source) - len(part.source.lstrip())]
        trail = part.source[len(part.source.rstrip()) :] if part.source.strip() else ""
        last = len(part.candidates) - 1
        text = part.candidates[min(rank, last)].text if part.candidates else ""
        pieces.append(f"{lead}{text}{trail}")
    return "".join(pieces).strip(" \t")
