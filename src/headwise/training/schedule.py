"""The learning rate of each update.

Paper: §5.3.
"""

import math

from headwise.config import TrainConfig


def learning_rate(step: int, train: TrainConfig, d_model: int) -> float:
    """Return the rate of update `step`, counted from 1.

    Steps are optimizer updates, never micro-batches. The paper's schedule is
    d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5). For short budgets the others rise
    linearly to `train.peak_rate` and then fall: with the root of the step, or linearly or along
    a cosine to zero at `train.max_steps`.

    Paper: §5.3, eq. 3.
    """
    assert step >= 1, "updates are counted from 1"
    warmup = train.warmup_steps
    if train.schedule == "paper":
        return float(d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))
    if step <= warmup:
        return train.peak_rate * step / warmup
    if train.schedule == "inverse-sqrt":
        return train.peak_rate * math.sqrt(warmup / step)
    done = min(1.0, (step - warmup) / max(1, train.max_steps - warmup))
    if train.schedule == "linear":
        return train.peak_rate * (1.0 - done)
    return train.peak_rate * 0.5 * (1.0 + math.cos(math.pi * done))
