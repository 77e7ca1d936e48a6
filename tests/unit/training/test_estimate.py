from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from headwise.config import Config, TrainConfig, Vocab
from headwise.model import Transformer
from headwise.tasks.translation.task import TASK
from headwise.training.estimate import Estimate, estimate
from headwise.training.step import TrainingStep
from tests.conftest import VOCAB, model_config


def measured(
    build: Callable[..., Transformer], train: TrainConfig, epoch_tokens: int | None = None
) -> tuple[Estimate, TrainingStep]:
    step = TrainingStep(build(), label_smoothing=0.1)
    config = Config(model=model_config(), train=train)
    found = estimate(
        step,
        config,
        TASK.example_batch(config, VOCAB, 1024),
        epoch_tokens=epoch_tokens,
        processes=1,
        device=torch.device("cpu"),
    )
    return found, step


def test_the_updates_are_counted_to_the_nearest_limit(build: Callable[..., Transformer]) -> None:
    def updates(train: TrainConfig) -> int:
        return measured(build, train, epoch_tokens=1000)[0].updates

    train = TrainConfig(batch_tokens=100, accumulate=2, max_steps=500)
    assert updates(train) == 500
    assert updates(replace(train, max_epochs=3)) == 15
    assert updates(replace(train, max_tokens=1001)) == 6


def test_time_is_the_limit_or_what_the_updates_take(build: Callable[..., Transformer]) -> None:
    found, _ = measured(build, TrainConfig(batch_tokens=100, max_steps=500))
    assert found.minutes == pytest.approx(500 * found.update_seconds / 60)
    assert found.update_seconds == pytest.approx(100 / found.target_tokens_per_second)
    found, _ = measured(build, TrainConfig(batch_tokens=25_000, max_minutes=0.5))
    assert found.minutes == 0.5


def test_nothing_is_left_of_an_estimate(build: Callable[..., Transformer]) -> None:
    before = [p.detach().clone() for p in build().parameters()]
    _, step = measured(build, TrainConfig())
    for was, now in zip(before, step.parameters(), strict=True):
        assert torch.equal(was, now)
        assert now.grad is None


def test_memory_grows_with_the_batch_and_is_near_what_is_used() -> None:
    """Against the peak that a process really has, which depends on how it reuses what it frees."""
    import json
    import subprocess
    import sys

    code = """
import json, resource, torch
from headwise.config import Config, ModelConfig, TrainConfig, Vocab
from headwise.model import Transformer
from headwise.training import TrainingStep, adam
from headwise.tasks.translation.task import TASK
from headwise.training.estimate import estimate
torch.set_num_threads(1)
vocab, train = Vocab.shared(8000), TrainConfig(batch_tokens=4000)
config = Config(model=ModelConfig(d_model=256, d_ff=1024, num_layers=2, num_heads=4), train=train)
model = Transformer(config.model, vocab)
step, optimizer = TrainingStep(model, label_smoothing=0.1), adam(model.parameters(), train)
found = estimate(step, config, TASK.example_batch(config, vocab, 1024),
                 epoch_tokens=None, processes=1, device=torch.device("cpu"))
ids = torch.randint(4, 8000, (160, 25))
for _ in range(2):
    sums, count = step(ids, ids, ids)
    (sums.smoothed / count).backward()
    optimizer.step()
    optimizer.zero_grad()
print(json.dumps([found.memory_mib, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    expected, peak = json.loads(result.stdout)
    assert peak > 450, "enough of it is the model's"
    assert peak / 2 < expected < peak * 2


def test_months_and_too_little_memory_are_flagged() -> None:
    month = 30 * 24 * 60
    fine = Estimate(
        update_seconds=1.0,
        updates=1,
        minutes=month - 1,
        memory_mib=10,
        available_mib=11,
        target_tokens_per_second=1.0,
    )
    assert not fine.too_long
    assert not fine.too_large
    bad = replace(fine, minutes=month + 1, memory_mib=12)
    assert bad.too_long
    assert bad.too_large
    assert not replace(bad, minutes=1, available_mib=None).too_large


def test_an_example_batch_is_a_valid_one() -> None:
    from headwise.model import check_batch

    vocab = Vocab(source_size=11, target_size=7)
    src, tgt_in, tgt_out = TASK.example_batch(Config(), vocab, 1024)
    check_batch(src, tgt_in, tgt_out, vocab)
