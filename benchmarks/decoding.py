"""Beam search on a test set: our torch engine, CTranslate2 through us, and CTranslate2 bare.

    python benchmarks/decoding.py --run RUN --src test.en [--rounds N] [--out FILE]

RUN is a trained run with `headwise export RUN --to ctranslate2 --quantization float32` (and int8).
All contenders have the same weights, beam and number of threads and take turns, round after round;
each keeps its best. Sentences a second, from ids to ids: subwords are cut before.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from machine import machine

from headwise.data import read_lines
from headwise.decoding import SearchSettings
from headwise.interop.ctranslate2_engine import CTranslate2Engine
from headwise.interop.ctranslate2_export import export_directory
from headwise.runs.directory import RunDirectory
from headwise.runs.model import load_model
from headwise.tasks.torch_engine import TorchEngine

BEAM, ALPHA, EXTRA = 4, 0.6, 50
SINGLES = 100


def contenders(run: RunDirectory, sources: list[list[int]]) -> dict[str, Callable[[], int]]:
    """Name each way to translate; calling it does so and tells how many sentences it took."""
    model = load_model(run).model
    batched, single = TorchEngine(model), TorchEngine(model, batch_size=1)
    found: dict[str, Callable[[], int]] = {}
    for stop in ("bound", "count"):
        settings = SearchSettings(beam=BEAM, alpha=ALPHA, stop=stop)
        found[f"torch, {stop}"] = lambda s=settings: len(batched.translate(sources, s, EXTRA))
    one = SearchSettings(beam=BEAM, alpha=ALPHA, stop="count")
    found["torch, one at a time"] = lambda: len(single.translate(sources[:SINGLES], one, EXTRA))
    for quantization in ("float32", "int8"):
        directory = export_directory(run, quantization)
        if not directory.is_dir():
            print(f"skipped: {directory} does not exist", file=sys.stderr)
            continue
        engine = CTranslate2Engine.load(directory, threads=torch.get_num_threads())
        tokens = [engine.source_tokens(ids) for ids in sources]
        found[f"ctranslate2 {quantization}"] = lambda e=engine: len(
            e.translate(sources, beam=BEAM, alpha=ALPHA, max_extra_tokens=EXTRA)
        )
        found[f"bare ctranslate2 {quantization}"] = lambda e=engine, t=tokens: len(
            e._translator.translate_batch(
                t,
                beam_size=BEAM,
                length_penalty=ALPHA,
                num_hypotheses=1,
                max_decoding_length=max(map(len, t)) + EXTRA,
                max_input_length=0,
                max_batch_size=1024,
                batch_type="tokens",
            )
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--src", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    default = Path(__file__).parent / "results" / "decoding.json"
    parser.add_argument("--out", type=Path, default=default)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    run = RunDirectory(options.run)
    subwords, _ = run.subwords()
    sources = [subwords.encode(line) for line in read_lines(options.src)]
    work = contenders(run, sources)
    best = dict.fromkeys(work, 0.0)
    for _ in range(options.rounds):
        for name, function in work.items():
            start = time.perf_counter()
            count = function()
            best[name] = max(best[name], count / (time.perf_counter() - start))
    report = {
        "machine": machine(threads=options.threads, torch=torch.__version__),
        "beam": BEAM,
        "alpha": ALPHA,
        "sentences": len(sources),
        "sentences_per_second": best,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    for name, speed in best.items():
        print(f"{name:>26} {speed:8.0f} sentences/s")


if __name__ == "__main__":
    main()
