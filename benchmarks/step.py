"""A training step (forward, backward, Adam), compared with plain PyTorch and the GEMM rate.

    python benchmarks/step.py [--rounds N] [--threads N] [--out FILE]

All contenders of a case alternate in one process, and the best round of each counts. A speed-up is
the ratio of two such times. Peak memory is measured in a separate process for each contender. The
tests do not run this.
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from machine import machine
from peers import PlainTorchStep, torch_adam

from headwise import TrainingStep, Transformer, Vocab
from headwise.config import ModelConfig
from headwise.training.products import fast_float32_products

CPU = torch.device("cpu")

SMOOTHING = 0.1
GEMM_SIZE = 1024
GEMMS = 20


@dataclass(frozen=True)
class Case:
    model: ModelConfig
    vocab_size: int
    rows: int
    length: int
    rounds: int

    def flops(self) -> float:
        """Count the multiplications and additions of every matrix product of one step.

        Backward costs twice as much as forward. Recomputation, softmax, norms, dropout and Adam are
        not counted: this is the work that the model needs, however it is implemented.
        """
        m = self.model
        d, queries, values = m.d_model, m.num_heads * m.d_k, m.num_heads * m.d_v
        attention = 2 * d * queries + 2 * d * values
        weights = m.num_layers * (3 * attention + 2 * 2 * d * m.d_ff) + d * self.vocab_size
        products_of_tokens = m.num_layers * 3 * self.length * (queries + values)
        return 3 * 2 * self.rows * self.length * (weights + products_of_tokens)


CASES = {
    "tiny": Case(
        ModelConfig(d_model=128, d_ff=256, num_layers=4, num_heads=4, dropout=0.3),
        vocab_size=8_000,
        rows=270,
        length=15,
        rounds=15,
    ),
    "base": Case(ModelConfig(), vocab_size=37_000, rows=64, length=25, rounds=6),
}
CONTENDERS = ("headwise", "torch")


def training_step(contender: str, case: Case) -> Callable[[], None]:
    """Build a contender and return its step."""
    torch.manual_seed(1)
    src, tgt_in, tgt_out = (
        torch.randint(4, case.vocab_size, (case.rows, case.length)) for _ in range(3)
    )
    if contender == "torch":
        peer = PlainTorchStep(case.model, case.vocab_size, case.length, SMOOTHING)
        peer_optimizer = torch_adam(peer.parameters())

        def peer_step() -> None:
            peer(src, tgt_in, tgt_out).backward()
            peer_optimizer.step()
            peer_optimizer.zero_grad()

        return peer_step

    model = Transformer(case.model, Vocab.shared(case.vocab_size))
    step, optimizer = TrainingStep(model, label_smoothing=SMOOTHING), torch_adam(model.parameters())

    def our_step() -> None:
        with fast_float32_products(CPU):
            sums, count = step(src, tgt_in, tgt_out)
            (sums.smoothed / count).backward()
        optimizer.step()
        optimizer.zero_grad()

    return our_step


def gemm() -> Callable[[], None]:
    a, b = torch.randn(GEMM_SIZE, GEMM_SIZE), torch.randn(GEMM_SIZE, GEMM_SIZE)
    out = torch.empty_like(a)

    def products() -> None:
        with fast_float32_products(CPU):
            for _ in range(GEMMS):
                torch.mm(a, b, out=out)

    return products


def best_seconds(work: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Run all contenders in alternating rounds; return the best time of each."""
    best = dict.fromkeys(work, float("inf"))
    for function in work.values():
        function()
    for _ in range(rounds):
        for name, function in work.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def measure_time(name: str, rounds: int | None) -> dict[str, float]:
    case = CASES[name]
    work = {contender: training_step(contender, case) for contender in CONTENDERS}
    seconds = best_seconds(work | {"gemm": gemm()}, rounds or case.rounds)
    gemm_rate = GEMMS * 2 * GEMM_SIZE**3 / seconds["gemm"]
    return {
        "headwise_seconds": seconds["headwise"],
        "torch_seconds": seconds["torch"],
        "speed_up": seconds["torch"] / seconds["headwise"],
        "step_gflop": case.flops() / 1e9,
        "gemm_gflops": gemm_rate / 1e9,
        "headwise_share_of_gemm": case.flops() / seconds["headwise"] / gemm_rate,
        "torch_share_of_gemm": case.flops() / seconds["torch"] / gemm_rate,
    }


def measure_memory(name: str, contender: str) -> dict[str, float]:
    """Return the peak resident memory of a few steps, and the resident memory before them."""
    step = training_step(contender, CASES[name])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(3):
        step()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"peak_mib": peak / 1024, "above_model_mib": (peak - before) / 1024}


def in_own_process(arguments: list[str]) -> dict[str, float]:
    command = [sys.executable, __file__, *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, float] = json.loads(output)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, help="rounds for each case (default: by case)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "step.json")
    parser.add_argument("--only-time", metavar="CASE", help=argparse.SUPPRESS)
    parser.add_argument("--only-memory", nargs=2, metavar=("CASE", "WHO"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    if options.only_time:
        print(json.dumps(measure_time(options.only_time, options.rounds)))
        return
    if options.only_memory:
        print(json.dumps(measure_memory(*options.only_memory)))
        return

    common = ["--threads", str(options.threads)]
    if options.rounds:
        common += ["--rounds", str(options.rounds)]
    results: dict[str, dict[str, float]] = {}
    for name in CASES:
        print(f"measuring {name} ...", file=sys.stderr)
        results[name] = in_own_process([*common, "--only-time", name])
        for contender in CONTENDERS:
            memory = in_own_process([*common, "--only-memory", name, contender])
            results[name] |= {f"{contender}_{key}": value for key, value in memory.items()}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    about = machine(threads=options.threads, torch=torch.__version__)
    report = {"machine": about, "cases": results}
    options.out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    print_table(results)


def print_table(results: dict[str, dict[str, float]]) -> None:
    heads = ("", "headwise", "torch", "speed-up", "of GEMM rate", "torch's", "peak MiB", "torch's")
    print(("{:>6} {:>9} {:>9} {:>9} {:>13} {:>8} {:>9} {:>8}").format(*heads))
    for name, r in results.items():
        print(
            f"{name:>6} {r['headwise_seconds']:>8.3f}s {r['torch_seconds']:>8.3f}s "
            f"{r['speed_up']:>8.2f}x {r['headwise_share_of_gemm']:>13.0%} "
            f"{r['torch_share_of_gemm']:>8.0%} {r['headwise_peak_mib']:>9.0f} "
            f"{r['torch_peak_mib']:>8.0f}"
        )
    rates = ", ".join(f"{r['gemm_gflops']:.0f}" for r in results.values())
    print(f"GEMM rate at {GEMM_SIZE}^3: {rates} GFLOP/s")


if __name__ == "__main__":
    main()
