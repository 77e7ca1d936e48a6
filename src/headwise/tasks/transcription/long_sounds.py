"""Sounds that are longer than what a model reads at once, cut where they are quietest."""

import math
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwise.config import FramesConfig
from headwise.data.sounds import Sound
from headwise.errors import RequestError
from headwise.tasks.encoders import Encoded
from headwise.tasks.vectors.audio import AudioEncoder, log_mel_of

MOST_SECONDS = 3600.0
"""Of a sound: at 16,000 samples a second they take 230 MB."""

_PAUSE_SECONDS = 0.2
"""How long a stretch is whose loudness counts: a pause between words, not one within a word."""

_EARLIEST = 0.5
"""Where a part may end at the earliest, as a share of the longest."""


class Piece(NamedTuple):
    """What the model reads at once."""

    encoded: Encoded
    start: float = 0.0
    """When it begins in its sound, in seconds."""
    seconds: float = math.inf
    """How long it is, if known."""


def pieces_of(
    example: Any, encoder: AudioEncoder, data: FramesConfig, most_seconds: float
) -> list[Piece]:
    """Read a whole sound and encode it, in several pieces if it is long."""
    sound = encoder.sound(example, most_seconds)
    if sound.is_cut:
        raise RequestError(
            f"{_name_of(example)}: longer than {most_seconds:,.0f} seconds: cut it into files"
        )
    longest = int(data.longest_seconds * data.rate)
    bounds = [0, *cuts(sound.samples, longest, data.rate), len(sound.samples)]
    pieces = []
    for start, end in pairwise(bounds):
        part = Sound(sound.samples[start:end], sound.given_rate, is_cut=False)
        encoded = encoder.encode(log_mel_of(part, data))
        pieces.append(Piece(encoded, start / data.rate, (end - start) / data.rate))
    return pieces


def cuts(samples: NDArray[np.float32], longest: int, rate: int) -> list[int]:
    """Return where to cut samples [N], so that no part has more than `longest` of them.

    A part ends in the middle of the quietest stretch in its second half, the last of several.
    """
    width = max(1, min(int(_PAUSE_SECONDS * rate), longest // 4))
    sums = np.concatenate(([0.0], np.cumsum(samples.astype(np.float64) ** 2)))
    found: list[int] = []
    start = 0
    while len(samples) - start > longest:
        earliest = start + max(1, int(_EARLIEST * longest))
        # Of the stretches whose middle is from there to the end of the longest part.
        firsts = np.arange(earliest - width // 2, start + longest - width // 2 + 1)
        energy = sums[np.minimum(firsts + width, len(samples))] - sums[np.maximum(firsts, 0)]
        quietest = len(energy) - 1 - int(np.argmin(energy[::-1]))
        start = int(firsts[quietest]) + width // 2
        found.append(start)
    return found


def _name_of(example: Any) -> str:
    return "the sound" if isinstance(example, bytes | tuple) else str(example)
