"""The model learns: sequences copied and reversed, on sequences it has never seen."""

from pathlib import Path
from typing import Literal

import pytest
import torch
from torch import Tensor

from headwise.config import ModelConfig, TrainConfig, Vocab
from headwise.data import ParallelFiles
from headwise.model import Transformer
from headwise.recipes import load_recipe
from headwise.runs.checkpoint import read_weights
from headwise.runs.checkpoints import choose
from headwise.runs.directory import RunDirectory
from headwise.runs.weights import load_weights
from headwise.training import TrainingStep, adam, keyed_dropout, learning_rate
from headwise.workflows.train import train

VOCAB = Vocab.shared(20)
LENGTH = 5


def sequences(task: str, rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(4, 20, (rows, LENGTH), generator=generator)
    bos, eos = torch.full((rows, 1), VOCAB.bos), torch.full((rows, 1), VOCAB.eos)
    answer = words.flip(1) if task == "reverse" else words
    return torch.cat((words, eos), 1), torch.cat((bos, answer), 1), torch.cat((answer, eos), 1)


def greedy(model: Transformer, src: Tensor, length: int) -> Tensor:
    model.eval()
    ids, state, outputs = torch.full((len(src),), VOCAB.bos), model.start(src), []
    for _ in range(length):
        logits, state = model.step(ids, state)
        ids = logits.argmax(-1)
        outputs.append(ids)
    return torch.stack(outputs, 1)


@pytest.mark.parametrize(
    ("task", "norm_order", "seed"),
    [
        ("reverse", "post", 1),
        ("reverse", "pre", 2),
        ("copy", "post", 3),
        ("copy", "pre", 4),
    ],
)
def test_a_task_is_learned(task: str, norm_order: Literal["post", "pre"], seed: int) -> None:
    torch.manual_seed(seed)
    config = ModelConfig(
        d_model=48,
        d_ff=96,
        num_layers=2,
        num_heads=4,
        norm_order=norm_order,
    )
    settings = TrainConfig(
        schedule="linear", peak_rate=4e-3, warmup_steps=50, max_steps=300, seed=seed
    )
    model = Transformer(config, VOCAB)
    step, optimizer = TrainingStep(model, label_smoothing=0.1), adam(model.parameters(), settings)
    for update in range(1, settings.max_steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(update, settings, config.d_model)
        with keyed_dropout(settings.seed, update, 0):
            sums, count = step(*sequences(task, 64, seed=update + 10_000 * seed))
        (sums.smoothed / count).backward()
        optimizer.step()
        optimizer.zero_grad()

    src, _, tgt_out = sequences(task, 500, seed=10**6)
    exact = (greedy(model, src, LENGTH + 1) == tgt_out).all(1).double().mean().item()
    assert exact > 0.98


def test_text_is_learned_from_file_to_weights(tmp_path: Path) -> None:
    """The whole way: reversed words as text, subwords, batches, loop, checkpoints, average."""
    generator = torch.Generator().manual_seed(1)
    words = [a + b for a in "bdfgklmn" for b in "aeiou"]

    def sentences(count: int) -> list[list[str]]:
        picks = torch.randint(0, len(words), (count, 5), generator=generator)
        return [[words[int(pick)] for pick in row] for row in picks]

    lines = sentences(6000)
    source, target = tmp_path / "src", tmp_path / "tgt"
    source.write_text("".join(" ".join(line) + "\n" for line in lines))
    target.write_text("".join(" ".join(line[::-1]) + "\n" for line in lines))
    config = load_recipe(
        "multi30k-tiny",
        [
            "data.vocab_size=330",
            "data.holdout_pairs=100",
            "model.d_model=64",
            "model.d_ff=128",
            "model.num_layers=2",
            "model.dropout=0.0",
            "train.batch_tokens=400",
            "train.decay_by=steps",
            "train.warmup_steps=60",
            "train.max_steps=400",
            "train.save_every_steps=20",
            "train.average_last=5",
        ],
    )
    text = ParallelFiles(sources=(source,), targets=(target,))
    train(config, tmp_path / "run", text=text)

    run = RunDirectory(tmp_path / "run")
    subwords, _ = run.subwords()
    model = Transformer(config.model, Vocab.shared(len(subwords)))
    load_weights(model, read_weights(choose(run)), "the average")
    seen = {tuple(line) for line in lines}
    unseen = [line for line in sentences(150) if tuple(line) not in seen]
    right = 0
    for line in unseen:
        src = torch.tensor([[*subwords.encode(" ".join(line)), Vocab.eos]])
        ids = greedy(model, src, 20)[0].tolist()
        answer = subwords.decode(ids[: ids.index(Vocab.eos)] if Vocab.eos in ids else ids)
        right += answer == " ".join(line[::-1])
    assert right / len(unseen) > 0.98
