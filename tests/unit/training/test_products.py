"""Float32 products inside training: as exact as before, and only inside."""

import pytest
import torch

from headwise.training import products
from headwise.training.products import fast_float32_products

CPU = torch.device("cpu")


def _setting() -> str:
    value: str = torch.backends.mkldnn.matmul.fp32_precision  # type: ignore[attr-defined]
    return value


@pytest.mark.parametrize("amd", [True, False])
def test_products_inside_are_exact_on_any_processor(
    monkeypatch: pytest.MonkeyPatch, amd: bool
) -> None:
    monkeypatch.setattr(products, "is_amd", lambda: amd)
    a, b = torch.randn(300, 200), torch.randn(200, 100)
    expected = a.double() @ b.double()
    with fast_float32_products(CPU):
        # Factors rounded to bfloat16 would be wrong by some 0.1.
        assert float((a @ b - expected).abs().max()) < 1e-3


def test_the_setting_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "is_amd", lambda: True)
    monkeypatch.setattr(products, "_is_exact", lambda: True)
    before = _setting()
    with fast_float32_products(CPU):
        assert _setting() == "bf16"
        with fast_float32_products(CPU):
            pass
        assert _setting() == "bf16"
    assert _setting() == before


def test_the_setting_is_restored_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "is_amd", lambda: True)
    before = _setting()
    with pytest.raises(ValueError, match="stop"), fast_float32_products(CPU):
        raise ValueError("stop")
    assert _setting() == before


def test_nothing_changes_where_products_would_be_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "is_amd", lambda: True)
    monkeypatch.setattr(products, "_is_exact", lambda: False)
    before = _setting()
    with fast_float32_products(CPU):
        assert _setting() == before


def test_rounded_factors_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = torch.mm
    monkeypatch.setattr(torch, "mm", lambda a, b: exact(a.bfloat16().float(), b.bfloat16().float()))
    assert not products._is_exact.__wrapped__()


@pytest.mark.parametrize("reason", ["not AMD's", "not a CPU"])
def test_nothing_changes_elsewhere(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    monkeypatch.setattr(products, "is_amd", lambda: reason != "not AMD's")
    before = _setting()
    with fast_float32_products(torch.device("meta") if reason == "not a CPU" else CPU):
        assert _setting() == before
