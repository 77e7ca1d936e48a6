"""Small transcribers for tests: lines of drawn letters, and tones that have names."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from headwise.config import AnyConfig
from headwise.recipes import load_recipe
from headwise.tasks.transcription.files import TranscribedFiles

LETTERS = {
    "L": ("X....", "X....", "X....", "X....", "X....", "XXXXX"),
    "T": ("XXXXX", "..X..", "..X..", "..X..", "..X..", "..X.."),
    "O": (".XXX.", "X...X", "X...X", "X...X", "X...X", ".XXX."),
}
"""Letters six pixels high."""

TONES = {"do": 200.0, "re": 600.0, "mi": 1_500.0, "fa": 3_000.0}
"""Words, and the pitches that they are said as, in hertz."""

RATE = 8_000

_SMALL = (
    "data.holdout_examples=30",
    "data.cer_examples=30",
    "model.d_model=32",
    "model.d_ff=64",
    "model.num_layers=1",
    "model.num_decoder_layers=1",
    "model.num_heads=2",
    "model.dropout=0",
    "train.batch_tokens=400",
    "train.peak_rate=5e-3",
    "train.warmup_steps=10",
    "train.decay_by=steps",
    "train.max_minutes=0",
    "train.max_steps=12",
    "train.save_every_steps=6",
    "train.save_every_minutes=0",
    "train.label_smoothing=0",
    "train.average_last=2",
    "decode.max_extra_tokens=4",
)
LINE_SETTINGS = (
    *_SMALL,
    "data.height=8",
    "data.longest_width=80",
    "data.patch=2",
    "data.shift=1",
)
SOUND_SETTINGS = (
    *_SMALL,
    "data.num_mels=16",
    "data.stack=2",
    "data.longest_seconds=1.5",
    "train.batch_tokens=600",
)


def small_line_config(*changes: str) -> AnyConfig:
    """The config of a small transcriber of `write_lines`."""
    return load_recipe("read-tiny", [*LINE_SETTINGS, *changes])


def small_sound_config(*changes: str) -> AnyConfig:
    """The config of a small transcriber of `write_spoken`."""
    return load_recipe("listen-tiny", [*SOUND_SETTINGS, *changes])


def draw_line(text: str, generator: np.random.Generator) -> NDArray[np.uint8]:
    """Draw letters in a line [8, W], dark on light, with gaps of different widths."""
    columns: list[NDArray[np.uint8]] = []
    for letter in text:
        gap = generator.integers(1, 4) if letter != " " else 5
        columns.append(np.zeros((6, int(gap)), dtype=np.uint8))
        if letter != " ":
            rows = [[each == "X" for each in row] for row in LETTERS[letter]]
            columns.append(np.array(rows, dtype=np.uint8))
    ink = np.pad(np.concatenate(columns, axis=1), ((1, 1), (0, 2)))
    noise = generator.integers(0, 30, ink.shape)
    return (225 - 200 * ink + noise).astype(np.uint8)


def write_lines(directory: Path, count: int = 160, seed: int = 1) -> TranscribedFiles:
    """Write images of random strings of letters, and a table of their paths and texts."""
    from headwise.data.images import png

    generator = np.random.default_rng(seed)
    folder = directory / f"lines-{seed}"
    folder.mkdir()
    rows = ["path,text"]
    for number in range(count):
        size = int(generator.integers(1, 6))
        text = " ".join("".join(generator.choice([*LETTERS, " "], size)).split()) or "L"
        (folder / f"{number}.png").write_bytes(png(draw_line(text, generator)[:, :, None]))
        rows.append(f"lines-{seed}/{number}.png,{text}")
    path = directory / f"lines-{seed}.csv"
    path.write_text("\n".join(rows) + "\n")
    return TranscribedFiles.of(path, input="images", column="path", text_column="text")


def say(
    words: Sequence[str], generator: np.random.Generator
) -> tuple[NDArray[np.float64], list[tuple[float, float]]]:
    """Return samples of words with pauses between them, and when each begins and ends."""
    parts: list[NDArray[np.float64]] = []
    spans: list[tuple[float, float]] = []
    length = 0
    for word in words:
        pause = np.zeros(int(generator.integers(600, 1_200)))
        times = np.arange(int(generator.integers(1_200, 2_000))) / RATE
        tone = generator.uniform(0.2, 0.8) * np.sin(2 * np.pi * TONES[word] * times)
        spans.append(((length + len(pause)) / RATE, (length + len(pause) + len(tone)) / RATE))
        parts += [pause, tone]
        length += len(pause) + len(tone)
    samples = np.concatenate([*parts, np.zeros(800)])
    return samples + 0.003 * generator.standard_normal(len(samples)), spans


def write_spoken(directory: Path, count: int = 120, seed: int = 1) -> TranscribedFiles:
    """Write sounds of one to three words, and a table of their paths and texts."""
    import soundfile

    generator = np.random.default_rng(seed)
    folder = directory / f"spoken-{seed}"
    folder.mkdir()
    rows = ["path\ttext"]
    for number in range(count):
        words = [str(word) for word in generator.choice(list(TONES), generator.integers(1, 4))]
        soundfile.write(folder / f"{number}.wav", say(words, generator)[0], RATE)
        rows.append(f"spoken-{seed}/{number}.wav\t{' '.join(words)}")
    path = directory / f"spoken-{seed}.tsv"
    path.write_text("\n".join(rows) + "\n")
    return TranscribedFiles.of(path, input="audio", column="path", text_column="text")


_LEARNING = ("train.save_every_steps=150", "train.average_last=1")


def train_lines(directory: Path) -> Path:
    """Train a transcriber of the lines of `write_lines`."""
    from headwise.workflows.train import train

    config = small_line_config(*_LEARNING, "train.max_steps=400")
    train(config, directory / "run", text=write_lines(directory, count=800))
    return directory / "run"


def train_spoken(directory: Path) -> Path:
    """Train a transcriber of the sounds of `write_spoken`."""
    from headwise.workflows.train import train

    config = small_sound_config(*_LEARNING, "train.max_steps=300", "data.time_masks=0")
    train(config, directory / "run", text=write_spoken(directory, count=300))
    return directory / "run"
