"""The output projection of a search's steps, with its weights packed where that pays."""

import torch
from torch import Tensor

from headwise.model.linear import few_rows_linear

_FEWEST_WEIGHTS = 2**18
"""Smaller products are a small part of a step."""
_MOST_WEIGHTS = 2**22
"""A packed copy of more is not worth its memory."""
_FEWEST_ROWS = 4
"""For fewer rows, packing takes as long as it saves in a hundred steps."""
_STEPS_BEFORE = 16
"""How many steps a search takes before the weights are packed, which costs as much as it saves in
about 20 to 30 steps: a search that has come this far is likely to go on."""


class OutputStep:
    """Compute logits x W^T of [R, D] rows, step after step of one search.

    oneDNN's own layout of the weights makes the product 1.3 to 1.9 times as fast
    (docs/decisions/0015-products-of-few-rows.md). It is a copy of the weights, so it belongs to a
    search and not to the model, whose weights may change before the next one.
    """

    def __init__(self, weight: Tensor) -> None:
        self._weight = weight
        self._packed: Tensor | None = None
        self._steps = 0
        self._can_pack = (
            weight.device.type == "cpu"
            and weight.dtype == torch.float32
            and _FEWEST_WEIGHTS <= weight.numel() < _MOST_WEIGHTS
            and packs_weights()
        )

    @property
    def is_packed(self) -> bool:
        """Whether the weights were packed."""
        return self._packed is not None

    def __call__(self, x: Tensor) -> Tensor:
        if (
            not self._can_pack
            or x.shape[0] < _FEWEST_ROWS
            or torch.compiler.is_compiling()
            or torch.is_autocast_enabled("cpu")
        ):
            return few_rows_linear(x, self._weight, None)
        if self._packed is None:
            self._steps += 1
            if self._steps <= _STEPS_BEFORE:
                return few_rows_linear(x, self._weight, None)
            self._packed = torch.ops.mkldnn._reorder_linear_weight(
                self._weight.detach(), x.shape[0]
            )
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._packed, None, "none", [], "")
        return product


def packs_weights() -> bool:
    """Return whether this torch can; the operators are private to it, and may change."""
    return torch.backends.mkldnn.is_available() and all(
        hasattr(torch.ops.mkldnn, name) for name in ("_reorder_linear_weight", "_linear_pointwise")
    )
