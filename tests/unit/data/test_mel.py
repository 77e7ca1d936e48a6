"""Log-mel spectrograms are those of librosa.

librosa_mel.npz holds what librosa 0.11.0 returned for chirps with noise and a silent quarter, at
8,000 Hz ("narrow"), at 16,000 Hz ("wide") and for less than one window ("short"). For each it has
the samples as int16, y = samples / 32768, and settings = [rate, fft, hop, num_mels]:

    filters = librosa.filters.mel(sr=rate, n_fft=fft, n_mels=num_mels)
    power = librosa.feature.melspectrogram(
        y=y, sr=rate, n_fft=fft, hop_length=hop, n_mels=num_mels, power=2
    )
    log_mel = np.log(np.maximum(power, 1e-10)).T
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from headwise.data import mel
from headwise.data.mel import log_mel, mel_filters


@pytest.fixture(scope="module")
def librosa() -> dict[str, NDArray[Any]]:
    with np.load(Path(__file__).with_name("librosa_mel.npz"), allow_pickle=False) as arrays:
        return dict(arrays)


@pytest.mark.parametrize("name", ["narrow", "wide", "short"])
@pytest.mark.parametrize("block", [256, 7])
def test_a_spectrogram_is_librosas(
    librosa: dict[str, NDArray[Any]], name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mel, "_BLOCK_FRAMES", block)
    rate, fft, hop, num_mels = librosa[f"{name}_settings"].astype(int).tolist()
    samples = (librosa[f"{name}_samples"] / 32768).astype(np.float32)
    found = log_mel(samples, rate=rate, fft=fft, hop=hop, num_mels=num_mels)
    expected = librosa[f"{name}_log_mel"]
    assert found.dtype == np.float32
    assert found.shape == expected.shape == (1 + len(samples) // hop, num_mels)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["narrow", "wide"])
def test_filters_are_librosas(librosa: dict[str, NDArray[Any]], name: str) -> None:
    rate, fft, _, num_mels = librosa[f"{name}_settings"].astype(int).tolist()
    found = mel_filters(rate, fft, num_mels)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, librosa[f"{name}_filters"], rtol=0, atol=1e-6)


def test_filters_cannot_be_changed_for_the_next_caller() -> None:
    with pytest.raises(ValueError, match="read-only"):
        mel_filters(8000, 256, 40)[0] = 1


@pytest.mark.parametrize("length", [0, 1, 79, 80, 81])
def test_there_is_a_frame_for_each_hop_begun(length: int) -> None:
    found = log_mel(np.zeros(length, np.float32), rate=8000, fft=256, hop=80, num_mels=40)
    np.testing.assert_array_equal(found, np.full((1 + length // 80, 40), np.log(np.float32(1e-10))))
