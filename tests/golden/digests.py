"""Print a digest of the weights after 60 seeded updates, for several kinds of model.

    PYTHONPATH=src python tests/golden/digests.py

Run it before and after a change that must not alter training, on the same machine: the digests
depend on the kind of CPU and on the number of threads. It uses the command line alone, so that it
runs on any version.
"""

import hashlib
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from safetensors.numpy import load_file

WORDS = [a + b + c for a in "bdk" for b in "aou" for c in ("n", "ra", "ti")]

SETTINGS = {
    "data.vocab_size": "320",
    "data.holdout_pairs": "40",
    "model.d_model": "32",
    "model.d_ff": "48",
    "model.num_layers": "2",
    "model.num_heads": "4",
    "model.dropout": "0.1",
    "train.batch_tokens": "300",
    "train.warmup_steps": "20",
    "train.max_steps": "60",
    "train.save_every_steps": "20",
    "train.average_last": "2",
}

VARIANTS: dict[str, dict[str, str]] = {
    "post-norm, three-way": {},
    "pre-norm, three-way": {"model.norm_order": "pre"},
    "post-norm, untied, two vocabularies": {"model.tying": "untied", "data.joint": "false"},
    "pre-norm, two-way, accumulation 3": {
        "model.norm_order": "pre",
        "model.tying": "two-way",
        "train.accumulate": "3",
    },
    "learned positions, attention dropout, cosine": {
        "model.positions": "learned",
        "model.max_positions": "64",
        "model.attention_dropout": "0.1",
        "train.schedule": "cosine",
        "train.peak_rate": "3e-3",
    },
}


def write_text(directory: Path, pairs: int = 600) -> None:
    """Write sentences of random words, and the same words backwards."""
    generator = random.Random(1)
    sentences = [generator.choices(WORDS, k=generator.randint(2, 12)) for _ in range(pairs)]
    for name, order in (("text.src", 1), ("text.tgt", -1)):
        lines = (" ".join(words[::order]) + "\n" for words in sentences)
        (directory / name).write_text("".join(lines))


def train(directory: Path, run: Path, changes: dict[str, str]) -> None:
    """Train a run in a process of its own, with one thread."""
    command = [sys.executable, "-m", "headwise", "train", "base", "--run", str(run)]
    command += ["--src", str(directory / "text.src"), "--tgt", str(directory / "text.tgt")]
    for key, value in (SETTINGS | changes).items():
        command += ["--set", f"{key}={value}"]
    subprocess.run(
        command, check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True
    )


def digest(folder: Path) -> str:
    """Digest the bytes of a checkpoint's weights, in the order of their names."""
    found = hashlib.sha256()
    for name, tensor in sorted(load_file(folder / "weights.safetensors").items()):
        found.update(name.encode())
        found.update(tensor.tobytes())
    return found.hexdigest()[:16]


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_text(directory)
        for number, (name, changes) in enumerate(VARIANTS.items()):
            run = directory / str(number)
            train(directory, run, changes)
            last, averaged = digest(run / "checkpoints" / "step-00000060"), digest(run / "averaged")
            print(f"{name:<45} {last} averaged {averaged}")


if __name__ == "__main__":
    main()
