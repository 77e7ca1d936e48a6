"""The learning rate of each update.

Paper: §5.3.
"""

import math

from headwise.config import TrainConfig


def learning_rate(step: int, train: TrainConfig, d_model: int, minutes: float = 0.0) -> float:
    """Return the rate of update `step`, counted from 1, begun after so many minutes of training.

    Steps are optimizer updates, never micro-batches. The paper's schedule is
    d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5). For short budgets the others rise
    linearly to `train.peak_rate` and then fall: with the root of the step, or linearly or along
    a cosine to zero at `train.max_steps`, or at `train.max_minutes` where the decay is
    to follow the clock.

    Paper: §5.3, eq. 3.
    """
    assert step >= 1, "updates are counted from 1"
    warmup = train.warmup_steps
    if train.schedule == "paper":
        return float(d_model**-0.5 * min(step**-0.5, step * warmup**-1.5))
    risen = train.peak_rate * min(1.0, step / warmup)
    if train.schedule == "inverse-sqrt":
        return risen * min(1.0, math.sqrt(warmup / step))
    if train.decay_by == "clock":
        # From the start: on a slow machine the time may be over before the warm-up is.
        done = min(1.0, minutes / train.max_minutes)
    else:
        done = min(1.0, max(0, step - warmup) / max(1, train.max_steps - warmup))
    return risen * (
        1.0 - done if train.schedule == "linear" else 0.5 + 0.5 * math.cos(math.pi * done)
    )
