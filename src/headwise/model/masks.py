"""Attention masks: derived once from padding and causality, then passed to every layer."""

import math
from collections.abc import Callable, Hashable
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
    window: int | None = None
    """How many positions a query may attend to, its own among them: the last ones if causal, else
    those around it; None: all. A query may always attend to its own position, even to padding."""
    _cache: dict[Hashable, Tensor] = field(default_factory=dict, repr=False, compare=False)

    @property
    def reach(self) -> tuple[int, int]:
        """How many positions before and after its own a query may attend to in its window."""
        assert self.window is not None, "there is no window"
        return (self.window - 1, 0) if self.causal else (self.window // 2, (self.window - 1) // 2)

    def mask(self, num_queries: int, num_keys: int, device: torch.device) -> Tensor | None:
        """Return the mask that broadcasts to [B, H, T, S], or None when everything is allowed."""
        if self.pairs is not None:
            return self.pairs[:, None]  # [B, 1, T, S]
        if self.window is not None:
            return self._window_mask(num_queries, num_keys, device)
        if not self.causal:
            return None if self.keys is None else self.keys[:, None, None, :]  # [B, 1, 1, S]
        past = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).tril()  # [T, S]
        return past if self.keys is None else past & self.keys[:, None, None, :]  # [B, 1, T, S]

    def bias(self, num_queries: int, num_keys: int, like: Tensor) -> Tensor | None:
        """Return the same as a term to add to scores: 0 or minus infinity.

        It is computed once for all layers.
        """
        kind = (num_queries, num_keys, like.dtype)
        if kind not in self._cache:
            mask = self.mask(num_queries, num_keys, like.device)
            if mask is None:
                return None
            zeros = torch.zeros(mask.shape, dtype=like.dtype, device=like.device)
            self._cache[kind] = zeros.masked_fill_(~mask, -math.inf)
        return self._cache[kind]

    def cached(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """Return what was made for a key; make it if it is asked for the first time."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    def _window_mask(self, num_queries: int, num_keys: int, device: torch.device) -> Tensor:
        before, after = self.reach
        positions = torch.arange(num_keys, device=device)
        distance = positions - positions[:num_queries, None]  # [T, S]
        near = (-before <= distance) & (distance <= after)
        if self.keys is None:
            return near
        return near & (self.keys[:, None, None, :] | (distance == 0))  # [B, 1, T, S]


def real_keys(ids: Tensor, pad: int) -> Tensor | None:
    """Return where ids are real tokens, or None when there is no padding at all.

    The test for padding would cost a synchronisation on an accelerator and a graph break under
    torch.compile; there the mask is always returned.
    """
    real = ids != pad
    if ids.device.type == "cpu" and not torch.compiler.is_compiling() and bool(real.all()):
        return None
    return real  # [B, S]
