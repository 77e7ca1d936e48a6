"""Classifiers' training steps, beside the same models in plain PyTorch; and texts classified.

    python benchmarks/classification.py [--rounds N] [--run RUN --texts FILE]

Both train on the same batches, of texts as `text-tiny` cuts them, of images as `vit-tiny` does and
of sounds as `speech-tiny` does: forward, backward and Adam. The peer is `nn.TransformerEncoder`
(pre-norm) with an embedding or a projection, positions, the class token or the mean over real
positions, a linear layer and `F.cross_entropy`. They take turns over several rounds, and the best
round of each counts. With a run and a file, `headwise classify` is timed and its memory measured on
100,000 lines and on a tenth of them.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from machine import machine
from peers import torch_adam
from torch import Tensor, nn

from headwise.config import ModelConfig, Vocab
from headwise.data import read_lines
from headwise.model import build_model
from headwise.model.positions import sinusoids
from headwise.recipes import load_recipe
from headwise.tasks.classification.objective import ClassificationStep
from headwise.training.products import fast_float32_products

CLASSES = 10
WORK: tuple[tuple[str, tuple[int, ...], int], ...] = (
    ("text-tiny", (8, 12, 14, 17, 22, 40), 3),
    ("vit-tiny", (17,), 0),
    ("speech-tiny", (18, 21, 24, 28, 36), 2),
)
"""Recipes, the positions of the longest example of each batch, and by how many others are shorter
at most: TREC's questions, MNIST's digits, spoken digits."""

Batch = tuple[Tensor, Tensor, Tensor]
LINES = 100_000


class PlainClassifier(nn.Module):
    """What a user of PyTorch would write."""

    def __init__(self, config: ModelConfig, vocab: Vocab) -> None:
        super().__init__()
        self.is_mean = config.pooling == "mean"
        self.first = nn.Parameter(torch.zeros(1, 1, config.d_model)) if vocab.source_width else None
        self.embedding = (
            nn.Linear(vocab.source_width, config.d_model)
            if vocab.source_width
            else nn.Embedding(vocab.source_size, config.d_model)
        )
        table = sinusoids(512, config.d_model).float()
        self.positions = nn.Parameter(table, requires_grad=config.positions == "learned")
        layer = nn.TransformerEncoderLayer(
            config.d_model,
            config.num_heads,
            config.d_ff,
            config.dropout,
            config.activation,
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(
            layer, config.num_layers, nn.LayerNorm(config.d_model), enable_nested_tensor=False
        )
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(config.d_model, vocab.target_size)

    def forward(self, src: Tensor, lengths: Tensor) -> Tensor:
        x = self.embedding(src)
        if self.first is not None:
            x = torch.cat((self.first.expand(len(x), -1, -1), x), 1)
        x = self.dropout(x + self.positions[: x.shape[1]])
        is_padding = torch.arange(x.shape[1]) >= lengths[:, None]
        x = self.encoder(x, src_key_padding_mask=is_padding if bool(is_padding.any()) else None)
        pooled = x[:, 0]
        if self.is_mean:
            pooled = (x * (~is_padding)[:, :, None]).sum(1) / lengths[:, None]
        scores: Tensor = self.head(pooled)
        return scores


def batches(tokens: int, vocab: Vocab, longest_of: tuple[int, ...], shorter: int) -> list[Batch]:
    """Draw batches of examples of similar lengths: what is read, lengths and labels."""
    torch.manual_seed(2)
    found = []
    for longest in longest_of:
        rows = tokens // longest
        lengths = torch.randint(max(3, longest - shorter), longest + 1, (rows,))
        lengths[0] = longest
        if vocab.source_width:
            src = torch.randn(rows, longest - 1, vocab.source_width)
            src[torch.arange(1, longest) >= lengths[:, None]] = 0.0
        else:
            src = torch.randint(4, vocab.source_size, (rows, longest))
            src[torch.arange(longest) >= lengths[:, None]] = Vocab.pad
        found.append((src, lengths, torch.randint(vocab.target_size, (rows, 1))))
    return found


def training(recipe: str, longest_of: tuple[int, ...], shorter: int, rounds: int) -> dict[str, Any]:
    config = load_recipe(recipe)
    vocab = replace(config.row.vocab(config), target_size=CLASSES)
    smoothing = config.train.label_smoothing
    given = batches(config.train.batch_tokens, vocab, longest_of, shorter)
    ours = ClassificationStep(
        build_model(config.model, vocab, "classifier"),
        label_smoothing=smoothing,
        is_multi_label=False,
    )
    theirs = PlainClassifier(config.model, vocab)
    optimizers = {name: torch_adam(m.parameters()) for name, m in (("o", ours), ("t", theirs))}

    def our_epoch() -> None:
        for src, lengths, labels in given:
            with fast_float32_products(torch.device("cpu")):
                sums, count = ours(src, lengths, torch.ones(len(src)), labels)
                (sums.smoothed / count).backward()
            optimizers["o"].step()
            optimizers["o"].zero_grad()

    def their_epoch() -> None:
        for src, lengths, labels in given:
            scores = theirs(src, lengths)
            F.cross_entropy(scores, labels[:, 0], label_smoothing=smoothing).backward()
            optimizers["t"].step()
            optimizers["t"].zero_grad()

    best = best_seconds({"headwise": our_epoch, "torch": their_epoch}, rounds)
    examples = sum(len(src) for src, _, _ in given)
    return {
        "recipe": recipe,
        **{f"{name}_examples_per_second": examples / each for name, each in best.items()},
        "speed_up": best["torch"] / best["headwise"],
    }


def best_seconds(work: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    best = dict.fromkeys(work, float("inf"))
    for function in work.values():
        function()
    for _ in range(rounds):
        for name, function in work.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def classifying(run: Path, texts: Path, threads: int) -> list[dict[str, Any]]:
    """Time `headwise classify` on many lines, and measure its memory."""
    lines = list(read_lines(texts))
    found = []
    for count in (LINES // 10, LINES):
        with tempfile.TemporaryDirectory() as name:
            source = Path(name) / "lines.txt"
            source.write_text("".join(f"{line}\n" for line in islice(cycle(lines), count)))
            command = [sys.executable, "-m", "headwise", "classify", str(run)]
            command += ["--input", str(source), "--output", str(Path(name) / "out.txt")]
            start = time.perf_counter()
            subprocess.run(command, check=True, env={"OMP_NUM_THREADS": str(threads)})
            seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        found.append({"lines": count, "lines_per_second": count / seconds, "peak_mib": peak})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--run", type=Path, help="a trained classifier")
    parser.add_argument("--texts", type=Path, help="a text on each line")
    default = Path(__file__).parent / "results" / "classification.json"
    parser.add_argument("--out", type=Path, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    report: dict[str, Any] = {
        "machine": machine(threads=options.threads, torch=torch.__version__),
        "training": [training(*each, options.rounds) for each in WORK],
    }
    if options.run and options.texts:
        report["classify"] = classifying(options.run, options.texts, options.threads)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
