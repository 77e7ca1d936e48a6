from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.config import TrainConfig
from headwise.model import Transformer
from headwise.training import TrainingStep, adam, keyed_dropout
from tests.conftest import VOCAB, make_batch

Build = Callable[..., Transformer]


def padded_batch() -> tuple[Tensor, Tensor, Tensor]:
    src, tgt_in, tgt_out = make_batch()
    src[1, 5:] = VOCAB.pad
    for tgt in (tgt_in, tgt_out):
        tgt[0, 4:] = VOCAB.pad
        tgt[3, 9:] = VOCAB.pad
    return src, tgt_in, tgt_out


def test_adam_has_the_papers_constants() -> None:
    optimizer = adam([torch.nn.Parameter(torch.zeros(3))], TrainConfig())
    (group,) = optimizer.param_groups
    assert (group["betas"], group["eps"]) == ((0.9, 0.98), 1e-9)
    assert (group["weight_decay"], group["amsgrad"]) == (0, False)


@pytest.mark.usefixtures("double")
@pytest.mark.parametrize("tying", ["three-way", "two-way", "untied"])
def test_the_step_is_the_models_logits_under_torchs_loss(build: Build, tying: str) -> None:
    model = build(tying=tying)
    src, tgt_in, tgt_out = padded_batch()
    sums, count = TrainingStep(model, label_smoothing=0.1)(src, tgt_in, tgt_out)
    parameters = list(model.parameters())
    ours = torch.autograd.grad(sums.smoothed / count, parameters)
    smoothing = 0.1 * 23 / 22
    logits = model(src, tgt_in).flatten(0, 1)
    expected = F.cross_entropy(logits, tgt_out.flatten(), ignore_index=0, label_smoothing=smoothing)
    torch.testing.assert_close(sums.smoothed / count, expected, rtol=0, atol=1e-10)
    for a, b in zip(ours, torch.autograd.grad(expected, parameters), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("double")
def test_padded_targets_count_for_nothing(build: Build) -> None:
    model = build()
    step = TrainingStep(model, label_smoothing=0.1)
    src, tgt_in, tgt_out = make_batch()
    short = step(src, tgt_in[:, :6], tgt_out[:, :6])
    for tgt in (tgt_in, tgt_out):
        tgt[:, 6:] = VOCAB.pad
    padded = step(src, tgt_in, tgt_out)
    assert short[1] == padded[1] == 5 * 6
    torch.testing.assert_close(padded[0].smoothed, short[0].smoothed, rtol=0, atol=1e-11)
    torch.testing.assert_close(padded[0].nll, short[0].nll, rtol=0, atol=1e-11)


@pytest.mark.usefixtures("double")
def test_accumulated_gradients_equal_those_of_one_large_batch(build: Build) -> None:
    model = build()
    step = TrainingStep(model, label_smoothing=0.1)
    batch = padded_batch()
    sums, total = step(*batch)
    whole = torch.autograd.grad(sums.smoothed / total, list(model.parameters()))
    for rows in (slice(0, 1), slice(1, 5)):  # unequal parts with unequal padding
        sums, _ = step(*(ids[rows] for ids in batch))
        (sums.smoothed / total).backward()
    for parameter, expected in zip(model.parameters(), whole, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, expected, rtol=0, atol=1e-10)


def test_a_keyed_step_is_reproducible_to_the_bit(build: Build) -> None:
    model = build(dropout=0.3, attention_dropout=0.2)
    step = TrainingStep(model, label_smoothing=0.1)

    def run(*key: int) -> list[Tensor]:
        model.zero_grad()
        with keyed_dropout(*key):
            sums, count = step(*padded_batch())
        (sums.smoothed / count).backward()
        return [sums.smoothed.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]

    first, again, other = run(1, 5, 0), run(1, 5, 0), run(1, 6, 0)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


def test_bf16_autocast_stays_close_to_float32(build: Build) -> None:
    model = build(dropout=0.0)
    step = TrainingStep(model, label_smoothing=0.1)
    batch = padded_batch()
    exact, count = step(*batch)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough, same_count = step(*batch)
    (rough.smoothed / same_count).backward()
    assert count == same_count
    assert rough.smoothed.dtype == torch.float32
    assert (rough.smoothed / exact.smoothed).item() == pytest.approx(1, abs=0.02)
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
