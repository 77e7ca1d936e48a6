"""A projection in the steps of a search, with its weights packed where that pays."""

import math

import torch
from torch import Tensor

from headwise.model.activations import ACTIVATIONS, FUSED
from headwise.model.linear import few_rows_linear

_MANY_WEIGHTS = 2**18
"""From here on the time is that of the product; below, an activation is as much of it."""
_MOST_WEIGHTS = 2**22
"""A packed copy of more is not worth its memory."""
_FEWEST_ROWS = 4
"""For fewer rows, packing takes as long as it saves in a hundred steps."""
_FEWEST_ROWS_OF_FEW_WEIGHTS = 8
_MOST_ROWS = 64
"""For more rows, a product with its activation was not measured to be faster."""
_STEPS_BEFORE = 16
"""How many steps a search takes before the weights are packed, which costs as much as it saves in
about 20 to 30 steps: a search that has come this far is likely to go on."""


class StepProjection:
    """Compute x W^T + b of [R, D] rows, and an activation of it, step after step of one search.

    oneDNN's own layout of the weights makes a large product 1.3 to 1.9 times as fast, and a small
    one with its activation twice as fast (docs/decisions/0015-products-of-few-rows.md). It is a
    copy of the weights, so it belongs to a search and not to the model, whose weights may change
    before the next one.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None = None, activation: str | None = None
    ) -> None:
        self._weight, self._bias = weight, bias
        self._activation = None if activation is None else ACTIVATIONS[activation]
        self._fused = ("none", "") if activation is None else FUSED[activation]
        self._packed: Tensor | None = None
        self._steps = 0
        is_small = weight.numel() < _MANY_WEIGHTS
        self._fewest_rows = _FEWEST_ROWS_OF_FEW_WEIGHTS if is_small else _FEWEST_ROWS
        self._most_rows = math.inf if activation is None else _MOST_ROWS
        self._can_pack = (
            weight.device.type == "cpu"
            and weight.dtype == torch.float32
            and weight.numel() < _MOST_WEIGHTS
            and not (is_small and activation is None)
            and packs_weights()
        )

    @property
    def is_packed(self) -> bool:
        """Whether the weights were packed."""
        return self._packed is not None

    def __call__(self, x: Tensor) -> Tensor:
        if (
            not self._can_pack
            or not self._fewest_rows <= x.shape[0] <= self._most_rows
            or torch.compiler.is_compiling()
            or torch.is_autocast_enabled("cpu")
        ):
            return self._unpacked(x)
        if self._packed is None:
            self._steps += 1
            if self._steps <= _STEPS_BEFORE:
                return self._unpacked(x)
            self._packed = torch.ops.mkldnn._reorder_linear_weight(
                self._weight.detach(), x.shape[0]
            )
        name, algorithm = self._fused
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            x, self._packed, self._bias, name, [], algorithm
        )
        return product

    def _unpacked(self, x: Tensor) -> Tensor:
        product = few_rows_linear(x, self._weight, self._bias)
        return product if self._activation is None else self._activation(product)


def packs_weights() -> bool:
    """Return whether this torch can; the operators are private to it, and may change."""
    return torch.backends.mkldnn.is_available() and all(
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )
