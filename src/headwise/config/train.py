"""The section [train] of a config."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from headwise.checks import (
    check_types,
    require,
    require_at_least,
    require_not_negative,
    require_share,
)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How the model is trained (§5)."""

    name: ClassVar[str] = "train"

    batch_tokens: int = 25_000
    """Tokens of each side in one batch; an update takes `accumulate` such batches."""
    accumulate: int = 1
    """Batches of each process whose gradients make one update: how small machines reach a large
    batch."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """What products are computed in; weights and sums stay in float32."""
    compile: bool = False
    """Whether torch compiles the training step: for accelerators; on CPUs it measured slower."""
    schedule: Literal["paper", "inverse-sqrt", "linear", "cosine"] = "paper"
    """The paper's learning rate, or warm-up to `peak_rate` followed by the decay named."""
    peak_rate: float = 0.0
    """Learning rate at the end of warm-up; the paper's schedule has its own and wants 0 here."""
    warmup_steps: int = 4000
    """Updates over which the learning rate rises."""
    decay_by: Literal["steps", "clock"] = "steps"
    """What a linear or cosine decay follows to zero: `max_steps`, or `max_minutes`."""
    adam_beta1: float = 0.9
    """Decay of Adam's mean of gradients."""
    adam_beta2: float = 0.98
    """Decay of Adam's mean of squared gradients."""
    adam_epsilon: float = 1e-9
    """What Adam adds to the root of the latter."""
    clip_norm: float = 0.0
    """Longest gradient that is taken as it is; a longer one is scaled to this. 0 never scales."""
    label_smoothing: float = 0.1
    """Probability mass taken from the right token and spread over all others."""
    max_steps: int = 100_000
    """Updates after which training ends."""
    max_epochs: int = 0
    """Passes over the data after which training ends; 0 sets no such limit."""
    max_tokens: int = 0
    """Target tokens after which training ends; 0 sets no such limit."""
    max_minutes: float = 0.0
    """Minutes of wall clock after which training ends; 0 sets no such limit."""
    patience: int = 0
    """Validations without a better result after which training ends; 0 sets no such limit."""
    bleu_pairs: int = 0
    """Validation pairs to translate at each validation; with any, BLEU decides which is best."""
    log_every_steps: int = 50
    """Updates that one line of metrics.jsonl sums up."""
    save_every_steps: int = 0
    """Updates from one checkpoint, with its validation, to the next; 0 leaves it to the clock."""
    save_every_minutes: float = 10.0
    """Minutes from one checkpoint, with its validation, to the next; 0 leaves it to the steps."""
    keep_last: int = 5
    """Checkpoints kept beside the best one; never fewer than `average_last`."""
    average_last: int = 5
    """Checkpoints whose weights are averaged into the final model."""
    seed: int = 1
    """What every random number is derived from."""

    def __post_init__(self) -> None:
        check_types(self)
        require_at_least(
            self,
            1,
            "batch_tokens",
            "accumulate",
            "warmup_steps",
            "max_steps",
            "log_every_steps",
            "average_last",
        )
        # With a single one there would be nothing to fall back on when it turns out damaged.
        require_at_least(self, 2, "keep_last")
        require_not_negative(
            self,
            "peak_rate",
            "clip_norm",
            "max_epochs",
            "max_tokens",
            "max_minutes",
            "patience",
            "bleu_pairs",
            "save_every_steps",
            "save_every_minutes",
            "seed",
        )
        if self.decay_by == "clock":
            require(
                self,
                "decay_by",
                self.schedule in ("linear", "cosine") and self.max_minutes > 0,
                "'steps' unless the schedule is 'linear' or 'cosine' and train.max_minutes is set",
            )
        if self.schedule == "paper":
            require(
                self,
                "peak_rate",
                self.peak_rate == 0,
                "0 with train.schedule = 'paper', which sets it",
            )
        else:
            require(
                self,
                "peak_rate",
                self.peak_rate > 0,
                f"above 0 with train.schedule = {self.schedule!r}",
            )
        require_share(self, "label_smoothing", "adam_beta1", "adam_beta2")
        require(self, "adam_epsilon", 0 < self.adam_epsilon < math.inf, "a number above 0")
        require(
            self,
            "save_every_minutes",
            self.save_every_minutes > 0 or self.save_every_steps > 0,
            "above 0 where train.save_every_steps is 0, or nothing would ever be saved",
        )
