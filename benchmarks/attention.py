"""The attention product alone, forward and backward: full and over a window, by length.

    python benchmarks/attention.py [--lengths 512 2048 8192] [--window 64] [--rounds N]

d_model 512 with 8 heads, one sequence, float32. Full attention is torch's fused kernel. All take
turns over several rounds, and the best round of each counts. Memory is measured in a process of its
own for each, on Linux: the peak above what stood before the first product.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from machine import machine

from headwise.model import Allowed
from headwise.model.attention import attention

HEADS, WIDTH = 8, 64


def product(kind: str, length: int, window: int) -> Callable[[], None]:
    """Return one forward and backward pass."""
    generator = torch.Generator().manual_seed(1)
    q, k, v, grad = (torch.randn(1, HEADS, length, WIDTH, generator=generator) for _ in range(4))
    inputs = [x.requires_grad_() for x in (q, k, v)]
    name, _, causal = kind.partition(" ")
    allowed = Allowed(causal=bool(causal), window=window if name == "window" else None)

    def run() -> None:
        torch.autograd.grad(attention(q, k, v, allowed), inputs, grad)

    return run


KINDS = ("full", "window", "full causal", "window causal")


def seconds_of(length: int, window: int, rounds: int) -> dict[str, float]:
    work = {kind: product(kind, length, window) for kind in KINDS}
    best = dict.fromkeys(work, float("inf"))
    for _ in range(rounds + 1):  # The first allocates.
        for kind, run in work.items():
            start = time.perf_counter()
            run()
            best[kind] = min(best[kind], time.perf_counter() - start)
    return best


def peak_mib(kind: str, length: int, window: int) -> float:
    run = product(kind, length, window)
    Path("/proc/self/clear_refs").write_text("5")  # Importing torch had a peak of its own.
    before = _peak_kib()
    run()
    return (_peak_kib() - before) / 1024


def _peak_kib() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    default = Path(__file__).parent / "results" / "attention.json"
    parser.add_argument("--out", type=Path, default=default)
    parser.add_argument("--only-memory", nargs=2, metavar=("KIND", "N"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.only_memory:
        kind, length = options.only_memory
        print(peak_mib(kind, int(length), options.window))
        return
    rows: list[dict[str, Any]] = []
    for length in options.lengths:
        seconds = seconds_of(length, options.window, options.rounds)
        for kind in KINDS:
            command = [sys.executable, __file__, "--window", str(options.window)]
            command += ["--threads", str(options.threads), "--only-memory", kind, str(length)]
            found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            full = seconds["full causal" if kind.endswith("causal") else "full"]
            rows.append(
                {
                    "length": length,
                    "kind": kind,
                    "seconds": seconds[kind],
                    "of_full": seconds[kind] / full,
                    "peak_mib": float(found),
                }
            )
            print(
                f"n = {length:6,}  {kind:13}  {1000 * seconds[kind]:8.1f} ms  "
                f"{seconds[kind] / full:6.3f} of full  {float(found):7.0f} MiB"
            )
    about = machine(threads=options.threads, torch=torch.__version__)
    report = {"machine": about, "window": options.window, "rows": rows}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    main()
