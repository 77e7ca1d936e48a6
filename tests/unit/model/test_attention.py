import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.model.attention import MultiHeadAttention, attention, explicit_attention
from headwise.model.attention.short import LONGEST, short_attention, suits_short_attention
from headwise.model.masks import Allowed, real_keys
from tests import reference
from tests.conftest import model_config

B, H, K, KV = 2, 3, 5, 7
CAUSAL, NOTHING_HIDDEN = Allowed(causal=True), Allowed()


def operands(
    queries: int, keys: int, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(shape, generator=generator, dtype=dtype, requires_grad=True)
        for shape in ((B, H, queries, K), (B, H, keys, K), (B, H, keys, KV))
    )
    return q, k, v


def padded(keys: int, causal: bool = False) -> Allowed:
    real = torch.ones(B, keys, dtype=torch.bool)
    real[1, keys // 2 :] = False
    return Allowed(keys=real, causal=causal)


def gradients(output: Tensor, inputs: Sequence[Tensor]) -> list[Tensor]:
    weights = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    return list(torch.autograd.grad((output * weights).sum(), inputs))


# Fewer keys than a vector register, more, and more than the short path takes.
LENGTHS = [1, 2, 11, 16, 37, LONGEST, LONGEST + 3]


@pytest.mark.parametrize("keys", LENGTHS)
@pytest.mark.parametrize("hidden", ["nothing", "padding", "future", "both"])
def test_fused_equals_explicit_equals_numpy(keys: int, hidden: str) -> None:
    queries = keys if hidden in ("future", "both") else 13
    allowed = {
        "nothing": NOTHING_HIDDEN,
        "padding": padded(keys) if keys > 1 else NOTHING_HIDDEN,
        "future": CAUSAL,
        "both": padded(keys, causal=True) if keys > 1 else CAUSAL,
    }[hidden]
    inputs = operands(queries, keys)
    fused = attention(*inputs, allowed)
    mask = allowed.mask(queries, keys, torch.device("cpu"))
    explicit = explicit_attention(*inputs, mask)
    q, k, v = (t.detach().numpy() for t in inputs)
    expected = reference.attention(q, k, v, None if mask is None else mask.numpy())
    assert fused.shape == (B, H, queries, KV)
    np.testing.assert_allclose(explicit.detach().numpy(), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(fused.detach().numpy(), expected, rtol=0, atol=1e-12)
    for ours, theirs in zip(gradients(fused, inputs), gradients(explicit, inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("allowed", [NOTHING_HIDDEN, CAUSAL, padded(LONGEST + 3)])
def test_torchs_flash_kernel_equals_explicit(allowed: Allowed) -> None:
    """It takes only values as wide as keys, which the test above never has."""
    keys = LONGEST + 3
    q, k, _ = operands(keys, keys)
    mask = allowed.mask(keys, keys, q.device)
    fused, explicit = attention(q, k, k, allowed), explicit_attention(q, k, k, mask)
    torch.testing.assert_close(fused, explicit, rtol=0, atol=1e-12)
    for ours, theirs in zip(gradients(fused, [q, k]), gradients(explicit, [q, k]), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_the_lengths_above_cover_both_paths() -> None:
    suited = [suits_short_attention(*operands(n, n)) for n in LENGTHS]
    assert suited == [True] * 6 + [False]


@pytest.mark.parametrize("allowed", [NOTHING_HIDDEN, padded(3 * LONGEST)])
def test_few_queries_take_the_short_path_with_any_number_of_keys(allowed: Allowed) -> None:
    """As in a step of decoding; with gradients they would keep all weights in memory."""
    inputs = operands(4, 3 * LONGEST)
    assert not suits_short_attention(*inputs)
    with torch.no_grad():
        assert suits_short_attention(*inputs)
        assert not suits_short_attention(*operands(17, 3 * LONGEST))
        mask = allowed.mask(4, 3 * LONGEST, torch.device("cpu"))
        short, explicit = attention(*inputs, allowed), explicit_attention(*inputs, mask)
    torch.testing.assert_close(short, explicit, rtol=0, atol=1e-12)


def test_the_gradient_of_short_attention_is_the_functions_slope() -> None:
    for keys in (3, 17):
        inputs = operands(3, keys)
        assert torch.autograd.gradcheck(lambda q, k, v: short_attention(q, k, v, None), inputs)


def test_single_precision_is_as_good_as_single_precision_gets() -> None:
    for keys in (11, 37, LONGEST + 3):
        q, k, v = operands(13, keys)
        exact = attention(q, k, v, NOTHING_HIDDEN)
        single = attention(q.float(), k.float(), v.float(), NOTHING_HIDDEN)
        torch.testing.assert_close(single, exact.float(), rtol=0, atol=1e-5)


def test_large_scores_do_not_overflow() -> None:
    for keys in (11, 37):
        q, k, v = (t.detach() for t in operands(keys, keys, torch.float32))
        output = attention(q * 1e4, k * 1e4, v, CAUSAL)
        assert torch.isfinite(output).all()


@pytest.mark.parametrize("causal", [False, True])
def test_a_trace_changes_nothing_and_records_the_weights(causal: bool) -> None:
    inputs = operands(11, 11)
    trace: list[Tensor] = []
    traced = attention(*inputs, Allowed(causal=causal), trace=trace)
    torch.testing.assert_close(traced, attention(*inputs, Allowed(causal=causal)))
    (weights,) = trace
    assert weights.shape == (B, H, 11, 11)
    assert not weights.requires_grad
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, H, 11, dtype=torch.float64))
    torch.testing.assert_close(weights @ inputs[2], traced)
    assert bool((weights.triu(1) == 0).all()) is causal


def test_dot_products_are_divided_by_the_root_of_d_k() -> None:
    q = torch.full((1, 1, 1, 4), 1.0)
    k = torch.tensor([[[[1.0, 1, 1, 1], [0, 0, 0, 0]]]])
    v = torch.tensor([[[[1.0], [0.0]]]])
    expected = math.exp(2) / (math.exp(2) + 1)  # 4 / sqrt(4) = 2
    assert attention(q, k, v, NOTHING_HIDDEN).item() == pytest.approx(expected)


def test_a_hidden_key_gets_nothing_however_well_it_matches() -> None:
    for keys in (3, 37, LONGEST + 3):
        q = torch.full((1, 1, keys, 2), 1e3)
        k, v = torch.zeros(1, 1, keys, 2), torch.zeros(1, 1, keys, 2)
        k[..., -1, :], v[..., -1, :] = 1e3, 1.0
        real = torch.ones(1, keys, dtype=torch.bool)
        real[0, -1] = False
        mask = Allowed(keys=real).mask(keys, keys, q.device)
        assert not attention(q, k, v, Allowed(keys=real)).any()
        assert not explicit_attention(q, k, v, mask).any()


def test_the_mask_is_padding_and_causality_together() -> None:
    real = torch.tensor([[True, True, True], [True, True, False]])
    cpu = torch.device("cpu")
    past = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 1, 1]]).bool()
    assert Allowed().mask(3, 3, cpu) is None
    both = Allowed(keys=real, causal=True).mask(3, 3, cpu)
    assert both is not None
    assert torch.equal(both[:, 0], torch.stack((past, past & real[1])))
    only_past = Allowed(causal=True).mask(3, 3, cpu)
    assert only_past is not None
    assert torch.equal(only_past, past)
    only_real = Allowed(keys=real).mask(2, 3, cpu)
    assert only_real is not None
    assert torch.equal(only_real.expand(2, 1, 2, 3)[:, 0, 1], real)


def test_an_accelerator_is_never_asked_whether_there_is_padding() -> None:
    ids = torch.empty(2, 3, dtype=torch.int64, device="meta")
    keys = real_keys(ids, 0)
    assert keys is not None  # Looking at a meta tensor's values would have raised.
    mask = Allowed(causal=True).mask(3, 3, ids.device)
    assert mask is not None
    assert mask.device.type == "meta"


def test_the_short_path_is_for_plain_cpu_tensors_only() -> None:
    inputs = operands(3, 3)
    assert suits_short_attention(*inputs)
    assert not suits_short_attention(*(t.to("meta") for t in inputs))
    assert not suits_short_attention(*(t.bfloat16() for t in inputs))
    assert not suits_short_attention(inputs[0].float(), *inputs[1:])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not suits_short_attention(*inputs)


def test_a_layer_drops_weights_at_its_own_rate_in_training_only() -> None:
    x = torch.randn(2, 11, 14)
    torch.manual_seed(0)
    layer = MultiHeadAttention(model_config(attention_dropout=0.5, dropout=0.0))
    assert not torch.equal(layer(x, NOTHING_HIDDEN), layer(x, NOTHING_HIDDEN))
    layer.eval()
    assert torch.equal(layer(x, NOTHING_HIDDEN), layer(x, NOTHING_HIDDEN))
    other = MultiHeadAttention(model_config(attention_dropout=0.0, dropout=0.5))
    assert torch.equal(other(x, NOTHING_HIDDEN), other(x, NOTHING_HIDDEN))


def test_a_trace_records_the_weights_before_dropout() -> None:
    trace: list[Tensor] = []
    attention(*operands(11, 11), NOTHING_HIDDEN, dropout_rate=0.5, trace=trace)
    torch.testing.assert_close(trace[0].sum(-1), torch.ones(B, H, 11, dtype=torch.float64))


def test_attention_dropout_drops_weights_and_keeps_the_mean() -> None:
    q, k, v = (t.detach() for t in operands(2000, 11, torch.float32))
    torch.manual_seed(1)
    dropped = attention(q, k, v, NOTHING_HIDDEN, dropout_rate=0.4)
    whole = attention(q, k, v, NOTHING_HIDDEN)
    assert (dropped - whole).abs().mean() > 0.01
    torch.testing.assert_close(dropped.mean(2), whole.mean(2), rtol=0, atol=0.05)


@pytest.fixture
def layer() -> MultiHeadAttention:
    torch.manual_seed(2)
    return MultiHeadAttention(model_config()).double()


def test_multi_head_attention_is_the_formula_head_by_head(layer: MultiHeadAttention) -> None:
    x = torch.randn(2, 11, 14, dtype=torch.float64)
    memory = torch.randn(2, 13, 14, dtype=torch.float64)
    weight, bias = (p.detach().numpy() for p in layer.in_projection.parameters())
    wq, wk, wv = np.split(weight, [H * K, 2 * H * K])
    bq, bk, bv = np.split(bias, [H * K, 2 * H * K])

    def expected(source: Tensor) -> reference.Array:
        heads = []
        for head in range(H):
            k, v = slice(head * K, (head + 1) * K), slice(head * KV, (head + 1) * KV)
            heads.append(
                reference.attention(
                    x.numpy() @ wq[k].T + bq[k],
                    source.numpy() @ wk[k].T + bk[k],
                    source.numpy() @ wv[v].T + bv[v],
                )
            )
        wo, bo = (p.detach().numpy() for p in layer.out_projection.parameters())
        output: reference.Array = np.concatenate(heads, axis=-1) @ wo.T + bo
        return output

    ours = layer(x, NOTHING_HIDDEN).detach().numpy()
    np.testing.assert_allclose(ours, expected(x), atol=1e-12)
    crossed = layer.cross(x, layer.keys_values(memory), NOTHING_HIDDEN).detach().numpy()
    np.testing.assert_allclose(crossed, expected(memory), atol=1e-12)


def test_projections_have_the_gradient_that_autograd_finds(layer: MultiHeadAttention) -> None:
    """The hand-written gradients of splitting heads, short attention and linear maps, together."""
    x = torch.randn(2, 11, 14, dtype=torch.float64, requires_grad=True)
    inputs = [x, *layer.parameters()]
    ours = gradients(layer(x, CAUSAL), inputs)

    projected = F.linear(x, layer.in_projection.weight, layer.in_projection.bias)
    parts = projected.split((H * K, H * K, H * KV), dim=-1)
    q, k, v = (part.unflatten(-1, (H, -1)).transpose(1, 2) for part in parts)
    heads = explicit_attention(q, k, v, CAUSAL.mask(11, 11, x.device))
    output = layer.out_projection(heads.transpose(1, 2).flatten(2))
    for a, b in zip(ours, gradients(output, inputs), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_biases_are_an_option() -> None:
    layer = MultiHeadAttention(model_config(attention_bias=False))
    assert [name for name, _ in layer.named_parameters()] == [
        "in_projection.weight",
        "out_projection.weight",
    ]
    x = torch.randn(2, 3, 14)
    assert layer(x, NOTHING_HIDDEN).shape == (2, 3, 14)
    assert layer.cross(x, layer.keys_values(x), NOTHING_HIDDEN).shape == (2, 3, 14)
