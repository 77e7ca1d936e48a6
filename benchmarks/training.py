"""Training speed on real batches, compared with a plain PyTorch loop, Marian and fairseq.

    python benchmarks/training.py --src train.en --tgt train.de [--marian ENV] [--fairseq ENV]

Ours is `headwise train`, including checkpoints, on a model of 4+4 layers and d_model 128. After
each save, the plain loop (torch.nn.Transformer, F.cross_entropy, DataLoader) makes as many updates
on the same batches, so that both run under the same machine load. The best window of each counts.
Marian and fairseq run afterwards, in environments given by path (see training_peers.py). Speeds are
in target tokens per second, including eos.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import torch
from machine import machine
from peers import PlainTorchStep, torch_adam, torchs_own_products
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset
from training_peers import PEERS, PeerFailedError, PeerMissingError, Setup, cut_text

from headwise import Config, train
from headwise.config import DataConfig, ModelConfig, TrainConfig, Vocab
from headwise.data import ParallelFiles, TokenShards, prepare
from headwise.data.batches import Batches
from headwise.data.pairs import PAIR_FIELDS
from headwise.runs.metrics import read_metrics
from headwise.training.events import Event, Saved

MODEL = ModelConfig(d_model=128, d_ff=256, num_layers=4, num_heads=4, dropout=0.3)
WINDOW = 20
LONGEST = 1024


class Pairs(Dataset[tuple[Tensor, Tensor]]):
    """Sources and targets in memory, without bos and eos."""

    def __init__(self, shards: TokenShards) -> None:
        self.sources, self.targets = (
            [torch.tensor(shards.sequence(side, n).tolist()) for n in range(len(shards))]
            for side in ("source", "target")
        )

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        return self.sources[number], self.targets[number]


class PlainLoop:
    """A plain PyTorch training loop around torch.nn.Transformer."""

    def __init__(self, shards: TokenShards, vocab_size: int, batches: list[list[int]]) -> None:
        self.step = PlainTorchStep(MODEL, vocab_size, LONGEST, smoothing=0.1)
        self.optimizer = torch_adam(self.step.parameters())
        self.loader = iter(DataLoader(Pairs(shards), batch_sampler=batches, collate_fn=collate))

    def window(self) -> float:
        """Make some updates and return their speed."""
        tokens, start = 0, time.perf_counter()
        for _ in range(WINDOW):
            src, tgt_in, tgt_out = next(self.loader)
            self.step(src, tgt_in, tgt_out).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            tokens += int((tgt_out != Vocab.pad).sum())
        return tokens / (time.perf_counter() - start)


def collate(pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    bos, eos = torch.tensor([Vocab.bos]), torch.tensor([Vocab.eos])
    sources = [torch.cat((source, eos)) for source, _ in pairs]
    inputs = [torch.cat((bos, target)) for _, target in pairs]
    outputs = [torch.cat((target, eos)) for _, target in pairs]
    src, tgt_in, tgt_out = (
        pad_sequence(rows, batch_first=True, padding_value=Vocab.pad)
        for rows in (sources, inputs, outputs)
    )
    return src, tgt_in, tgt_out


def measure(
    prepared: Path, directory: Path, batch_tokens: int, windows: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Train with both, alternating; return the speed of each window, and what else is measured."""
    config = Config(
        data=DataConfig(vocab_size=8000),
        model=MODEL,
        train=TrainConfig(
            batch_tokens=batch_tokens,
            max_steps=windows * WINDOW,
            log_every_steps=WINDOW,
            save_every_steps=WINDOW,
            average_last=1,
        ),
    )
    shards = TokenShards(prepared / "train")
    order = Batches(shards, PAIR_FIELDS, batch_tokens=batch_tokens, seed=config.train.seed)
    batches: list[list[int]] = []
    epoch = 0
    while len(batches) < config.train.max_steps:
        batches += [batch.tolist() for batch in order.epoch(epoch)]
        epoch += 1
    plain = PlainLoop(shards, 8000, batches)
    speeds: list[float] = []

    def on_event(event: Event) -> None:
        if isinstance(event, Saved):
            with torchs_own_products():
                speeds.append(plain.window())
            print(f"window {len(speeds)} of {windows}", file=sys.stderr)

    run = directory / f"run-{batch_tokens}"
    train(config, run, data=prepared, on_event=on_event)
    lines = [line for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "train"]
    ours = [line["target_tokens_per_second"] for line in lines]
    # Compare windows that ran at nearly the same time.
    speed_ups = sorted(a / b for a, b in zip(ours, speeds, strict=True))
    about = {
        "outside_share": sorted(line["outside"] for line in lines)[len(lines) // 2],
        "padding": sum(line["padding"] for line in lines) / len(lines),
        "peak_mib": lines[-1]["memory_mib"],
        "speed_up_median": speed_ups[len(ours) // 2],
    }
    return {"headwise": ours, "torch": speeds}, about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--src", type=Path, required=True)
    parser.add_argument("--tgt", type=Path, required=True)
    parser.add_argument("--marian", type=Path, help="environment with pymarian")
    parser.add_argument("--fairseq", type=Path, help="environment with fairseq-fixed")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    default = Path(__file__).parent / "results" / "training.json"
    parser.add_argument("--out", type=Path, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as name:
        directory, prepared = Path(name), Path(name) / "prepared"
        files = ParallelFiles(sources=(options.src,), targets=(options.tgt,))
        prepare(files, Config(data=DataConfig(vocab_size=8000)), prepared)
        speeds, about = measure(prepared, directory, options.batch_tokens, options.windows)
        setup = Setup(model=MODEL, batch_tokens=options.batch_tokens, threads=options.threads)
        for peer, measured in PEERS.items():
            environment: Path | None = getattr(options, peer)
            if environment is None:
                continue
            print(f"measuring {peer} ...", file=sys.stderr)
            try:
                text = cut_text(prepared, directory)
                speeds[peer] = measured(environment / "bin" / "python", text, setup).windows
            except (PeerMissingError, PeerFailedError) as error:
                print(f"skipped: {error}", file=sys.stderr)
    results = {name: {"best": max(found), "windows": found} for name, found in speeds.items()}
    report = {
        "machine": machine(threads=options.threads, torch=torch.__version__),
        "batch_tokens": options.batch_tokens,
        "results": {**results, "about": about},
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    ours = max(speeds["headwise"])
    for name, found in speeds.items():
        best = max(found)
        print(f"{name:>9} {best:>9,.0f} target tokens/s   {ours / best:.2f}x")
    print(
        f"outside forward, backward and optimizer: {about['outside_share']:.1%}; "
        f"padding {about['padding']:.1%}; window against window "
        f"{about['speed_up_median']:.2f}x torch"
    )


if __name__ == "__main__":
    main()
