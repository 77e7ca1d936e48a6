"""Float32 products by the faster of the two libraries that torch carries."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Protocol

import torch
import torch.nn.functional as F

from headwise.machine import is_amd

_SIZE = 256
_LARGEST_ERROR = 1e-3
"""Of sums of 256 products of numbers around 1. Float32 is wrong by about 1e-5, and factors rounded
to bfloat16 by about 1e-1."""


class _Setting(Protocol):
    """What torch's own type hints leave out."""

    fp32_precision: str


@contextmanager
def fast_float32_products(device: torch.device) -> Iterator[None]:
    """Compute float32 products inside with oneDNN where that is faster and as exact.

    On x86, torch leaves them to MKL, which computes them at half of the speed of oneDNN on AMD's
    processors (docs/decisions/0018-float32-products.md). torch gives them to oneDNN only where a
    setting allows it to round their factors to bfloat16, which oneDNN does on processors with AMX
    alone. So this allows it on AMD's processors, if a product shows that nothing is rounded.
    """
    setting: _Setting = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    before = setting.fp32_precision
    if device.type != "cpu" or not is_amd() or not torch.backends.mkldnn.is_available():
        yield
        return
    setting.fp32_precision = "bf16"
    try:
        if not _is_exact():
            setting.fp32_precision = before
        yield
    finally:
        setting.fp32_precision = before


@cache
def _is_exact() -> bool:
    """Return whether products are computed in full float32 under the setting of the moment."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(2, _SIZE, _SIZE, generator=generator) for _ in range(2))
    expected = a.double() @ b.double()
    tall, wide = a.view(-1, _SIZE // 8), b.view(-1, _SIZE // 8)[:_SIZE]  # As of a narrow model.
    errors = (
        torch.bmm(a, b) - expected,
        torch.mm(a[0], b[0]) - expected[0],
        F.linear(tall, wide, b[0, 0]) - (tall.double() @ wide.double().t() + b[0, 0]),
    )
    return all(float(error.abs().max()) < _LARGEST_ERROR for error in errors)
