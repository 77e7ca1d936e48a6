"""Small runs for tests: a text that can be learned, a config that trains in a second."""

import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headwise.config import AnyConfig, Config
from headwise.data import ParallelFiles
from headwise.recipes import load_recipe
from headwise.runs.checkpoint import read_weights
from headwise.runs.directory import RunDirectory
from headwise.tasks.classification.files import LabelledFiles
from headwise.tasks.language_model.files import TextFiles
from headwise.tasks.parsing.files import TreeFiles

WORDS = [a + b + c for a in "bdk" for b in "aou" for c in ("n", "ra", "ti")]
"""Twenty-seven words of parts in common, so that there is something to learn for the subwords."""

SETTINGS = (
    "data.vocab_size=320",
    "data.holdout_pairs=20",
    "model.d_model=16",
    "model.d_ff=24",
    "model.num_layers=1",
    "model.num_heads=2",
    "train.batch_tokens=150",
    "train.warmup_steps=10",
    "train.max_steps=12",
    "train.save_every_steps=4",
    "train.log_every_steps=3",
    "train.average_last=3",
)


TEXT_SETTINGS = (
    "data.vocab_size=300",
    "data.context=24",
    "model.d_model=16",
    "model.d_ff=24",
    "model.num_layers=1",
    "model.num_heads=2",
    "model.dropout=0.1",
    "train.batch_tokens=150",
    "train.schedule=paper",
    "train.peak_rate=0",
    "train.decay_by=steps",
    "train.max_minutes=0",
    "train.warmup_steps=10",
    "train.max_steps=12",
    "train.save_every_steps=4",
    "train.log_every_steps=3",
    "train.average_last=3",
)


TREE_SETTINGS = (
    "data.vocab_size=290",
    "data.holdout_trees=20",
    "data.f1_trees=10",
    "model.d_model=16",
    "model.d_ff=24",
    "model.num_layers=1",
    "model.num_heads=2",
    "train.batch_tokens=300",
    "train.schedule=paper",
    "train.peak_rate=0",
    "train.decay_by=steps",
    "train.max_minutes=0",
    "train.warmup_steps=10",
    "train.max_steps=12",
    "train.save_every_steps=4",
    "train.log_every_steps=3",
    "train.average_last=3",
)


MASK_SETTINGS = (
    "data.vocab_size=300",
    "data.context=24",
    "data.normalization=identity",
    "model.d_model=16",
    "model.d_ff=24",
    "model.num_layers=1",
    "model.num_heads=2",
    "train.batch_tokens=150",
    "train.schedule=paper",
    "train.peak_rate=0",
    "train.decay_by=steps",
    "train.max_minutes=0",
    "train.warmup_steps=10",
    "train.max_steps=12",
    "train.save_every_steps=4",
    "train.log_every_steps=3",
    "train.average_last=3",
)

CLASS_SETTINGS = (
    "data.vocab_size=290",
    "data.holdout_examples=20",
    "model.d_model=16",
    "model.d_ff=24",
    "model.num_layers=1",
    "model.num_heads=2",
    "train.batch_tokens=512",
    "train.schedule=paper",
    "train.peak_rate=0",
    "train.decay_by=steps",
    "train.max_minutes=0",
    "train.warmup_steps=10",
    "train.max_steps=12",
    "train.save_every_steps=4",
    "train.log_every_steps=3",
    "train.average_last=3",
)


def small_config(*changes: str) -> Config:
    return load_recipe("base", [*SETTINGS, *changes])


def small_text_config(*changes: str) -> AnyConfig:
    """The config of a small language model."""
    return load_recipe("lm-tiny", [*TEXT_SETTINGS, *changes])


def small_tree_config(*changes: str) -> AnyConfig:
    """The config of a small parser."""
    return load_recipe("parsing-small", [*TREE_SETTINGS, *changes])


def small_masked_config(*changes: str) -> AnyConfig:
    """The config of a small masked language model."""
    return load_recipe("bert-tiny", [*MASK_SETTINGS, *changes])


def train_masked(directory: Path) -> Path:
    """Train a masked language model of the text of `write_book`."""
    from headwise.workflows.train import train

    config = small_masked_config(
        "model.d_model=32",
        "model.d_ff=64",
        "model.dropout=0",
        "train.schedule=linear",
        "train.peak_rate=1e-2",
        "train.batch_tokens=500",
        "train.max_steps=700",
        "train.save_every_steps=350",
        "train.average_last=1",
    )
    train(config, directory / "run", text=write_book(directory, documents=300))
    return directory / "run"


def small_class_config(*changes: str) -> AnyConfig:
    """The config of a small classifier."""
    return load_recipe("text-tiny", [*CLASS_SETTINGS, *changes])


CLASSES = {"b": "river", "d": "hill", "k": "wood"}
"""By the letter that most words of a text begin with."""


def write_labelled(directory: Path, count: int = 240, seed: int = 1) -> LabelledFiles:
    """Write texts most of whose words begin with the letter of their class."""
    generator = random.Random(seed)
    path = directory / f"labelled-{seed}.csv"
    lines = ["text,label"]
    for _ in range(count):
        letter = generator.choice("bdk")
        own = [word for word in WORDS if word[0] == letter]
        words = generator.choices(own, k=4) + generator.choices(WORDS, k=2)
        generator.shuffle(words)
        lines.append(f'"{" ".join(words)}",{CLASSES[letter]}')
    path.write_text("\n".join(lines) + "\n")
    return LabelledFiles.of(path, column="text", label_column="label")


def train_classifier(directory: Path) -> Path:
    """Train a classifier of the texts of `write_labelled`."""
    from headwise.workflows.train import train

    config = small_class_config(
        "model.d_model=32",
        "model.dropout=0",
        "train.schedule=linear",
        "train.peak_rate=1e-2",
        "train.max_steps=100",
        "train.save_every_steps=50",
        "train.average_last=1",
    )
    train(config, directory / "run", text=write_labelled(directory, count=600))
    return directory / "run"


VECTOR_SETTINGS = (
    "data.holdout_examples=20",
    "model.d_model=16",
    "model.d_ff=32",
    "model.num_layers=1",
    "model.num_heads=2",
    "model.dropout=0",
    "train.batch_tokens=400",
    "train.warmup_steps=4",
    "train.decay_by=steps",
    "train.max_minutes=0",
    "train.max_steps=12",
    "train.save_every_steps=6",
    "train.save_every_minutes=0",
    "train.average_last=2",
)
"""Small classifiers of images and sounds."""

IMAGE_SETTINGS = (
    *VECTOR_SETTINGS,
    "data.height=12",
    "data.width=12",
    "data.patch=4",
    "data.shift=1",
    "data.flip=true",
)
SOUND_SETTINGS = (*VECTOR_SETTINGS, "data.num_mels=16", "data.longest_seconds=0.5")


def write_images(directory: Path, count: int = 240, seed: int = 1) -> LabelledFiles:
    """Write images of a bright line, which lies or stands, in a folder for each class.

    Some reach from border to border; others, like lines that people draw, do not.
    """
    from headwise.data.images import png

    generator = np.random.default_rng(seed)
    folder = directory / f"images-{seed}"
    for number in range(count):
        pixels = generator.integers(0, generator.integers(1, 80), (14, 14, 1), dtype=np.uint8)
        place, width, margin = (
            int(generator.integers(*each)) for each in ((2, 11), (1, 3), (0, 4))
        )
        across, along = slice(place, place + width), slice(margin, 14 - margin)
        where = (across, along) if number % 2 else (along, across)
        pixels[where] = generator.integers(120, 256)
        path = folder / ("lying" if number % 2 else "standing") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(pixels))
    return LabelledFiles.of(folder, input="images")


def write_sounds(directory: Path, count: int = 120, seed: int = 1) -> LabelledFiles:
    """Write tones of different lengths, high and low, and a table of their paths."""
    import soundfile

    generator = np.random.default_rng(seed)
    folder = directory / f"sounds-{seed}"
    folder.mkdir()
    lines = ["path,pitch"]
    for number in range(count):
        times = np.arange(int(generator.integers(1_600, 3_600))) / 8_000
        is_high = number % 2
        hertz = generator.uniform(1_500, 3_000) if is_high else generator.uniform(150, 500)
        loudness = generator.uniform(0.05, 0.9)
        noise = 0.01 * generator.standard_normal(len(times))
        samples = loudness * (np.sin(2 * np.pi * hertz * times) + noise) / 1.1
        soundfile.write(folder / f"{number}.wav", samples, 8_000)
        lines.append(f"sounds-{seed}/{number}.wav,{'high' if is_high else 'low'}")
    path = directory / f"sounds-{seed}.csv"
    path.write_text("\n".join(lines) + "\n")
    return LabelledFiles.of(path, input="audio", column="path", label_column="pitch")


def small_vector_config(recipe: str, *changes: str) -> AnyConfig:
    """The config of a small classifier of images or sounds."""
    settings = IMAGE_SETTINGS if recipe == "vit-tiny" else SOUND_SETTINGS
    return load_recipe(recipe, [*settings, *changes])


_LEARNING = (
    "train.peak_rate=1e-2",
    "train.max_steps=150",
    "train.save_every_steps=75",
    "train.label_smoothing=0",
    "train.average_last=1",
)


def train_image_classifier(directory: Path) -> Path:
    """Train a classifier of the images of `write_images`."""
    from headwise.workflows.train import train

    config = small_vector_config("vit-tiny", *_LEARNING, "data.flip=false")
    train(config, directory / "run", text=write_images(directory, count=400))
    return directory / "run"


def train_sound_classifier(directory: Path) -> Path:
    """Train a classifier of the sounds of `write_sounds`."""
    from headwise.workflows.train import train

    config = small_vector_config("speech-tiny", *_LEARNING)
    train(config, directory / "run", text=write_sounds(directory, count=200))
    return directory / "run"


def write_trees(directory: Path, count: int = 120, seed: int = 1) -> TreeFiles:
    """Write trees in which the words tell the tags, and the tags the brackets."""
    generator = random.Random(seed)

    def phrase(depth: int) -> str:
        adjective = generator.choice(["", "(JJ old) ", "(JJ red) "])
        noun = generator.choice(["dog", "cat", "bird", "house"])
        words = f"(NP (DT the) {adjective}(NN {noun}))"
        if depth == 2 or generator.random() < 0.7:
            return words
        return f"(NP {words} (PP (IN near) {phrase(depth + 1)}))"

    def tree() -> str:
        verb = generator.choice(["sees", "likes", "finds"])
        return f"(S {phrase(0)} (VP (VBZ {verb}) {phrase(0)}) (. .))"

    path = directory / f"trees-{seed}.mrg"
    path.write_text("".join(f"{tree()}\n" for _ in range(count)))
    return TreeFiles.of(path)


def train_parser(directory: Path) -> Path:
    """Train a parser of the trees of `write_trees`."""
    from headwise.workflows.train import train

    config = small_tree_config(
        "model.d_model=32",
        "model.d_ff=64",
        "model.dropout=0",
        "train.schedule=linear",
        "train.peak_rate=1e-2",
        "train.batch_tokens=500",
        "train.label_smoothing=0",
        "train.max_steps=120",
        "train.save_every_steps=60",
        "train.average_last=1",
    )
    train(config, directory / "run", text=write_trees(directory, count=300))
    return directory / "run"


def write_book(directory: Path, documents: int = 60, seed: int = 1) -> TextFiles:
    """Write documents of three lines in which each word follows from the one before."""
    generator = random.Random(seed)
    texts = []
    for _ in range(documents):
        first = generator.randrange(len(WORDS))
        words = [WORDS[(first + number) % len(WORDS)] for number in range(15)]
        texts.append("".join(" ".join(words[n : n + 5]) + "\n" for n in (0, 5, 10)))
    path = directory / "book.txt"
    path.write_text("\n".join(texts))
    return TextFiles.of(path)


def train_book(directory: Path) -> Path:
    """Train a language model that knows which word follows which."""
    from headwise.workflows.train import train

    config = small_text_config(
        "model.d_model=32",
        "model.d_ff=64",
        "model.dropout=0",
        "train.schedule=linear",
        "train.peak_rate=1e-2",
        "train.batch_tokens=300",
        "train.max_steps=200",
        "train.save_every_steps=50",
        "train.average_last=2",
    )
    train(config, directory / "run", text=write_book(directory, documents=200))
    return directory / "run"


def write_text(directory: Path, pairs: int = 200, seed: int = 1) -> ParallelFiles:
    """Write sentences of random words and the same words backwards."""
    generator = random.Random(seed)
    sentences = [generator.choices(WORDS, k=generator.randint(2, 9)) for _ in range(pairs)]
    source, target = directory / "text.src", directory / "text.tgt"
    source.write_text("".join(" ".join(words) + "\n" for words in sentences))
    target.write_text("".join(" ".join(words[::-1]) + "\n" for words in sentences))
    return ParallelFiles(sources=(source,), targets=(target,))


def train_reversing(directory: Path) -> Path:
    """Train a run that translates words to themselves, backwards, well enough to say something."""
    from headwise.workflows.train import train

    config = small_config(
        "model.d_model=32",
        "model.norm_order=pre",
        "train.schedule=linear",
        "train.peak_rate=1e-2",
        "train.batch_tokens=300",
        "train.max_steps=200",
        "train.save_every_steps=50",
        "train.average_last=2",
    )
    train(config, directory / "run", text=write_text(directory, pairs=600))
    return directory / "run"


def command(
    run: Path, text: ParallelFiles | TextFiles | TreeFiles | LabelledFiles, *changes: str
) -> list[str]:
    """The `headwise train` that trains a small run, without the interpreter in front."""
    basis: tuple[str, ...]
    if isinstance(text, TextFiles):
        recipe, basis, files = "lm-tiny", TEXT_SETTINGS, ["--text", str(text.paths[0])]
    elif isinstance(text, LabelledFiles) and text.input == "images":
        recipe, basis, files = "vit-tiny", IMAGE_SETTINGS, ["--images", str(text.paths[0])]
    elif isinstance(text, LabelledFiles):
        assert text.input == "text"
        recipe, basis, files = "text-tiny", CLASS_SETTINGS, ["--table", str(text.paths[0])]
        files += ["--text-column", "text", "--label-column", "label"]
    elif isinstance(text, TreeFiles):
        recipe, basis, files = "parsing-small", TREE_SETTINGS, ["--trees", str(text.paths[0])]
    else:
        recipe, basis = "base", SETTINGS
        files = ["--src", str(text.sources[0]), "--tgt", str(text.targets[0])]
    settings = [part for change in (*basis, *changes) for part in ("--set", change)]
    return ["-m", "headwise", "train", recipe, *files, "--run-directory", str(run), *settings]


def start(arguments: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """Start Python with its arguments."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


def digest(directory: Path) -> str:
    """The SHA-256 of a checkpoint's weights, by name."""
    weights = read_weights(directory)
    sha = hashlib.sha256()
    for name in sorted(weights):
        sha.update(name.encode())
        sha.update(weights[name].numpy().tobytes())
    return sha.hexdigest()


def digests(run: Path) -> dict[str, str]:
    """The digests of everything that a finished run ends with: last checkpoint and average."""
    directory = RunDirectory(run)
    last = directory.step_directory(directory.steps()[-1])
    return {"last": digest(last), "averaged": digest(directory.averaged)}
