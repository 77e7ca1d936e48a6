"""Ours against torch.nn.Transformer: one pass, and a hundred updates."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from headwise.config import TrainConfig, Vocab
from headwise.model import Transformer
from headwise.training import TrainingStep, adam, learning_rate
from tests.conftest import VOCAB, make_batch, model_config
from tests.torch_twin import TorchTwin, translated

Build = Callable[..., Transformer]
SIZES = {"d_model": 12, "d_k": 0, "d_v": 0, "d_ff": 17}
UPDATES = 100


def batch(number: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return a padded batch that no other number returns."""
    src, tgt_in, tgt_out = make_batch(seed=number)
    src[number % 5, 4:] = VOCAB.pad
    for tgt in (tgt_in, tgt_out):
        tgt[(number + 2) % 5, 9:] = VOCAB.pad
    return src, tgt_in, tgt_out


@pytest.mark.usefixtures("double")
@pytest.mark.filterwarnings("ignore:.*nested_tensor:UserWarning")
@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_one_pass_equals_torchs_with_the_same_weights(build: Build, norm_order: str) -> None:
    ours = build(norm_order=norm_order, **SIZES)
    twin = TorchTwin(ours)
    src, tgt_in, tgt_out = batch(1)
    real = tgt_out != VOCAB.pad
    torch.testing.assert_close(ours(src, tgt_in)[real], twin(src, tgt_in)[real], rtol=0, atol=1e-12)


@pytest.mark.usefixtures("double")
@pytest.mark.filterwarnings("ignore:.*nested_tensor:UserWarning")
def test_a_hundred_updates_equal_torchs() -> None:
    """Same first weights, same batches; torch's model, loss and Adam on the other side."""
    torch.manual_seed(11)
    ours = Transformer(model_config(**SIZES), Vocab.shared(23))
    twin = TorchTwin(ours)
    # A gentle rate: the gradient of a key's bias is zero but for rounding (softmax does not feel a
    # shift of all scores), and Adam turns that rounding into steps of about the rate times 1e-8.
    train = TrainConfig(warmup_steps=600)
    step, optimizer = TrainingStep(ours, label_smoothing=0.1), adam(ours.parameters(), train)
    theirs = torch.optim.Adam(twin.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)
    start = translated(ours)
    for update in range(1, UPDATES + 1):
        src, tgt_in, tgt_out = batch(update)
        for group in (*optimizer.param_groups, *theirs.param_groups):
            group["lr"] = learning_rate(update, train, d_model=12)
        sums, count = step(src, tgt_in, tgt_out)
        (sums.smoothed / count).backward()
        optimizer.step()
        optimizer.zero_grad()
        expected = F.cross_entropy(
            twin(src, tgt_in).flatten(0, 1),
            tgt_out.flatten(),
            ignore_index=VOCAB.pad,
            label_smoothing=0.1 * 23 / 22,
        )
        expected.backward()
        theirs.step()
        theirs.zero_grad()
    after = translated(ours)
    moved = max((after[name] - start[name]).abs().max().item() for name in start)
    assert moved > 0.1, "the comparison means nothing unless training has moved the weights"
    for name, weight in twin.state_dict().items():
        torch.testing.assert_close(after[name], weight, rtol=0, atol=1e-9, msg=name)
