"""Translate with our own model, in batches of sentences of similar length."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from headwise.config import Vocab
from headwise.decoding import (
    BeamSearch,
    Found,
    Hypothesis,
    SamplingSettings,
    SearchSettings,
    beam_search,
    sample,
)
from headwise.decoding.settings import Step
from headwise.model import Recurrent, Seq2Seq, Trace
from headwise.tasks.length_batches import length_batches

R = TypeVar("R")

_CHUNK = 1024
"""Target positions whose logits are in memory at a time when scoring."""


_JOIN_SHARE = 8
_JOIN_STEPS = 2
"""New sentences are added once they would be this share of a search, or after so many steps."""


class TorchEngine:
    """Translate ids with our own model. Calls share no state but the model."""

    def __init__(self, model: Seq2Seq, *, batch_size: int | None = None) -> None:
        """Search `batch_size` sentences at a time; with 1, results depend on no other sentence."""
        self.model = model.eval()
        self._batch_size = batch_size

    @property
    def is_free(self) -> bool:
        """Always true: the caller of a search computes its steps."""
        return True

    @property
    def attends(self) -> bool:
        """Whether the model has attention: all but one kind of recurrent model."""
        return not (isinstance(self.model, Recurrent) and self.model.attention is None)

    @property
    def step(self) -> Step[Any]:
        """The model's; it takes and returns its own kind of state."""
        return self.model.step

    def translate(
        self,
        sources: list[list[int]],
        settings: SearchSettings,
        max_extra_tokens: int,
        prefixes: list[list[int]] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first.

        Sources and outputs are ids without eos. An output has at most `max_extra_tokens` more than
        its source, and begins with its prefix, if it has one.
        """

        def search(numbers: list[int], src: Tensor) -> list[list[Hypothesis]]:
            limits = self.limits([sources[number] for number in numbers], max_extra_tokens)
            begun = None if prefixes is None else [prefixes[number] for number in numbers]
            return beam_search(
                self.step,
                self.model.start(src),
                self.first_ids(limits),
                limits,
                settings,
                self.model.vocab,
                begun,
            )

        return self._in_batches(sources, settings.beam, search)

    def search(
        self,
        settings: SearchSettings,
        max_extra_tokens: int,
        on_ready: Callable[[], None] = lambda: None,
    ) -> "TorchSearch":
        """Start a search that sentences can be added to while it runs."""
        return TorchSearch(self, settings, max_extra_tokens)

    def sample(
        self,
        sources: list[list[int]],
        settings: SamplingSettings,
        max_extra_tokens: int,
        keys: list[tuple[int, int]],
        *,
        count: int,
        min_length: int,
    ) -> list[list[Hypothesis]]:
        """Draw `count` translations of each source.

        What is drawn depends on the seed and on the source's key, not on other sources.
        """

        def draw(numbers: list[int], src: Tensor) -> list[list[Hypothesis]]:
            rows = torch.arange(len(numbers), device=src.device).repeat_interleave(count)
            limits = self.limits([sources[number] for number in numbers], max_extra_tokens)
            found = sample(
                self.step,
                self.model.start(src).select(rows),
                self.first_ids(limits[rows]),
                limits[rows],
                [(settings.seed, *keys[n], draw) for n in numbers for draw in range(count)],
                settings,
                self.model.vocab,
                min_length=min_length,
            )
            return [found[start : start + count] for start in range(0, len(found), count)]

        return self._in_batches(sources, count, draw)

    def token_log_probs(self, pairs: list[tuple[list[int], list[int]]]) -> list[list[float]]:
        """Return the log-probability of each token of each target, then of its eos."""

        def score(numbers: list[int], src: Tensor) -> list[list[float]]:
            targets = [pairs[number][1] for number in numbers]
            tgt_out = _padded(targets, src.device)
            bos = torch.full_like(tgt_out[:, :1], Vocab.bos)
            hidden = self.model.hidden(src, torch.cat((bos, tgt_out[:, :-1]), 1)).flatten(0, 1)
            right = torch.cat(
                [
                    self._log_probs(part, ids)
                    for part, ids in zip(
                        hidden.split(_CHUNK), tgt_out.flatten().split(_CHUNK), strict=True
                    )
                ]
            ).view_as(tgt_out)
            return [
                row[: len(target) + 1] for row, target in zip(right.tolist(), targets, strict=True)
            ]

        return self._in_batches([source for source, _ in pairs], 1, score)

    def _log_probs(self, hidden: Tensor, ids: Tensor) -> Tensor:
        """Return the log-probability of each id [N] after the decoder's output [N, D]."""
        logits = self.model.output(hidden)  # [N, V]
        log_probs: Tensor = logits.gather(1, ids[:, None])[:, 0] - logits.logsumexp(1)
        return log_probs

    def alignment(self, source: list[int], target: list[int]) -> list[tuple[int, int]]:
        """Return, for each target token, the source token that it attends to most.

        By the averaged heads of the last layer but one, where alignments are clearest
        (Garg et al., 2019). No token is aligned with eos.
        """
        if not source or not target:
            return []
        # A recurrent model has one attention, whatever the layer.
        layer = max(0, self.model.config.num_decoder_layers - 2)
        with torch.inference_mode():
            src = self.padded([source])
            tgt_in = torch.tensor([[Vocab.bos, *target[:-1]]], device=src.device)
            weights = self.model.cross_attention(src, tgt_in, layer)[0].mean(0)  # [T, S]
        return [(int(place), t) for t, place in enumerate(weights[:, : len(source)].argmax(1))]

    def trace(self, source: list[int], target: list[int]) -> Trace:
        """Return every attention weight of a source and a target, both with eos."""
        trace = Trace()
        with torch.inference_mode():
            src = self.padded([source])
            tgt_in = torch.tensor([[Vocab.bos, *target]], device=src.device)
            self.model.hidden(src, tgt_in, trace=trace)
        return trace

    def _in_batches(
        self,
        sources: list[list[int]],
        rows_each: int,
        work: Callable[[list[int], Tensor], Sequence[R]],
    ) -> list[R]:
        """Call `work` with the indices and padded ids of each batch; return results in order."""
        results: dict[int, R] = {}
        with torch.inference_mode():
            for numbers in self.batches(sources, rows_each):
                src = self.padded([sources[number] for number in numbers])
                results.update(zip(numbers, work(numbers, src), strict=True))
        return [results[number] for number in range(len(sources))]

    def batches(self, sources: list[list[int]], rows_each: int) -> Iterator[list[int]]:
        """Divide sources into batches of indices; each source takes `rows_each` rows."""
        return length_batches([len(source) for source in sources], rows_each, self._batch_size)

    def longest_output(self, source: list[int], max_extra_tokens: int) -> int:
        """Return how many tokens a source's translation may have."""
        return self.model.config.fitting(len(source) + max_extra_tokens)

    def limits(self, sources: list[list[int]], max_extra_tokens: int) -> Tensor:
        """Return how many tokens the translation of each source may have."""
        lengths = [self.longest_output(source, max_extra_tokens) for source in sources]
        return torch.tensor(lengths, device=self._device())

    def first_ids(self, limits: Tensor) -> Tensor:
        """Return the id that each decoder starts with, for as many sources as there are limits."""
        return torch.full_like(limits, self.model.vocab.start)

    def padded(self, sources: list[list[int]]) -> Tensor:
        """Return sources, each with eos, as rows of equal length."""
        return _padded(sources, self._device())

    def _device(self) -> torch.device:
        return self.model.output.weight.device


class TorchSearch:
    """One search of a TorchEngine; sentences can be added while it runs."""

    def __init__(
        self, engine: TorchEngine, settings: SearchSettings, max_extra_tokens: int
    ) -> None:
        self._engine, self._beam = engine, settings.beam
        self._max_extra_tokens = max_extra_tokens
        self._beams = BeamSearch(engine.step, settings, engine.model.vocab)
        self._steps = 0  # Since sentences were last added.

    def __len__(self) -> int:
        """Return how many sentences are being searched."""
        return len(self._beams)

    @property
    def is_ready(self) -> bool:
        """Whether there are sentences to search."""
        return len(self) > 0

    def accepts(self, newcomers: int) -> bool:
        """Return whether there are enough new sentences, or they have waited long enough.

        Encoding few sources costs almost as much as encoding many, and the search waits meanwhile.
        """
        return newcomers * _JOIN_SHARE >= len(self) or self._steps >= _JOIN_STEPS

    def add(self, sources: Mapping[int, list[int]]) -> None:
        """Start to search for new sentences."""
        self._steps = 0
        engine, numbers, texts = self._engine, list(sources), list(sources.values())
        with torch.inference_mode():
            # In batches, so that one long source does not pad all the others.
            for places in engine.batches(texts, self._beam):
                src = engine.padded([texts[place] for place in places])
                limits = engine.limits([texts[place] for place in places], self._max_extra_tokens)
                rows = torch.tensor([numbers[place] for place in places], device=src.device)
                self._beams.add(engine.model.start(src), rows, engine.first_ids(limits), limits)

    def advance(self) -> Found:
        """Take one step; return the sentences that it finished."""
        self._steps += 1
        with torch.inference_mode():
            return self._beams.advance()

    def drop(self, numbers: Collection[int]) -> None:
        """Cancel some sentences."""
        with torch.inference_mode():
            self._beams.drop(numbers)


def _padded(sequences: list[list[int]], device: torch.device) -> Tensor:
    """Return sequences, each with eos, as rows of equal length."""
    return _rows([[*ids, Vocab.eos] for ids in sequences], device)


def _rows(sequences: list[list[int]], device: torch.device) -> Tensor:
    width = max(map(len, sequences))
    rows = [ids + [Vocab.pad] * (width - len(ids)) for ids in sequences]
    return torch.tensor(rows, dtype=torch.long, device=device)
