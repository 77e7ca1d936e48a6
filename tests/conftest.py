"""What several tests share: small models whose sizes are distinct primes where they may be."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from headwise.config import ModelConfig, Vocab
from headwise.machine import num_cores
from headwise.model import Transformer
from tests.made_once import made_once

# The models here are too small for a second thread to help, and threads that wait for each other by
# spinning make the tests many times slower on a machine that is busy with something else.
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # And in the processes that tests start.

# A shell starts background jobs with SIGINT ignored, and the commands that tests interrupt would
# inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# What is imported is never garbage: collections need not look at it.
gc.freeze()

# How long an example takes is the machine's business.
settings.register_profile("headwise", deadline=None)
settings.load_profile("headwise")

VOCAB = Vocab.shared(23)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return one worker more than there are cores: many tests wait for processes they started."""
    return num_cores() + 1


Headwise = Callable[..., tuple[int, str, str]]
"""The `headwise` fixture: arguments in, exit code, stdout and stderr out."""


def model_config(**changes: object) -> ModelConfig:
    """Make a small model in which no two sizes are equal; d_model must be even for sinusoids."""
    sizes: dict[str, object] = {
        "d_model": 14,
        "d_ff": 17,
        "num_layers": 2,
        "num_heads": 3,
        "d_k": 5,
        "d_v": 7,
        "dropout": 0.0,
    }
    return ModelConfig(**(sizes | changes))  # type: ignore[arg-type]


def make_batch(
    rows: int = 5, source: int = 11, target: int = 13, vocab: Vocab = VOCAB, seed: int = 3
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw source ids, target inputs and target outputs without padding."""
    generator = torch.Generator().manual_seed(seed)
    src = torch.randint(4, vocab.source_size, (rows, source), generator=generator)
    tgt = torch.randint(4, vocab.target_size, (rows, target + 1), generator=generator)
    tgt[:, 0] = vocab.bos
    return src, tgt[:, :-1].clone(), tgt[:, 1:].clone()


@pytest.fixture
def double() -> Iterator[None]:
    """Make double precision the default for one test."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture
def build() -> Callable[..., Transformer]:
    """Return a function that builds a small seeded model."""

    def make(vocab: Vocab = VOCAB, seed: int = 7, **changes: object) -> Transformer:
        torch.manual_seed(seed)
        return Transformer(model_config(**changes), vocab)

    return make


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a run that translates words to themselves, backwards, well enough to say something."""
    from tests.small_runs import train_reversing

    return made_once(tmp_path_factory, "trained", train_reversing) / "run"


@pytest.fixture(scope="session")
def trained_lm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a language model that knows which word follows which."""
    from tests.small_runs import train_book

    return made_once(tmp_path_factory, "language-model", train_book) / "run"


@pytest.fixture(scope="session")
def trained_parser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a parser of trees whose tags and brackets follow from the words."""
    from tests.small_runs import train_parser

    return made_once(tmp_path_factory, "parser", train_parser) / "run"


@pytest.fixture(scope="session")
def trained_masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a masked language model of a text in which each word follows from the one before."""
    from tests.small_runs import train_masked

    return made_once(tmp_path_factory, "masked", train_masked) / "run"


@pytest.fixture(scope="session")
def trained_classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a classifier of texts whose words tell their class."""
    from tests.small_runs import train_classifier

    return made_once(tmp_path_factory, "classifier", train_classifier) / "run"


@pytest.fixture(scope="session")
def trained_image_classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a classifier of images of lines."""
    from tests.small_runs import train_image_classifier

    return made_once(tmp_path_factory, "image-classifier", train_image_classifier) / "run"


@pytest.fixture(scope="session")
def trained_sound_classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a classifier of tones."""
    from tests.small_runs import train_sound_classifier

    return made_once(tmp_path_factory, "sound-classifier", train_sound_classifier) / "run"


@pytest.fixture(scope="session")
def trained_reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a transcriber of lines of drawn letters."""
    from tests.transcribed import train_lines

    return made_once(tmp_path_factory, "reader", train_lines) / "run"


@pytest.fixture(scope="session")
def trained_listener(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a transcriber of tones."""
    from tests.transcribed import train_spoken

    return made_once(tmp_path_factory, "listener", train_spoken) / "run"


@pytest.fixture
def headwise(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Headwise]:
    """Return a function that runs the command here, which saves importing torch again."""

    from headwise.cli import main

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["headwise", *arguments])
        code = 0
        try:
            main()
        except SystemExit as ending:
            code = int(ending.code or 0)
        output, errors = capsys.readouterr()
        return code, output, errors

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield run
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def preloaded() -> Iterator[Path]:
    """Return a folder whose `headwise` and `python` start at once."""
    from tests.preloaded import preloaded_programs

    with preloaded_programs() as directory:
        yield directory
