"""Time the training of other toolkits on CPU, with the same model, subwords and batch size.

    python benchmarks/training_peers.py --data DIR [--marian ENV] [--fairseq ENV]

DIR holds the parallel text; ENV is a virtual environment (Python 3.11) with the toolkit installed:

    pip install pymarian==1.12.42
    pip install torch==2.13.0 && pip install fairseq-fixed==0.12.3.1

Speeds are in target tokens per second, with eos and without padding, as both toolkits count them.
They make and sort their own batches; each update is one batch.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headwise.config import Config, DataConfig, ModelConfig, Vocab
from headwise.data import ParallelFiles, TokenShards, load_subwords, prepare

LEARNING_RATE = "0.0005"
SPECIAL_IDS = 4
SORTED_TOGETHER = 200_000


class PeerMissingError(Exception):
    """The peer is not installed in the named environment."""


class PeerFailedError(Exception):
    """The peer failed or reported nothing."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Settings shared by all contenders."""

    model: ModelConfig
    smoothing: float = 0.1
    batch_tokens: int = 4096
    threads: int = 2
    updates: int = 100
    window: int = 10
    """Updates between two reports; the first window includes the start-up and does not count."""

    def __post_init__(self) -> None:
        m = self.model
        plain = ModelConfig(
            d_model=m.d_model,
            d_ff=m.d_ff,
            num_layers=m.num_layers,
            num_heads=m.num_heads,
            dropout=m.dropout,
            attention_dropout=m.attention_dropout,
        )
        if m != plain:
            raise ValueError("the peers are told of the model's sizes and its dropout, no more")
        if self.updates < 2 * self.window:
            raise ValueError(f"{self.updates} updates leave no window of {self.window} to count")


@dataclass(frozen=True)
class CutText:
    """Pairs split into subwords, one sentence per line, each subword written as its id.

    Ids instead of subwords, because subwords may contain characters that a peer treats as a space
    or needs escaped.
    """

    sources: Path
    targets: Path
    vocab_size: int

    def words(self) -> list[str]:
        """Return the vocabulary without special entries, because each peer adds its own."""
        return [str(number) for number in range(SPECIAL_IDS, self.vocab_size)]


@dataclass(frozen=True)
class Speed:
    """Target tokens per second in each window that counts, and the mean size of an update."""

    windows: list[float]
    tokens_per_update: float

    @property
    def best(self) -> float:
        return max(self.windows)


def cut_text(prepared: Path, directory: Path) -> CutText:
    """Write the training pairs of a prepared directory in the peers' format."""
    source, target = load_subwords(prepared)
    if source is not target:
        raise ValueError(f"{prepared} has two vocabularies, and tied embeddings need a joint one")
    assert max(Vocab.pad, Vocab.unk, Vocab.bos, Vocab.eos) < SPECIAL_IDS
    shards = TokenShards(prepared / "train")
    text = CutText(directory / "sources.txt", directory / "targets.txt", len(source))
    for stream, path in (("source", text.sources), ("target", text.targets)):
        with path.open("w", encoding="utf-8") as file:
            for index in range(len(shards)):
                print(*shards.sequence(stream, index).tolist(), file=file)
    return text


def marian(python: Path, text: CutText, setup: Setup) -> Speed:
    """Train with Marian, from the environment of this Python.

    With synchronous SGD Marian splits each batch among its threads and adds up their gradients, so
    `--mini-batch-words` is the size of a whole update. But it counts source words, with eos and
    without padding: it is scaled to give `batch_tokens` target tokens on average.
    """
    require(python, "pymarian")
    m = setup.model
    source_tokens, target_tokens = _count_tokens(text.sources), _count_tokens(text.targets)
    batch_words = round(setup.batch_tokens * source_tokens / target_tokens)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        (directory / "sources").symlink_to(text.sources.resolve())
        (directory / "targets").symlink_to(text.targets.resolve())
        # Marian has no pad and no bos; two extra words make its matrix as large as ours.
        entries = ["</s>", "<unk>", "<unused 1>", "<unused 2>", *text.words()]
        lines = (f"{json.dumps(word)}: {number}\n" for number, word in enumerate(entries))
        (directory / "vocab.yml").write_text("".join(lines), "utf-8")
        command = f"""
            -m pymarian train --type transformer --train-sets sources targets
            --vocabs vocab.yml vocab.yml --dim-vocabs {text.vocab_size} {text.vocab_size}
            --model model.npz --overwrite --tempdir . --shuffle-in-ram
            --enc-depth {m.num_layers} --dec-depth {m.num_layers} --dim-emb {m.d_model}
            --transformer-dim-ffn {m.d_ff} --transformer-heads {m.num_heads}
            --transformer-ffn-activation relu --tied-embeddings-all --output-omit-bias
            --transformer-postprocess dan --transformer-postprocess-emb d
            --transformer-dropout {m.dropout}
            --transformer-dropout-attention {m.attention_dropout}
            --cost-type ce-sum --label-smoothing {setup.smoothing}
            --optimizer adam --optimizer-params 0.9 0.98 1e-9 --learn-rate {LEARNING_RATE}
            --clip-norm 0 --cpu-threads {setup.threads} --sync-sgd --workspace 1024
            --mini-batch 1 --maxi-batch {SORTED_TOGETHER} --maxi-batch-sort trg
            --mini-batch-words {batch_words} --max-length 1000
            --disp-freq {setup.window}u --after {setup.updates}u --seed 1
        """
        # One OpenMP thread per Marian thread: Marian parallelises with its own threads.
        log = _run(python, command, directory, threads=1)
    report = re.compile(r"Up\. ([\d,]+) :.* \* ([\d,]+) @ .* Time ([\d.]+)s")
    windows = [
        (int(found[2].replace(",", "")), float(found[3]))
        for line in log.splitlines()
        if (found := report.search(line))
        and int(found[1].replace(",", "")) in range(2 * setup.window, setup.updates + 1)
    ]
    return _speed([(tokens, tokens / seconds) for tokens, seconds in windows], setup, log)


def fairseq(python: Path, text: CutText, setup: Setup) -> Speed:
    """Train with fairseq, from the environment of this Python.

    Its `--max-tokens` is a budget like ours: the larger side's tokens, with eos and padding.
    """
    require(python, "fairseq-fixed")
    m = setup.model
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        # fairseq adds bos, pad, eos and unk to the dictionary itself.
        dictionary = "".join(f"{word} 1\n" for word in text.words())
        for side, path in (("src", text.sources), ("tgt", text.targets)):
            (directory / f"dict.{side}.txt").write_text(dictionary, "utf-8")
            (directory / f"train.src-tgt.{side}").symlink_to(path.resolve())
        command = f"""
            -m fairseq_cli.train . --task translation --dataset-impl raw
            --source-lang src --target-lang tgt --cpu --arch transformer --share-all-embeddings
            --encoder-layers {m.num_layers} --decoder-layers {m.num_layers}
            --encoder-embed-dim {m.d_model} --decoder-embed-dim {m.d_model}
            --encoder-ffn-embed-dim {m.d_ff} --decoder-ffn-embed-dim {m.d_ff}
            --encoder-attention-heads {m.num_heads} --decoder-attention-heads {m.num_heads}
            --dropout {m.dropout} --attention-dropout {m.attention_dropout} --activation-dropout 0
            --criterion label_smoothed_cross_entropy --label-smoothing {setup.smoothing}
            --optimizer adam --adam-betas (0.9,0.98) --adam-eps 1e-9
            --lr {LEARNING_RATE} --lr-scheduler fixed --clip-norm 0
            --max-tokens {setup.batch_tokens} --required-batch-size-multiple 1 --num-workers 0
            --max-update {setup.updates} --log-interval {setup.window} --log-format json
            --disable-validation --no-save --seed 1
        """
        log = _run(python, command, directory, threads=setup.threads)
    reports = [
        json.loads(line.partition(" | train_inner | ")[2])
        for line in log.splitlines()
        if " | train_inner | " in line
    ]
    windows = [
        (setup.window * float(report["wpb"]), float(report["wps"]))
        for report in reports
        if int(report["num_updates"]) >= 2 * setup.window
    ]
    return _speed(windows, setup, log)


def require(python: Path, package: str) -> None:
    code = f"import importlib.metadata as m; m.version({package!r})"
    try:
        found = subprocess.run([python, "-c", code], capture_output=True, check=False)
    except OSError as error:
        raise PeerMissingError(f"{python} cannot be run: {error.strerror}") from error
    if found.returncode != 0:
        raise PeerMissingError(f"{python} has no {package}")


def _count_tokens(path: Path) -> int:
    """Count the subwords of a text, plus one eos per line."""
    with path.open(encoding="utf-8") as file:
        return sum(len(line.split()) + 1 for line in file)


def _run(python: Path, command: str, directory: Path, *, threads: int) -> str:
    """Run a peer's command, whose arguments contain no spaces, and return its log."""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "CUDA_VISIBLE_DEVICES": "",
    }
    # Do not let the peer import the caller's modules.
    environment.pop("PYTHONPATH", None)
    ended = subprocess.run(
        [python.absolute(), *command.split()],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ended.returncode != 0:
        raise PeerFailedError(f"{python} ended with {ended.returncode}:\n{ended.stdout[-2000:]}")
    return ended.stdout


def _speed(windows: list[tuple[float, float]], setup: Setup, log: str) -> Speed:
    """Join windows of (target tokens, target tokens per second)."""
    if not windows:
        raise PeerFailedError(f"no speed was reported:\n{log[-2000:]}")
    tokens = sum(tokens for tokens, _ in windows)
    return Speed([rate for _, rate in windows], tokens / (len(windows) * setup.window))


PEERS: dict[str, Callable[[Path, CutText, Setup], Speed]] = {"marian": marian, "fairseq": fairseq}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--src", default="train.en", help="a file in DIR (default: %(default)s)")
    parser.add_argument("--tgt", default="train.de", help="its translation (default: %(default)s)")
    for name in PEERS:
        parser.add_argument(f"--{name}", type=Path, metavar="ENV")
    parser.add_argument("--updates", type=int, default=Setup.updates)
    options = parser.parse_args()
    model = ModelConfig(d_model=128, d_ff=256, num_layers=4, num_heads=4, dropout=0.3)
    setup = Setup(model=model, updates=options.updates)
    files = ParallelFiles(
        sources=(options.data / options.src,), targets=(options.data / options.tgt,)
    )
    with tempfile.TemporaryDirectory() as name:
        prepared = Path(name) / "prepared"
        prepare(files, Config(data=DataConfig(vocab_size=8_000)), prepared)
        text = cut_text(prepared, Path(name))
        for peer, train in PEERS.items():
            environment: Path | None = getattr(options, peer)
            if environment is None:
                continue
            try:
                speed = train(environment / "bin" / "python", text, setup)
            except PeerMissingError as error:
                print(f"{peer:>8} skipped: {error}")
                continue
            windows = " ".join(f"{rate:.0f}" for rate in speed.windows)
            print(
                f"{peer:>8} {speed.best:>7.0f} target tokens/s, "
                f"{speed.tokens_per_update:.0f} an update; windows: {windows}",
                flush=True,
            )


if __name__ == "__main__":
    main()
