"""torch.compile stays possible: the layers trace without a graph break and compute the same."""

from collections.abc import Callable

import pytest
import torch

from headwise.model import Allowed, Transformer
from headwise.training import TrainingStep
from tests.conftest import VOCAB, make_batch

Build = Callable[..., Transformer]


@pytest.fixture(autouse=True)
def fresh_compiler() -> None:
    torch.compiler.reset()


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_the_layers_trace_whole(build: Build, norm_order: str) -> None:
    model = build(norm_order=norm_order)
    encoder = torch.compile(model.encoder, backend="aot_eager", fullgraph=True)
    x = torch.randn(2, 7, 14, requires_grad=True)
    allowed = Allowed(keys=torch.tensor([[True] * 7, [True] * 4 + [False] * 3]))
    compiled, eager = encoder(x, allowed), model.encoder(x, allowed)
    torch.testing.assert_close(compiled, eager, rtol=0, atol=1e-5)
    weights = torch.randn_like(eager)
    (ours,) = torch.autograd.grad((compiled * weights).sum(), x)
    (expected,) = torch.autograd.grad((eager * weights).sum(), x)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)


def test_the_whole_model_traces_without_a_break_and_with_dropout(build: Build) -> None:
    model = build(dropout=0.1)
    hidden = torch.compile(model.hidden, backend="aot_eager", fullgraph=True)
    src, tgt_in, _ = make_batch()
    assert hidden(src, tgt_in).shape == (5, 13, 14)


def test_aligned_input_traces_without_a_break(build: Build) -> None:
    model = build(num_layers=1, aligned_input=True)
    hidden = torch.compile(model.hidden, backend="aot_eager", fullgraph=True)
    src, tgt_in, _ = make_batch()
    aligned = tgt_in % src.shape[1]
    expected = model.hidden(src, tgt_in, aligned)
    torch.testing.assert_close(hidden(src, tgt_in, aligned), expected, rtol=0, atol=1e-5)


def test_a_window_traces_without_a_break(build: Build) -> None:
    model = build(num_layers=1, attention="window", window=5)
    hidden = torch.compile(model.hidden, backend="aot_eager", fullgraph=True)
    src, tgt_in, _ = make_batch(rows=2, source=250, target=250)  # Long enough for blocks.
    found, expected = hidden(src, tgt_in), model.hidden(src, tgt_in)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    ours, theirs = (
        torch.autograd.grad(each.square().sum(), model.target_embedding.weight)[0]
        for each in (found, expected)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_compiled_training_step_equals_the_eager_one(build: Build) -> None:
    model = build()
    step = TrainingStep(model, label_smoothing=0.1)
    compiled = torch.compile(step, backend="aot_eager")
    batch = make_batch()
    batch[0][1, 4:] = VOCAB.pad
    gradients = []
    for candidate in (step, compiled):
        model.zero_grad()
        sums, count = candidate(*batch)
        (sums.smoothed / count).backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-5)
