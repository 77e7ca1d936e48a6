"""Adam, with the paper's constants.

Paper: §5.3.
"""

from collections.abc import Iterable

import torch
from torch import nn

from headwise.config import TrainConfig


def adam(parameters: Iterable[nn.Parameter], train: TrainConfig) -> torch.optim.Adam:
    """Make the optimizer; its rate is set before each update, from `learning_rate`.

    The fused form goes through memory once for each parameter instead of once for each operation.

    Paper: §5.3.
    """
    return torch.optim.Adam(
        parameters,
        lr=0.0,
        betas=(train.adam_beta1, train.adam_beta2),
        eps=train.adam_epsilon,
        fused=True,
    )
