"""Restricted self-attention: in blocks as under a mask, within a model, and with a cache."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from headwise.config import ModelConfig
from headwise.errors import ConfigError
from headwise.model import Allowed, LanguageModel, Transformer, build_model
from headwise.model.attention import attention, explicit_attention
from headwise.model.attention.window import suits_window_attention, window_attention
from tests.conftest import VOCAB, make_batch, model_config

Build = Callable[..., Transformer]

LENGTHS = (1, 63, 64, 65, 127, 129, 300)
WINDOWS = (1, 2, 5, 64, 65, 66, 131)


def operands(length: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(length)
    q, k, v = (
        torch.randn(2, 3, length, width, generator=generator, dtype=dtype) for width in (5, 5, 7)
    )
    return q, k, v


def padding(length: int) -> Tensor:
    """Return which keys are real: all of one sequence, the first ones of the other."""
    return torch.arange(length) < torch.tensor([[length], [max(1, length // 4)]])


def band(length: int, before: int, after: int) -> Tensor:
    """Write the window out, pair by pair."""
    return torch.tensor(
        [[-before <= key - query <= after for key in range(length)] for query in range(length)]
    )


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-6)])
def test_blocks_equal_full_attention_under_a_band_mask(
    causal: bool, padded: bool, dtype: torch.dtype, tolerance: float
) -> None:
    for length in LENGTHS:
        for window in WINDOWS:
            keys = padding(length) if padded else None
            allowed = Allowed(causal=causal, keys=keys, window=window)
            mask = (
                band(length, window - 1, 0)
                if causal
                else band(length, window // 2, (window - 1) // 2)
            )
            if keys is not None:
                mask = mask & (keys[:, None, None] | torch.eye(length, dtype=torch.bool))
            q, k, v = inputs = tuple(x.requires_grad_() for x in operands(length, dtype))
            expected = explicit_attention(q, k, v, mask)
            found = window_attention(q, k, v, allowed)
            torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)
            weight = torch.randn(
                found.shape, dtype=dtype, generator=torch.Generator().manual_seed(1)
            )
            for ours, theirs in zip(
                torch.autograd.grad((found * weight).sum(), inputs),
                torch.autograd.grad((expected * weight).sum(), inputs),
                strict=True,
            ):
                torch.testing.assert_close(ours, theirs, rtol=0, atol=10 * tolerance)


@pytest.mark.parametrize("length", [9, 400])
def test_every_path_sees_the_same_window(length: int) -> None:
    q, k, v = operands(length)
    allowed = Allowed(keys=padding(length), window=6)
    trace: list[Tensor] = []
    traced = attention(q, k, v, allowed, trace=trace)
    torch.testing.assert_close(attention(q, k, v, allowed), traced, rtol=0, atol=1e-12)
    assert trace[0].shape == (2, 3, length, length)
    assert int((trace[0][0] > 0).sum(-1).max()) == 6
    assert suits_window_attention(q, k, allowed) == (length == 400)


def test_the_gradient_with_dropout_is_the_functions_slope() -> None:
    q, k, v = (x[:1, :1].requires_grad_() for x in operands(25))

    def drop(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        torch.manual_seed(3)
        return window_attention(q, k, v, Allowed(window=4), 0.4)

    assert torch.autograd.gradcheck(drop, (q, k, v))
    assert not torch.equal(drop(q, k, v), window_attention(q, k, v, Allowed(window=4)))


def test_dropout_keeps_the_mean() -> None:
    q, k, v = operands(200)
    torch.manual_seed(1)
    allowed = Allowed(causal=True, window=9)
    dropped = torch.stack([window_attention(q, k, v, allowed, 0.2) for _ in range(400)])
    expected = window_attention(q, k, v, allowed)
    torch.testing.assert_close(dropped.mean(0), expected, rtol=0, atol=0.25)
    assert float((dropped.mean(0) - expected).mean().abs()) < 2e-3


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("length", [23, 230])
def test_a_window_of_everything_is_full_attention(build: Build, length: int) -> None:
    src, tgt_in, _ = make_batch(source=length, target=length)
    src[2, length // 2 :] = VOCAB.pad
    full = build()
    window = build(attention="window", window=2 * length)
    torch.testing.assert_close(window(src, tgt_in), full(src, tgt_in), rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("length", [40, 300])
def test_layers_see_no_further_than_their_windows(length: int) -> None:
    torch.manual_seed(7)
    config = model_config(attention="window", window=5)
    model = build_model(config, VOCAB, "decoder")
    ids = torch.randint(4, 23, (1, length))
    changed = ids.clone()
    changed[0, 11] = 4 + (ids[0, 11] - 3) % 19
    differs = (model(ids) != model(changed)).any(-1)[0].nonzero().flatten().tolist()
    assert differs == list(range(11, 11 + 1 + config.num_layers * 4))


@pytest.mark.usefixtures("double")
def test_padding_far_from_any_token_is_harmless(build: Build) -> None:
    src, tgt_in, _ = make_batch(source=300)
    model = build(attention="window", window=3)
    alone = model(src[:1, :20], tgt_in[:1])
    src[0, 20:] = VOCAB.pad
    found = model(src, tgt_in)
    assert bool(found.isfinite().all())
    torch.testing.assert_close(found[:1], alone, rtol=0, atol=1e-12)
    found.sum().backward()
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("prompt", [1, 4, 90])
def test_a_cache_holds_the_window_only(prompt: int) -> None:
    torch.manual_seed(7)
    model = build_model(model_config(attention="window", window=8), VOCAB, "decoder").eval()
    assert isinstance(model, LanguageModel)
    ids = torch.randint(4, 23, (3, 200))
    full = model(ids)
    state = model.start(ids[:, :prompt])
    for position in range(prompt - 1, 200):
        logits, state = model.step(ids[:, position], state)
        torch.testing.assert_close(logits, full[:, position], rtol=0, atol=1e-12)
        if position > prompt:
            assert state.caches[0].length <= 2 * 8 + 1


def test_wrong_combinations_name_both_keys() -> None:
    for settings, message in (
        ({"attention": "window"}, r"model.window = 0 must be above 0 with model.attention"),
        ({"window": 3}, r"model.window = 3 must be 0 with model.attention = 'full'"),
        ({"attention": "window", "window": -1}, r"model.window = -1"),
    ):
        with pytest.raises(ConfigError, match=message):
            ModelConfig(**settings)
