"""One forward pass of training: from a batch to its loss."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn

from headwise.config import Vocab
from headwise.seeding import keyed_seed
from headwise.training.loss import smoothed_cross_entropy


class LossSums(NamedTuple):
    """Sums over a batch's targets; divide by their count for a mean."""

    smoothed: Tensor
    """The label-smoothed loss in nats, what training minimises."""
    nll: Tensor
    """The plain negative log-likelihood in nats, what perplexity is made of. No gradient."""


class _PredictsTokens(Protocol):
    """A model whose hidden states become logits by one matrix."""

    vocab: Vocab
    output: nn.Linear

    def hidden(self, *inputs: Tensor) -> Tensor: ...


class TrainingStep(nn.Module):
    """Join a model that predicts tokens and its loss: DDP, FSDP and torch.compile wrap this.

    Paper: §5.4.
    """

    def __init__(self, model: nn.Module, *, label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing

    def forward(self, *batch: Tensor) -> tuple[LossSums, Tensor]:
        """Return the loss sums of a batch and the number of target tokens they cover.

        A batch is the model's inputs, then the targets [B, T]: of the Transformer, source ids,
        target inputs, source positions if it has `aligned_input`, and target outputs, as
        `check_batch` leaves them. Sums, not means: divided by the tokens of all batches of an
        update, accumulated gradients equal those of one large batch.
        """
        *inputs, targets = batch
        model: _PredictsTokens = self.model  # type: ignore[assignment]
        hidden = model.hidden(*inputs).flatten(0, 1)  # [B*T, D]
        smoothed, nll, count = smoothed_cross_entropy(
            hidden,
            model.output.weight,
            targets.flatten(),
            smoothing=self.label_smoothing,
            pad=model.vocab.pad,
        )
        return LossSums(smoothed, nll), count


@contextmanager
def keyed_dropout(seed: int, update: int, micro_batch: int) -> Iterator[None]:
    """Decide all dropout inside by the key alone; leave torch's generators as they were.

    `micro_batch` counts within the global batch of one update, over accumulation and processes,
    so that two processes drop what one process with accumulation 2 would.
    """
    devices = [torch.cuda.current_device()] if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(keyed_seed("dropout", seed, update, micro_batch))
        yield
