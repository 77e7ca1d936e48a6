"""The affine map under every projection, in the form that is fastest on CPU."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_FEWEST_WEIGHTS = 2**18
"""Smaller matrices stay in the cache, where splitting them only costs calls."""
_FEW_ROWS = 7
"""Up to here the weights are the left factor, and the rows its columns."""
_SOME_ROWS = 64
"""Up to here two threads gain by a half of the weights each."""


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
    thread, and at half of what that thread can read. As two products over halves of the weights it
    is 1.5 to 4 times as fast (docs/decisions/0015-products-of-few-rows.md).
    """
    rows, (outputs, inputs) = x.shape[0], weight.shape
    if (
        rows > _SOME_ROWS
        or weight.numel() < _FEWEST_WEIGHTS
        or outputs % 2
        or x.device.type != "cpu"
        or x.dtype != torch.float32
        or torch.compiler.is_compiling()
        or torch.is_autocast_enabled("cpu")
    ):
        return F.linear(x, weight, bias)
    halves = weight.view(2, outputs // 2, inputs)
    if rows <= _FEW_ROWS:
        columns = x.t().expand(2, inputs, rows)
        if bias is None:
            products = torch.bmm(halves, columns)  # [2, O/2, R]
        else:
            products = torch.baddbmm(bias.view(2, -1, 1), halves, columns)
        return products.view(outputs, rows).t().contiguous()
    if torch.get_num_threads() == 1:
        return F.linear(x, weight, bias)
    both, columns = x.expand(2, rows, inputs), halves.transpose(1, 2)
    if bias is None:
        products = torch.bmm(both, columns)  # [2, R, O/2]
    else:
        products = torch.baddbmm(bias.view(2, 1, -1), both, columns)
    return products.transpose(0, 1).reshape(rows, outputs)


class Linear(nn.Linear):
    """`nn.Linear`, computed by `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)
