"""The log-mel spectrogram of a sound: how loud it is in bands of pitch, many times a second.

The numbers are those of librosa's `melspectrogram` with its defaults, so that models and settings
from elsewhere mean the same here. N samples, T frames, M mel bands, F frequencies.
"""

import math
from functools import cache

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

_QUIETEST = 1e-10
"""The power that silence is taken to have, as it has no logarithm."""

_BLOCK_FRAMES = 256
"""Frames transformed at a time: few enough for the processor's cache."""

_LINEAR_BELOW = 1000
"""Hertz up to which Slaney's scale is linear; above, it is logarithmic."""

_LINEAR_MELS = 15
"""Mels up to there."""


def log_mel(
    samples: NDArray[np.float32], *, rate: int, fft: int, hop: int, num_mels: int
) -> NDArray[np.float32]:
    """Return the natural logarithm of the power in each mel band of each frame [T, M].

    A frame is a window of `fft` samples, an even number, the middle of frame t at sample t * hop:
    there are 1 + N // hop. Beyond both ends the sound is silent.
    """
    windows = sliding_window_view(np.pad(samples, fft // 2), fft)[::hop]  # [T, fft]
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(fft) / fft)
    filters = mel_filters(rate, fft, num_mels).T.astype(np.float64)  # [F, M]
    features = np.empty((len(windows), num_mels), np.float32)
    for start in range(0, len(windows), _BLOCK_FRAMES):
        block = slice(start, start + _BLOCK_FRAMES)
        spectrum = np.fft.rfft(windows[block] * hann)  # [T, F]
        power = spectrum.real**2 + spectrum.imag**2
        features[block] = np.log(np.maximum(power @ filters, _QUIETEST))
    return features


@cache
def mel_filters(rate: int, fft: int, num_mels: int) -> NDArray[np.float32]:
    """Return what each frequency of a transform counts in each mel band [M, fft // 2 + 1].

    The bands are triangles of equal width on Slaney's mel scale, from 0 Hz to half the rate; each
    has an area of 1 in Hertz, so that wide bands are not louder than narrow ones.
    """
    edges = _hertz(np.linspace(0, _mel(rate / 2), num_mels + 2))[:, None]  # [M + 2, 1]
    low, center, high = edges[:-2], edges[1:-1], edges[2:]
    frequencies = np.fft.rfftfreq(fft, 1 / rate)
    rising = (frequencies - low) / (center - low)
    falling = (high - frequencies) / (high - center)
    triangles = np.maximum(0, np.minimum(rising, falling))
    filters: NDArray[np.float32] = (triangles * 2 / (high - low)).astype(np.float32)
    filters.flags.writeable = False  # All callers share it.
    return filters


def _mel(hertz: float) -> float:
    if hertz <= _LINEAR_BELOW:
        return hertz * _LINEAR_MELS / _LINEAR_BELOW
    return _LINEAR_MELS + 27 * math.log(hertz / _LINEAR_BELOW, 6.4)


def _hertz(mels: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(
        mels <= _LINEAR_MELS,
        mels * _LINEAR_BELOW / _LINEAR_MELS,
        _LINEAR_BELOW * 6.4 ** ((mels - _LINEAR_MELS) / 27),
    )
