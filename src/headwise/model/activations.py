"""What stands between the two products of the feed-forward sub-layer.

Each may overwrite its argument: it is the product, which nothing else reads.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    # In place it saves a pass over memory. GELU's gradient needs its argument.
    "relu": torch.relu_,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}
"""By the values of `model.activation`.

Paper: §3.3, eq. 2: ReLU.
Departs from the paper with the others: GELU (Hendrycks and Gimpel, 2016), and its tanh
approximation, which GPT-2 was trained with.
"""

FUSED = {"relu": ("relu", ""), "gelu": ("gelu", "none"), "gelu_tanh": ("gelu", "tanh")}
"""What oneDNN calls them where it computes product and activation in one pass."""
