import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from headwise.training import loss as loss_module
from headwise.training.loss import smoothed_cross_entropy

PAD = 0
V, D = 29, 7


def operands(
    tokens: int, dtype: torch.dtype = torch.float64, padded: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(tokens, D, generator=generator, dtype=dtype)
    weight = torch.randn(V, D, generator=generator, dtype=dtype)
    targets = torch.randint(1, V, (tokens,), generator=generator)
    if padded:
        targets[::3] = PAD
    return hidden.requires_grad_(), weight.requires_grad_(), targets


def torchs(hidden: Tensor, weight: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(
        F.linear(hidden, weight),
        targets,
        ignore_index=PAD,
        reduction="sum",
        label_smoothing=smoothing * V / (V - 1),
    )


@pytest.mark.parametrize("tokens", [1, 10, 11, 33])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
@pytest.mark.parametrize("padded", [False, True])
def test_chunked_loss_and_gradients_equal_torchs(
    monkeypatch: pytest.MonkeyPatch, tokens: int, smoothing: float, padded: bool
) -> None:
    monkeypatch.setattr(loss_module, "CHUNK_TOKENS", 11)
    inputs = operands(tokens, padded=padded and tokens > 1)
    hidden, weight, targets = inputs
    smoothed, nll, count = smoothed_cross_entropy(*inputs, smoothing=smoothing, pad=PAD)
    expected = torchs(*inputs, smoothing)
    torch.testing.assert_close(smoothed, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(nll, torchs(*inputs, 0.0).detach(), rtol=0, atol=1e-10)
    assert count == (targets != PAD).sum()
    ours = torch.autograd.grad(smoothed / count, (hidden, weight))
    theirs = torch.autograd.grad(expected / count, (hidden, weight))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def test_the_smoothed_target_is_spread_over_all_others() -> None:
    """1 - eps on the target, eps / (V - 1) on each other entry, written out."""
    hidden, weight, targets = operands(5)
    log_probs = F.log_softmax(F.linear(hidden, weight), dim=-1)
    spread = torch.full_like(log_probs, 0.1 / (V - 1))
    spread[torch.arange(5), targets] = 0.9
    torch.testing.assert_close(spread.sum(1), torch.ones(5, dtype=torch.float64))
    smoothed, _, _ = smoothed_cross_entropy(hidden, weight, targets, smoothing=0.1, pad=PAD)
    torch.testing.assert_close(smoothed, -(spread * log_probs).sum(), rtol=0, atol=1e-10)


def test_single_precision_is_close() -> None:
    hidden, weight, targets = operands(700, torch.float32)
    smoothed, _, count = smoothed_cross_entropy(hidden, weight, targets, smoothing=0.1, pad=PAD)
    expected = torchs(hidden.double(), weight.double(), targets, 0.1)
    assert (smoothed / count).item() == pytest.approx((expected / count).item(), rel=1e-6)


@pytest.mark.parametrize("gap", [80.0, 100.0, 1000.0])
def test_a_hopeless_target_has_its_true_loss(gap: float) -> None:
    """Where the probability underflows to zero its logarithm must not."""
    hidden = torch.ones(2, 1, requires_grad=True)
    weight = torch.tensor([[0.0], [gap], [0.0]], requires_grad=True)
    targets = torch.tensor([2, 1])
    smoothed, nll, _ = smoothed_cross_entropy(hidden, weight, targets, smoothing=0.0, pad=PAD)
    assert nll.item() == pytest.approx(gap, rel=1e-6)
    (gradient,) = torch.autograd.grad(smoothed, weight)
    torch.testing.assert_close(gradient, torch.tensor([[0.0], [1.0], [-1.0]]))


def test_logits_of_all_tokens_never_exist_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "CHUNK_TOKENS", 16)

    class LargestResult(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.elements = 0

        def __torch_dispatch__(
            self,
            func: Callable[..., object],
            types: object,
            args: tuple[object, ...] = (),
            kwargs: dict[str, object] | None = None,
        ) -> object:
            result = func(*args, **(kwargs or {}))
            for tensor in result if isinstance(result, tuple) else (result,):
                if isinstance(tensor, Tensor):
                    self.elements = max(self.elements, tensor.numel())
            return result

    inputs = operands(64)
    with LargestResult() as largest:
        smoothed, _, _ = smoothed_cross_entropy(*inputs, smoothing=0.1, pad=PAD)
        smoothed.backward()
    assert largest.elements == 16 * V < 64 * V


@pytest.mark.parametrize("frozen", ["hidden", "weight"])
def test_either_side_may_be_frozen(frozen: str) -> None:
    hidden, weight, targets = operands(5)
    (hidden if frozen == "hidden" else weight).requires_grad_(False)
    free = weight if frozen == "hidden" else hidden
    smoothed, nll, _ = smoothed_cross_entropy(hidden, weight, targets, smoothing=0.1, pad=PAD)
    assert not nll.requires_grad
    (ours,) = torch.autograd.grad(smoothed, free)
    (expected,) = torch.autograd.grad(torchs(hidden, weight, targets, 0.1), free)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-10)


def test_without_gradients_none_are_computed() -> None:
    hidden, weight, targets = operands(5)
    with torch.no_grad():
        smoothed, _, _ = smoothed_cross_entropy(hidden, weight, targets, smoothing=0.1, pad=PAD)
    assert not smoothed.requires_grad
    frozen = smoothed_cross_entropy(
        hidden.detach(), weight.detach(), targets, smoothing=0.1, pad=PAD
    )
    assert not frozen[0].requires_grad


def test_uniform_logits_cost_the_logarithm_of_the_vocabulary() -> None:
    hidden, weight = torch.zeros(3, D), torch.randn(V, D)
    smoothed, nll, _ = smoothed_cross_entropy(
        hidden, weight, torch.tensor([1, 2, 3]), smoothing=0.1, pad=PAD
    )
    assert smoothed.item() == pytest.approx(3 * math.log(V), rel=1e-6)
    assert nll.item() == pytest.approx(3 * math.log(V), rel=1e-6)
