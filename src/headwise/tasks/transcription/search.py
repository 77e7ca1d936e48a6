"""Search for what is written or said, in batches of similar length."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from headwise.decoding import Hypothesis, SearchSettings, beam_search
from headwise.model import Transformer
from headwise.tasks.length_batches import length_batches
from headwise.tasks.vectors.scaling import padded_vectors

Vectors = NDArray[np.float32]
"""Of a source as the model reads it: [S, W], the class token not among them."""


def search_texts(
    model: Transformer,
    sources: Sequence[Vectors],
    settings: SearchSettings,
    *,
    max_extra_tokens: int,
    batch_size: int | None = None,
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each source, best first.

    A text has at most `max_extra_tokens` tokens more than its source has positions. With a batch
    size of 1, a result depends on no other source.
    """
    device = model.output.weight.device
    found: dict[int, list[Hypothesis]] = {}
    lengths = [len(source) + 1 for source in sources]  # With the class token.
    with torch.inference_mode():
        for numbers in length_batches(lengths, settings.beam, batch_size):
            values = np.concatenate([sources[number] for number in numbers])
            packed = values, np.array([len(sources[number]) for number in numbers])
            src, positions = padded_vectors(packed)
            most = [model.config.fitting(lengths[n] + max_extra_tokens) for n in numbers]
            limits = torch.tensor(most, device=device)
            hypotheses = beam_search(
                model.step,
                model.start(src.to(device), positions.to(device)),
                torch.full_like(limits, model.vocab.start),
                limits,
                settings,
                model.vocab,
            )
            found.update(zip(numbers, hypotheses, strict=True))
    return [found[number] for number in range(len(sources))]
