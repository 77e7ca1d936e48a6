"""One forward pass of training: from a batch to its loss."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from headwise.model import Transformer
from headwise.seeding import keyed_seed
from headwise.training.loss import smoothed_cross_entropy


class LossSums(NamedTuple):
    """Sums over a batch's target tokens; divide by their count for a mean."""

    smoothed: Tensor
    """The label-smoothed loss in nats, what training minimises."""
    nll: Tensor
    """The plain negative log-likelihood in nats, what perplexity is made of. No gradient."""


class TrainingStep(nn.Module):
    """Join the model and its loss, so that DDP, FSDP and torch.compile wrap one module.

    Paper: §5.4.
    """

    def __init__(self, model: Transformer, *, label_smoothing: float) -> None:
        super().__init__()
        self.model = model
        self.label_smoothing = label_smoothing

    def forward(self, src: Tensor, tgt_in: Tensor, tgt_out: Tensor) -> tuple[LossSums, Tensor]:
        """Return the loss sums of a batch and the number of target tokens they cover.

        The ids [B, S], [B, T] and [B, T] are taken as `check_batch` leaves them. Sums, not means:
        whoever accumulates batches divides by the tokens of them all, so that accumulated
        gradients equal those of one large batch.
        """
        hidden = self.model.hidden(src, tgt_in).flatten(0, 1)  # [B*T, D]
        smoothed, nll, count = smoothed_cross_entropy(
            hidden,
            self.model.output.weight,
            tgt_out.flatten(),
            smoothing=self.label_smoothing,
            pad=self.model.vocab.pad,
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
