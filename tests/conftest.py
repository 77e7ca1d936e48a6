"""What several tests share: small models whose sizes are distinct primes where they may be."""

from collections.abc import Callable, Iterator

import pytest
import torch

from headwise.config import ModelConfig, Vocab
from headwise.model import Transformer

# The models here are too small for a second thread to help, and threads that wait for each other by
# spinning make the tests many times slower on a machine that is busy with something else.
torch.set_num_threads(1)

VOCAB = Vocab.shared(23)


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
