"""The model learns: sequences reversed, on sequences it has never seen."""

import pytest
import torch
from torch import Tensor

from headwise.config import ModelConfig, TrainConfig, Vocab
from headwise.model import Transformer
from headwise.training import TrainingStep, adam, keyed_dropout, learning_rate

VOCAB = Vocab.shared(20)
LENGTH = 6


def reversal(rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(4, 20, (rows, LENGTH), generator=generator)
    bos, eos = torch.full((rows, 1), VOCAB.bos), torch.full((rows, 1), VOCAB.eos)
    backwards = words.flip(1)
    return (
        torch.cat((words, eos), 1),
        torch.cat((bos, backwards), 1),
        torch.cat((backwards, eos), 1),
    )


@pytest.mark.parametrize("norm_order", ["post", "pre"])
def test_reversal_is_learned(norm_order: str) -> None:
    torch.manual_seed(1)
    config = ModelConfig(
        d_model=64,
        d_ff=128,
        num_layers=2,
        num_heads=4,
        norm_order=norm_order,  # type: ignore[arg-type]
    )
    train = TrainConfig(schedule="linear", peak_rate=3e-3, warmup_steps=50, max_steps=400)
    model = Transformer(config, VOCAB)
    step, optimizer = TrainingStep(model, label_smoothing=0.1), adam(model.parameters(), train)
    for update in range(1, train.max_steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(update, train, config.d_model)
        with keyed_dropout(train.seed, update, 0):
            sums, count = step(*reversal(64, seed=update))
        (sums.smoothed / count).backward()
        optimizer.step()
        optimizer.zero_grad()

    model.eval()
    src, _, tgt_out = reversal(500, seed=10**6)
    ids, state, outputs = torch.full((500,), VOCAB.bos), model.start(src), []
    for _ in range(LENGTH + 1):
        logits, state = model.step(ids, state)
        ids = logits.argmax(-1)
        outputs.append(ids)
    exact = (torch.stack(outputs, 1) == tgt_out).all(1).double().mean().item()
    assert exact > 0.98
