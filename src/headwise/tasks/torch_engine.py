"""Search with our own model: sentences sorted by length, in batches, and back in their order."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from headwise.config import Vocab
from headwise.decoding import Hypothesis, SearchSettings, beam_search, sample
from headwise.model import Trace, Transformer

_BATCH_SENTENCES = 64
_BATCH_TOKENS = 8192
"""Source positions, padding and all hypotheses counted, that are searched at a time."""


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """How to draw translations at random instead of searching for the best."""

    temperature: float = 1.0
    top_k: int = 0
    """How many of the most probable tokens may be drawn; 0: any."""
    top_p: float = 1.0
    """Only the most probable tokens that together have this much probability may be drawn."""
    seed: int = 1


class TorchEngine:
    """Translate ids with a Transformer. Holds nothing that a call changes."""

    def __init__(self, model: Transformer, *, batch_size: int | None = None) -> None:
        """Take `batch_size` sentences at a time; one at a time, each is alone in every sense."""
        self.model = model.eval()
        self._batch_size = batch_size or _BATCH_SENTENCES

    def translate(
        self, sources: list[list[int]], settings: SearchSettings, max_extra_tokens: int
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first.

        Sources are ids without the end of the sentence, as outputs are; an output has at most
        `max_extra_tokens` more than its source.
        """
        results: list[list[Hypothesis]] = [[] for _ in sources]
        with torch.inference_mode():
            for numbers, src in self._batches(sources, settings.beam):
                limits = self._limits([sources[number] for number in numbers], max_extra_tokens)
                found = beam_search(self.model.step, self.model.start(src), limits, settings)
                for number, hypotheses in zip(numbers, found, strict=True):
                    results[number] = hypotheses
        return results

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

        What is drawn depends on the seed and on the source's key, not on its neighbours.
        """
        results: list[list[Hypothesis]] = [[] for _ in sources]
        with torch.inference_mode():
            for numbers, src in self._batches(sources, count):
                rows = torch.arange(len(numbers), device=src.device).repeat_interleave(count)
                limits = self._limits([sources[number] for number in numbers], max_extra_tokens)
                found = sample(
                    self.model.step,
                    self.model.start(src).select(rows, count),
                    limits[rows],
                    [(settings.seed, *keys[n], draw) for n in numbers for draw in range(count)],
                    temperature=settings.temperature,
                    top_k=settings.top_k,
                    top_p=settings.top_p,
                    min_length=min_length,
                )
                for place, number in enumerate(numbers):
                    results[number] = found[place * count : (place + 1) * count]
        return results

    def log_probs(self, pairs: list[tuple[list[int], list[int]]]) -> list[float]:
        """Return the log-probability of each target given its source, the target's end included."""
        results = [0.0] * len(pairs)
        with torch.inference_mode():
            for numbers, src in self._batches([source for source, _ in pairs], 1):
                targets = [pairs[number][1] for number in numbers]
                tgt_out = _padded(targets, src.device)
                bos = torch.full_like(tgt_out[:, :1], Vocab.bos)
                tgt_in = torch.cat((bos, tgt_out[:, :-1]), 1)
                logits = self.model(src, tgt_in)
                right = logits.gather(2, tgt_out[:, :, None])[:, :, 0] - logits.logsumexp(2)
                totals = right.double().masked_fill(tgt_out == Vocab.pad, 0.0).sum(1)
                for number, total in zip(numbers, totals.tolist(), strict=True):
                    results[number] = total
        return results

    def alignment(self, source: list[int], target: list[int]) -> list[tuple[int, int]]:
        """Return, for each target token, the source token that it attends to most.

        By the heads of the last layer but one, averaged: where alignments are clearest
        (Garg et al., 2019). The end of the sentence is nobody's counterpart.
        """
        if not source or not target:
            return []
        trace = Trace()
        with torch.inference_mode():
            src = _padded([source], self._device())
            tgt_in = torch.tensor([[Vocab.bos, *target[:-1]]], device=src.device)
            self.model.hidden(src, tgt_in, trace)
            layers = trace.decoder.cross_attention
            weights = layers[max(0, len(layers) - 2)][0].mean(0)  # [T, S]
        return [(int(place), t) for t, place in enumerate(weights[:, : len(source)].argmax(1))]

    def _batches(
        self, sources: list[list[int]], rows_each: int
    ) -> Iterator[tuple[list[int], Tensor]]:
        # The longest first: whatever memory is needed is needed at once, not in the end.
        order = sorted(range(len(sources)), key=lambda number: -len(sources[number]))
        start = 0
        while start < len(order):
            width = (len(sources[order[start]]) + 1) * rows_each
            count = max(1, min(self._batch_size, _BATCH_TOKENS // width))
            numbers = order[start : start + count]
            yield numbers, _padded([sources[number] for number in numbers], self._device())
            start += count

    def _limits(self, sources: list[list[int]], max_extra_tokens: int) -> Tensor:
        config = self.model.config
        # Where positions are learned there is one for the start, and then for each token.
        most = config.max_positions - 1 if config.positions == "learned" else sys.maxsize
        lengths = [min(len(source) + max_extra_tokens, most) for source in sources]
        return torch.tensor(lengths, device=self._device())

    def _device(self) -> torch.device:
        return self.model.output.weight.device


def _padded(sequences: list[list[int]], device: torch.device) -> Tensor:
    width = max(map(len, sequences)) + 1
    rows = [[*ids, Vocab.eos] + [Vocab.pad] * (width - len(ids) - 1) for ids in sequences]
    return torch.tensor(rows, device=device)
