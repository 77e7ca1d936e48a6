"""Search with our own model: sentences sorted by length, in batches, and back in their order."""

from collections.abc import Iterator

import torch
from torch import Tensor

from headwise.config import Vocab
from headwise.decoding import Hypothesis, SearchSettings, beam_search
from headwise.model import Transformer

_BATCH_SENTENCES = 64
_BATCH_TOKENS = 4096
"""Source positions, padding and all hypotheses counted, that are searched at a time."""


class TorchEngine:
    """Translate ids with a Transformer. Holds nothing that a call changes."""

    def __init__(self, model: Transformer, *, batch_size: int | None = None) -> None:
        """Take `batch_size` sentences at a time; one at a time, each is alone in every sense."""
        self.model = model.eval()
        self._batch_size = batch_size or _BATCH_SENTENCES

    def translate(
        self, sources: list[list[int]], settings: SearchSettings, limits: list[int]
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each source, best first."""
        results: list[list[Hypothesis]] = [[] for _ in sources]
        with torch.inference_mode():
            for numbers in self._batches(sources, settings.beam):
                src = _padded([sources[number] for number in numbers], self._device())
                caps = torch.tensor([limits[number] for number in numbers], device=src.device)
                found = beam_search(self.model.step, self.model.start(src), caps, settings)
                for number, hypotheses in zip(numbers, found, strict=True):
                    results[number] = hypotheses
        return results

    def _batches(self, sources: list[list[int]], beam: int) -> Iterator[list[int]]:
        # The longest first: whatever memory is needed is needed at once, not in the end.
        order = sorted(range(len(sources)), key=lambda number: -len(sources[number]))
        start = 0
        while start < len(order):
            width = (len(sources[order[start]]) + 1) * beam
            count = max(1, min(self._batch_size, _BATCH_TOKENS // width))
            yield order[start : start + count]
            start += count

    def _device(self) -> torch.device:
        return self.model.output.weight.device


def _padded(sources: list[list[int]], device: torch.device) -> Tensor:
    width = max(map(len, sources)) + 1
    rows = [[*ids, Vocab.eos] + [Vocab.pad] * (width - len(ids) - 1) for ids in sources]
    return torch.tensor(rows, device=device)
