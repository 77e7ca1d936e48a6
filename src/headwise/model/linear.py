"""The affine map under every projection, in the form that is fastest on CPU."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_FEWEST_WEIGHTS = 2**18
"""Smaller matrices stay in a core's cache, where splitting them only costs calls."""
_UNCACHED_WEIGHTS = 2**22
"""Larger matrices are in no cache: the time is that of reading them from memory."""
_MOST_ROWS = 64
"""Beyond these, torch's own product is as fast."""
_FEW_ROWS = 4
"""Up to these, weights that are not cached are read faster as the left factor."""
_PARTS = (16, 8, 4, 2)
"""How many parts the outputs are divided into: the most that leave no rest."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute x W^T + b on the last dimension.

    On CPU `F.linear` fills the output with the bias first and lets the product read it back; in
    training, adding the bias to the finished product is up to 1.5 times as fast. Without gradients
    one call instead of five matters more: a step of decoding has two dozen of them.
    """
    if not torch.is_grad_enabled():
        return few_rows_linear(x, weight, bias) if x.dim() == 2 else F.linear(x, weight, bias)
    if bias is None or x.device.type != "cpu" or torch.compiler.is_compiling():
        return F.linear(x, weight, bias)
    if torch.is_autocast_enabled("cpu"):
        return F.linear(x, weight, bias)
    # Add the bias to the flat product: autograd would copy a view of it.
    product = torch.mm(x.flatten(0, -2), weight.t()).add_(bias)
    return product if x.dim() == 2 else product.view(*x.shape[:-1], weight.shape[0])


def few_rows_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute x W^T + b for the few rows of a decoding step. It has no gradient.

    For a handful of rows the time is that of reading the weights. torch gives such a product to one
    thread, and at half of what that thread can read. As a batch of products over parts of the
    weights it is 1.2 to 4 times as fast (docs/decisions/0015-products-of-few-rows.md).
    """
    rows, (outputs, inputs) = x.shape[0], weight.shape
    if (
        rows > _MOST_ROWS
        or weight.numel() < _FEWEST_WEIGHTS
        or outputs % 2
        or x.device.type != "cpu"
        or x.dtype != torch.float32
        or torch.compiler.is_compiling()
        or torch.is_autocast_enabled("cpu")
    ):
        return F.linear(x, weight, bias)
    is_uncached = weight.numel() >= _UNCACHED_WEIGHTS
    if not is_uncached and torch.get_num_threads() == 1:
        return F.linear(x, weight, bias)
    count = next(count for count in _PARTS if outputs % count == 0)
    parts = weight.view(count, outputs // count, inputs)
    if is_uncached and rows <= _FEW_ROWS:
        products = torch.bmm(parts, x.t().expand(count, inputs, rows))  # [P, O/P, R]
        product = products.view(outputs, rows).t().contiguous()
    else:
        products = torch.bmm(x.expand(count, rows, inputs), parts.transpose(1, 2))  # [P, R, O/P]
        product = products.transpose(0, 1).reshape(rows, outputs)
    return product if bias is None else product.add_(bias)


class Linear(nn.Linear):
    """`nn.Linear`, computed by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)
