"""When words are said: where in time the decoder attends to while it writes them."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from headwise.config import FramesConfig
from headwise.model import Transformer
from headwise.tasks.transcription.long_sounds import Piece
from headwise.tasks.transcription.targets import Targets
from headwise.tasks.vectors.scaling import padded_vectors

_LEAST = 1e-9
"""What a weight counts at least: its logarithm is taken."""


@dataclass(frozen=True, kw_only=True)
class TimedWord:
    """A word of a sound, and when it is said, in seconds from the beginning of the sound."""

    word: str
    start: float
    end: float


def timed_words(
    model: Transformer, piece: Piece, ids: list[int], targets: Targets, data: FramesConfig
) -> list[TimedWord]:
    """Return the words of a piece's transcription with their times.

    A word is from the first to the last position that its tokens attend to most, by the averaged
    heads of the last layer but one, where alignments are clearest (Garg et al., 2019). Tokens are
    said one after the other: no position is before that of an earlier token.
    """
    if not ids:
        return []
    packed = piece.encoded.values, np.array([len(piece.encoded.values)])
    device = model.output.weight.device
    layer = max(0, model.config.num_decoder_layers - 2)
    with torch.inference_mode():
        src, lengths = padded_vectors(packed)
        tgt_in = torch.tensor([[model.vocab.start, *ids[:-1]]], device=device)
        weights = model.cross_attention(src.to(device), tgt_in, layer, lengths=lengths.to(device))[
            0
        ].mean(0)  # [T, S]
    places = in_order(weights[:, 1:].double().cpu().numpy())  # Without the class token.
    words = targets.decode(ids).split()
    spans: list[list[int]] = [[] for _ in words]
    for count, place in enumerate(places, start=1):
        written = targets.decode(ids[:count])
        if written.strip() and not targets.decode([ids[count - 1]]).isspace():
            spans[min(len(written.split()), len(words)) - 1].append(place)
    seconds = data.stack * data.hop / data.rate
    latest = piece.start + piece.seconds
    return [
        TimedWord(
            word=word,
            start=round(piece.start + min(span) * seconds, 3),
            end=round(min(piece.start + (max(span) + 1) * seconds, latest), 3),
        )
        for word, span in zip(words, spans, strict=True)
        if span
    ]


def in_order(weights: NDArray[np.float64]) -> list[int]:
    """Return a position for each row of weights [T, S], none before the last, of most weight."""
    scores = np.log(np.maximum(weights, _LEAST))
    best = scores[0]
    origins = []
    for row in scores[1:]:
        # The best position up to each one, the first of several.
        reached = np.maximum.accumulate(best)
        is_new = np.concatenate(([True], best[1:] > reached[:-1]))
        origins.append(np.maximum.accumulate(np.where(is_new, np.arange(len(best)), 0)))
        best = row + reached
    places = [int(np.argmax(best))]
    for origin in reversed(origins):
        places.append(int(origin[places[-1]]))
    return places[::-1]
