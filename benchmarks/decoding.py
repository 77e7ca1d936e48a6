"""Beam search on a test set: our torch engine, CTranslate2 (through us, and directly) and Marian.

    python benchmarks/decoding.py --run RUN --src test.en [--transformers ENV] [--rounds N]

RUN is a trained run with `headwise export RUN --to ctranslate2 --quantization float32` (and int8).
For Hugging Face's Marian, which decoding_peers.py builds from it, it needs model.norm_order =
"post". All engines use the same weights, beam, length penalty and number of threads, and stop when
as many hypotheses have finished as the beam is wide. They alternate over several rounds, and the
best round of each counts. Marian runs with several batch sizes and both attention implementations;
the best combination counts. The result is sentences per second from ids to ids, without
tokenisation, and the time of `headwise translate` for one line in a new process.
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from decoding_peers import ATTENTIONS, MarianPeer, equal_share, marian_peer
from machine import machine
from training_peers import PeerMissingError

from headwise.data import read_lines
from headwise.decoding import Hypothesis, SearchSettings
from headwise.interop.ctranslate2.engine import CTranslate2Engine
from headwise.interop.ctranslate2.export import export_directory
from headwise.interop.ctranslate2.files import Quantization
from headwise.interop.ctranslate2.spec import require_expressible
from headwise.model import Transformer
from headwise.runs.directory import RunDirectory
from headwise.tasks.translation.torch_engine import TorchEngine
from headwise.tasks.translation.trained import load_model

# The penalty and the stopping rule that every engine here supports.
SAME = SearchSettings(beam=4, alpha=0.6, penalty="power", stop="count")
EXTRA = 50
SINGLES = 100
MARIAN_BATCHES = (16, 32, 64)


@dataclass(frozen=True)
class Pass:
    """Outputs and duration of one engine on the test set, in one round."""

    outputs: list[tuple[int, ...]]
    seconds: float


Contender = Callable[[], Pass]


def timed(translate: Callable[[], list[list[Hypothesis]]]) -> Contender:
    def run() -> Pass:
        start = time.perf_counter()
        found = translate()
        seconds = time.perf_counter() - start
        return Pass([best.ids for best, *_ in found], seconds)

    return run


def torch_contenders(model: Transformer, sources: list[list[int]]) -> dict[str, Contender]:
    engine = TorchEngine(model)
    paper = SearchSettings(beam=SAME.beam, alpha=SAME.alpha)
    return {
        "torch": timed(lambda: engine.translate(sources, SAME, EXTRA)),
        # One call per sentence: in one call, even batches of one would be searched in parallel.
        "torch, one at a time": timed(
            lambda: [engine.translate([s], SAME, EXTRA)[0] for s in sources[:SINGLES]]
        ),
        "torch, the paper's penalty, bound": timed(lambda: engine.translate(sources, paper, EXTRA)),
    }


def ctranslate2_contenders(
    run: RunDirectory, sources: list[list[int]], quantization: Quantization, threads: int
) -> dict[str, Contender]:
    directory = export_directory(run, quantization)
    if not directory.is_dir():
        print(f"skipped: {directory} does not exist", file=sys.stderr)
        return {}
    engine = CTranslate2Engine.load(directory, threads=threads)
    tokens = [engine.source_tokens(ids) for ids in sources]

    def bare() -> Pass:
        start = time.perf_counter()
        found = engine._translator.translate_batch(
            tokens,
            beam_size=SAME.beam,
            length_penalty=SAME.alpha,
            num_hypotheses=1,
            max_decoding_length=max(map(len, tokens)) + EXTRA,
            max_input_length=0,
            max_batch_size=1024,
            batch_type="tokens",
        )
        seconds = time.perf_counter() - start
        return Pass([tuple(engine._ids[t] for t in each.hypotheses[0]) for each in found], seconds)

    def ours() -> list[list[Hypothesis]]:
        return engine.translate(
            sources,
            beam=SAME.beam,
            alpha=SAME.alpha,
            penalty=SAME.penalty,
            max_extra_tokens=EXTRA,
        )

    return {f"ctranslate2 {quantization}": timed(ours), f"bare ctranslate2 {quantization}": bare}


@contextmanager
def own_process(
    find: Callable[..., dict[str, Contender]], *arguments: object
) -> Iterator[dict[str, Contender]]:
    """Run engines in a separate process.

    Loading CTranslate2 makes torch slower, even if CTranslate2 is not used.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run_on_request, args=(theirs, find, *arguments), daemon=True)
    process.start()

    def contender(name: str) -> Contender:
        def run() -> Pass:
            ours.send(name)
            found: Pass = ours.recv()
            return found

        return run

    yield {name: contender(name) for name in ours.recv()}
    ours.send(None)
    process.join()


def _run_on_request(
    pipe: Connection, find: Callable[..., dict[str, Contender]], *arguments: object
) -> None:
    work = find(*arguments)
    pipe.send(list(work))
    while (name := pipe.recv()) is not None:
        pipe.send(work[name]())


def marian_contenders(peer: MarianPeer, sources: list[list[int]]) -> dict[str, Contender]:
    def contender(attention: str, batch: int) -> Contender:
        given = sources[:SINGLES] if batch == 1 else sources
        return lambda: Pass(*peer.translate(given, SAME, EXTRA, attention=attention, batch=batch))

    return {
        marian_name(attention, batch): contender(attention, batch)
        for attention in ATTENTIONS
        for batch in (1, *MARIAN_BATCHES)
    }


def marian_name(attention: str, batch: int) -> str:
    return f"marian {attention}, {'one' if batch == 1 else batch} at a time"


def cold_seconds(run: Path, line: str, threads: int) -> float:
    """Translate one line in a new process."""
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "headwise", "translate", run],
        input=line + "\n",
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        capture_output=True,
        text=True,
        check=True,
    )
    return time.perf_counter() - start


def ratios(best: dict[str, float]) -> dict[str, float]:
    """Return the speed of each of our engines relative to its baseline."""
    found = {
        f"ctranslate2 {quantization} / bare": best[name] / best[f"bare {name}"]
        for quantization in ("float32", "int8")
        if (name := f"ctranslate2 {quantization}") in best
    }
    for kind, ours, batches in (
        ("batches", "torch", MARIAN_BATCHES),
        ("one at a time", "torch, one at a time", (1,)),
    ):
        names = [marian_name(attention, batch) for attention in ATTENTIONS for batch in batches]
        if names[0] in best:
            found[f"torch / marian, {kind}"] = best[ours] / max(best[name] for name in names)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--src", type=Path, required=True)
    parser.add_argument("--transformers", type=Path, help="environment with transformers")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    default = Path(__file__).parent / "results" / "decoding.json"
    parser.add_argument("--out", type=Path, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    run = RunDirectory(options.run)
    trained = load_model(run)
    model = require_expressible(trained.model)
    lines = list(read_lines(options.src))
    sources = [trained.source.encode(line) for line in lines]
    check, cold = None, []
    with ExitStack() as stack:
        work = torch_contenders(model, sources)
        for quantization in ("float32", "int8"):
            work |= stack.enter_context(
                own_process(ctranslate2_contenders, run, sources, quantization, options.threads)
            )
        if options.transformers is not None:
            python = options.transformers / "bin" / "python"
            positions = max(map(len, sources)) + EXTRA + 2
            try:
                peer = stack.enter_context(marian_peer(python, model, positions, options.threads))
            except PeerMissingError as error:
                print(f"skipped: {error}", file=sys.stderr)
            else:
                check = peer.check(model, sources, SAME, EXTRA)
                print(f"marian: {check}", file=sys.stderr)
                work |= marian_contenders(peer, sources)
        best, equal = dict.fromkeys(work, 0.0), dict.fromkeys(work, 1.0)
        for number in range(options.rounds):
            reference: list[tuple[int, ...]] = []
            for name, contender in work.items():
                done = contender()
                reference = reference or done.outputs
                best[name] = max(best[name], len(done.outputs) / done.seconds)
                equal[name] = equal_share(reference[: len(done.outputs)], done.outputs)
            cold.append(cold_seconds(options.run, lines[0], options.threads))
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    report = {
        "machine": machine(threads=options.threads, torch=torch.__version__),
        "search": asdict(SAME),
        "sentences": len(sources),
        "sentences_per_second": best,
        "outputs_equal_to_torchs": equal,
        "marian_check": None if check is None else asdict(check),
        "ratios": ratios(best),
        "cold_translate_seconds": cold,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    for name, speed in best.items():
        print(f"{name:>34} {speed:8.1f} sentences/s   {equal[name]:6.1%} of torch's outputs")
    for name, ratio in ratios(best).items():
        print(f"{name:>34} {ratio:8.2f}x")
    print(f"headwise translate of one line, cold: {min(cold):.1f} to {max(cold):.1f} s")


if __name__ == "__main__":
    main()
