"""Attention masks: derived once from padding and causality, then passed to every layer."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """State which keys each query may attend to.

    Paper: §3.2.3.
    """

    keys: Tensor | None = None  # [B, S]
    """True where a key is a real token; None when every key is, which needs no mask."""
    causal: bool = False
    """Whether query t may attend to the keys 0..t only."""
    pairs: Tensor | None = None  # [B, T, S]
    """True where a query may attend to a key; if given, nothing else is."""
    _biases: dict[tuple[int, int, torch.dtype], Tensor] = field(
        default_factory=dict, repr=False, compare=False
    )

    def mask(self, num_queries: int, num_keys: int, device: torch.device) -> Tensor | None:
        """Return the mask that broadcasts to [B, H, T, S], or None when everything is allowed."""
        if self.pairs is not None:
            return self.pairs[:, None]  # [B, 1, T, S]
        if not self.causal:
            return None if self.keys is None else self.keys[:, None, None, :]  # [B, 1, 1, S]
        past = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).tril()  # [T, S]
        return past if self.keys is None else past & self.keys[:, None, None, :]  # [B, 1, T, S]

    def bias(self, num_queries: int, num_keys: int, like: Tensor) -> Tensor | None:
        """Return the same as a term to add to scores: 0 or minus infinity.

        It is computed once for all layers.
        """
        kind = (num_queries, num_keys, like.dtype)
        if kind not in self._biases:
            mask = self.mask(num_queries, num_keys, like.device)
            if mask is None:
                return None
            zeros = torch.zeros(mask.shape, dtype=like.dtype, device=like.device)
            self._biases[kind] = zeros.masked_fill_(~mask, -math.inf)
        return self._biases[kind]


def real_keys(ids: Tensor, pad: int) -> Tensor | None:
    """Return where ids are real tokens, or None when there is no padding at all.

    The test for padding would cost a synchronisation on an accelerator and a graph break under
    torch.compile; there the mask is always returned.
    """
    real = ids != pad
    if ids.device.type == "cpu" and not torch.compiler.is_compiling() and bool(real.all()):
        return None
    return real  # [B, S]
