"""A classifier's training step, beside the same model in plain PyTorch; and texts classified.

    python benchmarks/classification.py [--rounds N] [--run RUN --texts FILE]

Both train on the same batches with padding, as `text-tiny` cuts them: forward, backward and Adam.
The peer is `nn.TransformerEncoder` (pre-norm) with an embedding, sinusoids, the mean over real
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
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from machine import machine
from torch import Tensor, nn

from headwise.config import ModelConfig, Vocab
from headwise.data import read_lines
from headwise.model import build_model
from headwise.model.positions import sinusoids
from headwise.recipes import load_recipe
from headwise.tasks.classification.objective import ClassificationStep

CLASSES = 6
LENGTHS = (8, 12, 14, 17, 22, 40)
"""Tokens of the longest text of a batch."""
LINES = 100_000


class PlainClassifier(nn.Module):
    """What a user of PyTorch would write."""

    def __init__(self, config: ModelConfig, vocab: Vocab) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab.source_size, config.d_model)
        self.register_buffer("positions", sinusoids(512, config.d_model).float())
        layer = nn.TransformerEncoderLayer(
            config.d_model,
            config.num_heads,
            config.d_ff,
            config.dropout,
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(
            layer, config.num_layers, nn.LayerNorm(config.d_model), enable_nested_tensor=False
        )
        self.dropout = nn.Dropout(config.dropout)
        self.head = nn.Linear(config.d_model, vocab.target_size)
        self.scale = config.d_model**0.5

    def forward(self, src: Tensor) -> Tensor:
        is_padding = src == Vocab.pad
        positions: Tensor = self.positions[: src.shape[1]]  # type: ignore[index]
        x = self.dropout(self.embedding(src) * self.scale + positions)
        x = self.encoder(x, src_key_padding_mask=is_padding)
        real = (~is_padding)[:, :, None]
        scores: Tensor = self.head((x * real).sum(1) / real.sum(1))
        return scores


def batches(tokens: int, vocab: Vocab) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Draw batches of texts of similar lengths: ids, weights, labels."""
    torch.manual_seed(2)
    found = []
    for longest in LENGTHS:
        rows = tokens // longest
        src = torch.randint(4, vocab.source_size, (rows, longest))
        lengths = torch.randint(max(3, longest - 3), longest + 1, (rows,))
        src[torch.arange(longest) >= lengths[:, None]] = Vocab.pad
        found.append((src, torch.ones(rows), torch.randint(CLASSES, (rows, 1))))
    return found


def training(rounds: int) -> dict[str, float]:
    config = load_recipe("text-tiny")
    vocab = Vocab(source_size=config.data.vocab_size, target_size=CLASSES)
    smoothing, given = config.train.label_smoothing, batches(config.train.batch_tokens, vocab)
    ours = ClassificationStep(
        build_model(config.model, vocab, "classifier"),
        label_smoothing=smoothing,
        is_multi_label=False,
    )
    theirs = PlainClassifier(config.model, vocab)
    optimizers = {
        name: torch.optim.Adam(m.parameters()) for name, m in (("o", ours), ("t", theirs))
    }

    def our_epoch() -> None:
        for src, weights, labels in given:
            sums, count = ours(src, weights, labels)
            (sums.smoothed / count).backward()
            optimizers["o"].step()
            optimizers["o"].zero_grad()

    def their_epoch() -> None:
        for src, _, labels in given:
            loss = F.cross_entropy(theirs(src), labels[:, 0], label_smoothing=smoothing)
            loss.backward()
            optimizers["t"].step()
            optimizers["t"].zero_grad()

    best = best_seconds({"headwise": our_epoch, "torch": their_epoch}, rounds)
    texts = sum(len(src) for src, _, _ in given)
    return {
        **{f"{name}_texts_per_second": texts / seconds for name, seconds in best.items()},
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
        "training": training(options.rounds),
    }
    if options.run and options.texts:
        report["classify"] = classifying(options.run, options.texts, options.threads)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
