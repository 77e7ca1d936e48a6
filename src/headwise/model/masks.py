"""Who may attend to whom: derived once from padding and causality, then handed to every layer."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """State which keys each query may attend to.

    Paper: §3.2.3.
    """

    keys: Tensor | None = None  # [B, S]
    """True where a key is a real token; None when every key is, so that nothing is paid for it."""
    causal: bool = False
    """Whether query t may see only the keys 0..t."""

    def mask(self, num_queries: int, num_keys: int, device: torch.device) -> Tensor | None:
        """Return the mask that broadcasts to [B, H, T, S], or None when everything is allowed."""
        if not self.causal:
            return None if self.keys is None else self.keys[:, None, None, :]  # [B, 1, 1, S]
        past = torch.ones(num_queries, num_keys, dtype=torch.bool, device=device).tril()  # [T, S]
        return past if self.keys is None else past & self.keys[:, None, None, :]  # [B, 1, T, S]


def real_keys(ids: Tensor, pad: int) -> Tensor | None:
    """Return where ids are real tokens, or None when there is no padding at all.

    Looking costs a synchronisation on an accelerator and a graph break under torch.compile;
    there the mask is always returned.
    """
    real = ids != pad
    if ids.device.type == "cpu" and not torch.compiler.is_compiling() and bool(real.all()):
        return None
    return real  # [B, S]
