"""Translate with CTranslate2, as close to our own search as possible.

The remaining differences are in docs/decisions/0009-ctranslate2.md.
"""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from headwise.config import Vocab
from headwise.decoding import Hypothesis, length_penalty
from headwise.errors import CheckpointError, RequestError
from headwise.files import Folder
from headwise.interop.ctranslate2.files import (
    MOST_MODEL_BYTES,
    library,
    read_sealed,
    read_vocabularies,
)
from headwise.machine import num_cores

_BATCH_TOKENS = 1024
"""Source tokens of one batch: larger batches were not faster with the paper's beam."""


@dataclass(frozen=True, kw_only=True)
class _Search:
    """The settings of one call."""

    beam: int
    alpha: float
    penalty: Literal["gnmt", "power"]
    nbest: int
    max_extra_tokens: int
    min_length: int
    shares: int
    """How many workers to divide the sentences among."""

    def __post_init__(self) -> None:
        for name, least in (("beam", 1), ("nbest", 1), ("max_extra_tokens", 0), ("min_length", 0)):
            if getattr(self, name) < least:
                raise RequestError(f"{name} = {getattr(self, name)} must be {least} or more")
        if not 0 <= self.alpha < math.inf:
            raise RequestError(f"alpha = {self.alpha} must be 0 or more")
        if self.nbest > self.beam:
            raise RequestError(f"nbest = {self.nbest} must be at most beam = {self.beam}")

    @property
    def wanted(self) -> int:
        """How many hypotheses to request: the whole beam, since we rank by another penalty.

        Without a penalty there is nothing to rank, and the search ends sooner with fewer.
        """
        return self.beam if self.alpha else self.nbest

    @property
    def shows_steps(self) -> bool:
        """Whether the requested hypotheses show how many steps the search took.

        The search ends when `beam` hypotheses have finished. If all of them are returned, the one
        that finished last is among them.
        """
        # The minimum length is one for the whole call, so it must not exceed any source's limit.
        return self.wanted == self.beam and self.min_length <= self.max_extra_tokens

    def score(self, log_prob: float, length: int) -> float:
        """Return the score that ranks a hypothesis; its length includes eos."""
        return log_prob / length_penalty(float(length), self.alpha, self.penalty)


@dataclass
class _Found:
    """The hypotheses of one sentence: tokens, and log-probabilities where they are exact."""

    tokens: list[list[str]] = field(default_factory=list)
    log_probs: list[float | None] = field(default_factory=list)


class CTranslate2Engine:
    """An exported model that translates ids to ids. It is thread-safe."""

    def __init__(
        self, translator: Any, source: Sequence[str], target: Sequence[str], positions: int
    ) -> None:
        """Wrap a `ctranslate2.Translator`; `load` creates one."""
        self.positions = positions
        """The longest sequence, end token included, that the model can take."""
        self._translator = translator
        self._source = source
        self._target = target
        self._ids = {token: number for number, token in enumerate(target)}
        self._end = target[Vocab.eos]
        self._forbidden = frozenset((target[Vocab.pad], target[Vocab.bos]))

    @classmethod
    def load(
        cls,
        directory: Path | Folder,
        *,
        threads: int | None = None,
        workers: int | None = None,
        most_bytes: int = MOST_MODEL_BYTES,
    ) -> Self:
        """Load an export of `headwise export`, after checking that it is undamaged.

        `threads` (default: all cores) are divided among `workers`, which translate batches in
        parallel. By default each worker has one thread: for a small model that measured faster
        than threads that share a batch, for one sentence as for a hundred. A model of more than
        `most_bytes` is refused before it is read.
        """
        folder = Folder.of(directory)
        manifest = read_sealed(folder, most_bytes=most_bytes)
        threads = threads or num_cores()
        workers = workers or threads
        if not 1 <= workers <= threads:
            raise RequestError(f"{workers} workers need as many threads, not {threads}")
        try:
            translator = library().Translator(
                str(folder.path), inter_threads=workers, intra_threads=threads // workers
            )
            engine = cls(translator, *read_vocabularies(folder), manifest.positions)
            # Some errors in a model or its config appear only when it is used.
            engine.translate([[]], beam=1, max_extra_tokens=1)
        except (RuntimeError, ValueError, IndexError, KeyError) as error:
            raise CheckpointError(f"{folder.path}: CTranslate2 cannot load it: {error}") from error
        return engine

    @property
    def vocabulary_sizes(self) -> tuple[int, int]:
        """The sizes of the source and target vocabularies."""
        return len(self._source), len(self._target)

    def translate(
        self,
        sources: Sequence[Sequence[int]],
        *,
        beam: int = 4,
        alpha: float = 0.6,
        nbest: int = 1,
        max_extra_tokens: int = 50,
        min_length: int = 0,
        penalty: Literal["gnmt", "power"] = "gnmt",
        divided: bool = True,
    ) -> list[list[Hypothesis]]:
        """Return the `nbest` best outputs of each source, best first.

        Sources and outputs are ids without eos. An output has at most `max_extra_tokens` more than
        its source, and is cut there. With `divided`, even few sentences are divided among all
        workers.
        """
        search = _Search(
            beam=beam,
            alpha=alpha,
            penalty=penalty,
            nbest=nbest,
            max_extra_tokens=max_extra_tokens,
            min_length=min_length,
            shares=self.workers if divided else 1,
        )
        _check("sources", sources, len(self._source), self.positions)
        found = [_Found() for _ in sources]
        mixed = search.shows_steps
        self._search(sources, range(len(sources)), found, search, mixed=mixed)
        # Our search never outputs pad or bos. Suppressing them changes the probabilities of all
        # other tokens, so it is done only for the rare sentences that contain them.
        with_forbidden = [
            index
            for index, each in enumerate(found)
            if not all(self._forbidden.isdisjoint(tokens) for tokens in each.tokens)
        ]
        self._search(sources, with_forbidden, found, search, mixed=mixed, suppress=self._forbidden)
        self._complete(sources, found)
        return [self._ranked(each, search) for each in found]

    @property
    def workers(self) -> int:
        """How many batches are translated in parallel."""
        return int(self._translator.num_translators)

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[list[float]]:
        """Return the log-probability of each token of each target, then of its eos."""
        _check("sources", sources, len(self._source), self.positions)
        _check("targets", targets, len(self._target), self.positions)
        if not len(sources):
            return []
        results = self._translator.score_batch(
            [self.source_tokens(ids) for ids in sources],
            [[self._target[token] for token in ids] for ids in targets],
            max_batch_size=_BATCH_TOKENS,
            batch_type="tokens",
            max_input_length=0,
        )
        return [list(result.log_probs) for result in results]

    def source_tokens(self, ids: Sequence[int]) -> list[str]:
        """Return CTranslate2's input for a source: its tokens and eos."""
        return [*(self._source[token] for token in ids), self._source[Vocab.eos]]

    def _search(
        self,
        sources: Sequence[Sequence[int]],
        indices: Sequence[int],
        found: list[_Found],
        search: _Search,
        *,
        mixed: bool,
        suppress: frozenset[str] = frozenset(),
    ) -> None:
        """Translate some of the sources, in batches and in parallel.

        CTranslate2 has one length limit for a whole batch: that of its longest source. A sentence
        that reached its own, smaller limit is translated again with that.
        """
        pending: deque[tuple[int, int, Any]] = deque()
        for batch in self._batches(sources, indices, mixed=mixed, shares=search.shares):
            pending += self._begin(sources, batch, search, suppress)
        # Suppressed tokens (and eos before the minimum length) make the probabilities of all others
        # larger than the model's.
        exact = not suppress and not search.min_length
        while pending:
            index, limit, future = pending.popleft()
            own = self._limit(sources[index], search)
            result = future and future.result()
            if result is None:
                found[index] = _Found([[]], [None])
            elif own < limit and max(map(len, result.hypotheses)) >= own:
                # Right away, while other batches are still being searched.
                pending += self._begin(sources, [index], search, suppress)
            else:
                found[index] = self._found(result, search, exact=exact)

    def _begin(
        self,
        sources: Sequence[Sequence[int]],
        batch: list[int],
        search: _Search,
        suppress: frozenset[str],
    ) -> list[tuple[int, int, Any]]:
        """Start to search a batch; return each source's index, limit and future result.

        The future is None where the limit is 0 and there is nothing to search.
        """
        limit = self._limit(sources[batch[0]], search)
        if limit == 0:
            return [(index, limit, None) for index in batch]
        results = self._translator.translate_batch(
            [self.source_tokens(sources[index]) for index in batch],
            asynchronous=True,
            beam_size=search.beam,
            num_hypotheses=search.wanted,
            length_penalty=search.alpha,
            max_input_length=0,
            max_decoding_length=limit,
            min_decoding_length=min(search.min_length, limit),
            suppress_sequences=[[token] for token in suppress] or None,
            return_scores=True,
            # An output without eos was cut; eos also counts in the length.
            return_end_token=True,
        )
        return [(index, limit, each) for index, each in zip(batch, results, strict=True)]

    def _limit(self, source: Sequence[int], search: _Search) -> int:
        return min(len(source) + search.max_extra_tokens, self.positions - 1)

    def _batches(
        self, sources: Sequence[Sequence[int]], indices: Sequence[int], *, mixed: bool, shares: int
    ) -> Iterator[list[int]]:
        """Divide sentences into batches of about equal length, or of equal length.

        The longest come first, so that the workers finish together.
        """
        total = sum(len(sources[index]) + 1 for index in indices)
        budget = min(_BATCH_TOKENS, math.ceil(total / shares))
        batch: list[int] = []
        for index in sorted(indices, key=lambda index: -len(sources[index])):
            if batch:
                longest = len(sources[batch[0]])
                is_full = (len(batch) + 1) * (longest + 1) > budget
                if is_full or not (mixed or len(sources[index]) == longest):
                    yield batch
                    batch = []
            batch.append(index)
        if batch:
            yield batch

    def _found(self, result: Any, search: _Search, *, exact: bool) -> _Found:
        """Return one result's tokens, and the log-probabilities where its scores give them."""
        found = _Found()
        for tokens, score in zip(result.hypotheses, result.scores, strict=True):
            ended = bool(tokens) and tokens[-1] == self._end
            found.tokens.append(tokens[:-1] if ended else tokens)
            # CTranslate2 divides scores by length^alpha; the score of a cut output lacks eos.
            log_prob = score * len(tokens) ** search.alpha
            found.log_probs.append(log_prob if ended and exact else None)
        return found

    def _complete(self, sources: Sequence[Sequence[int]], found: list[_Found]) -> None:
        """Compute the missing log-probabilities by scoring the outputs."""
        missing = [
            (index, rank)
            for index, each in enumerate(found)
            for rank, log_prob in enumerate(each.log_probs)
            if log_prob is None
        ]
        scores = self.score(
            [sources[index] for index, _ in missing],
            [self._ids_of(found[index].tokens[rank]) for index, rank in missing],
        )
        for (index, rank), log_probs in zip(missing, scores, strict=True):
            found[index].log_probs[rank] = math.fsum(log_probs)

    def _ranked(self, found: _Found, search: _Search) -> list[Hypothesis]:
        scored = [
            (search.score(log_prob, len(tokens) + 1), log_prob, tokens)
            for tokens, log_prob in zip(found.tokens, found.log_probs, strict=True)
            if log_prob is not None
        ]
        scored.sort(key=lambda each: each[0], reverse=True)
        # Convert only the hypotheses to return.
        return [
            Hypothesis(self._ids_of(tokens), log_prob, score)
            for score, log_prob, tokens in scored[: search.nbest]
        ]

    def _ids_of(self, tokens: Sequence[str]) -> tuple[int, ...]:
        return tuple(map(self._ids.__getitem__, tokens))


def _check(name: str, sequences: Sequence[Sequence[int]], size: int, positions: int) -> None:
    """Raise RequestError for ids that the model cannot take."""
    for index, ids in enumerate(sequences):
        if len(ids) >= positions:
            raise RequestError(
                f"{name}[{index}] has {len(ids):,} tokens, and this export has positions for "
                f"{positions - 1:,}: split it, or use the torch engine"
            )
        if len(ids) and not 0 <= min(ids) <= max(ids) < size:
            raise RequestError(
                f"{name}[{index}] has ids outside the vocabulary of {size:,} entries: "
                "is this the right tokenizer?"
            )
