"""Make tests/golden/translation: a run of the version at hand, and what it translates to.

    python tests/golden/make_run.py

It was run once, by version 0.1.0 before it had other tasks than translation, and test_golden.py
shows that its run can still be loaded, resumed and served. Do not run it again to make a test pass.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
WORDS = [a + b + c for a in "bdk" for b in "aou" for c in ("n", "ra", "ti")]
SETTINGS = {
    "data.vocab_size": "360",
    "data.holdout_pairs": "20",
    "model.d_model": "32",
    "model.d_ff": "24",
    "model.num_layers": "1",
    "model.num_heads": "2",
    "model.norm_order": "pre",
    "model.dropout": "0.0",
    "train.schedule": "linear",
    "train.peak_rate": "1e-2",
    "train.batch_tokens": "600",
    "train.warmup_steps": "10",
    "train.max_steps": "400",
    "train.save_every_steps": "200",
    "train.average_last": "1",
}


def sentences(seed: int, count: int) -> list[str]:
    generator = random.Random(seed)
    return [" ".join(generator.choices(WORDS, k=generator.randint(2, 7))) for _ in range(count)]


def headwise(*arguments: str, given: str | None = None) -> str:
    return subprocess.run(
        [sys.executable, "-m", "headwise", *arguments],
        input=given,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def main() -> None:
    run = HERE / "translation"
    # Short ones: what is learned well is the same on any CPU.
    asked = [line for line in sentences(2, 40) if len(line.split()) < 5]
    with tempfile.TemporaryDirectory() as temporary:
        source, target = Path(temporary) / "text.src", Path(temporary) / "text.tgt"
        lines = sentences(1, 1500)
        source.write_text("".join(f"{line}\n" for line in lines))
        target.write_text("".join(line.swapcase() + "\n" for line in lines))
        command = ["train", "base", "--src", str(source), "--tgt", str(target), "--run", str(run)]
        for key, value in SETTINGS.items():
            command += ["--set", f"{key}={value}"]
        headwise(*command)
    given = "".join(f"{line}\n" for line in asked)
    answers = {
        step: headwise("translate", str(run), "--checkpoint", step, given=given).splitlines()
        for step in ("200", "400")
    }
    # As if it had been killed after update 200.
    shutil.rmtree(run / "checkpoints" / "step-00000400")
    (run / ".lock").unlink()
    expected = {"sentences": asked, "translations": answers}
    (HERE / "translation.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    main()
