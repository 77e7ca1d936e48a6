"""How well the model predicts data it was not trained on."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headwise.data.batches import Batches, Indices, on_device
from headwise.training.distributed import World
from headwise.training.task import Evaluator
from headwise.training.window import perplexity

Collate = Callable[[Indices, int], tuple[Tensor, ...]]
"""From examples and the epoch that they are taken in to a batch."""


@dataclass(frozen=True, kw_only=True)
class ValidationResult:
    """Means over all validation data."""

    loss: float
    """Smoothed loss for each target, in nats."""
    nll: float
    """Negative log-likelihood of each target, in nats."""
    tokens: int
    """How many targets there are."""
    figures: dict[str, float]
    """The task's own numbers."""

    @property
    def perplexity(self) -> float:
        """Perplexity of a token, as the paper's Table 3 has it."""
        return perplexity(self.nll)

    def to_dict(self) -> dict[str, float]:
        """Return everything as a line of metrics has it."""
        return {
            "loss": self.loss,
            "nll": self.nll,
            "perplexity": self.perplexity,
            "tokens": self.tokens,
            **self.figures,
        }


class Validation:
    """Validation data in batches, and the task's evaluator."""

    def __init__(self, batches: Batches, collate: Collate, evaluator: Evaluator) -> None:
        self._collate, self._evaluator = collate, evaluator
        self._batches = list(batches.epoch(0))

    @property
    def score(self) -> str:
        """The number that decides which checkpoint is best; empty where the loss does."""
        return self._evaluator.score

    def measure(
        self, objective: nn.Module, model: nn.Module, world: World, autocast: torch.autocast
    ) -> ValidationResult:
        """Return the means, each process taking its share of the batches."""
        sums = [0.0, 0.0, 0.0]
        was_training = objective.training
        objective.eval()
        with torch.no_grad(), autocast:
            for examples in self._batches[world.rank :: world.size]:
                batch = on_device(self._collate(examples, 0), world.device)
                losses, count = objective(*batch)
                for position, value in enumerate((*losses, count)):
                    sums[position] += float(value)
        objective.train(was_training)
        smoothed, nll, tokens = world.sum(sums)
        return ValidationResult(
            loss=smoothed / tokens,
            nll=nll / tokens,
            tokens=int(tokens),
            figures=self._evaluator.measure(model, nll, world),
        )
