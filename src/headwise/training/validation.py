"""How well the model predicts text it was not trained on."""

from dataclasses import dataclass

import torch
from torch import nn

from headwise.data import Subwords, TokenShards
from headwise.data.batches import Batches
from headwise.training.distributed import World
from headwise.training.window import perplexity


@dataclass(frozen=True, kw_only=True)
class ValidationResult:
    """Means over the whole validation text."""

    loss: float
    """Smoothed loss for each target token, in nats."""
    nll: float
    """Negative log-likelihood of each target token, in nats."""
    word_nll: float
    """The same for each word: what models with different vocabularies are compared by."""
    tokens: int
    words: int

    @property
    def perplexity(self) -> float:
        """Perplexity of a token, as the paper's Table 3 has it."""
        return perplexity(self.nll)

    @property
    def word_perplexity(self) -> float:
        """Perplexity of a word."""
        return perplexity(self.word_nll)

    def to_dict(self) -> dict[str, float]:
        """Return everything as a line of metrics has it."""
        return {
            "loss": self.loss,
            "nll": self.nll,
            "perplexity": self.perplexity,
            "word_perplexity": self.word_perplexity,
            "tokens": self.tokens,
            "words": self.words,
        }


class ValidationText:
    """Validation pairs in batches, and how many words they have."""

    def __init__(self, batches: Batches, shards: TokenShards, target: Subwords) -> None:
        self._batches = batches
        self._places = list(batches.epoch(0))
        # Words as white space parts them, and the end of each sentence, which is predicted too.
        self.words = sum(
            len(target.decode(shards.sequence("target", int(pair)).tolist()).split()) + 1
            for place in self._places
            for pair in place
        )

    def measure(self, step: nn.Module, world: World, autocast: torch.autocast) -> ValidationResult:
        """Return the means, each process taking its share of the batches."""
        sums = [0.0, 0.0, 0.0]
        was_training = step.training
        step.eval()
        with torch.no_grad(), autocast:
            for place in self._places[world.rank :: world.size]:
                batch = self._batches.collate(place).to(world.device)
                losses, count = step(batch.src, batch.tgt_in, batch.tgt_out)
                for position, value in enumerate((*losses, count)):
                    sums[position] += float(value)
        step.train(was_training)
        smoothed, nll, tokens = world.sum(sums)
        return ValidationResult(
            loss=smoothed / tokens,
            nll=nll / tokens,
            word_nll=nll / self.words,
            tokens=int(tokens),
            words=self.words,
        )
