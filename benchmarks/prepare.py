"""Speed and memory of `headwise prepare`, compared with SentencePiece alone.

    python benchmarks/prepare.py [--src FILE --tgt FILE] [--rounds N] [--processes N] [--out FILE]

Speed: the encoding phase of `headwise prepare` (reading, filtering, encoding, storing), compared
with SentencePiece encoding the same lines in as many processes, with the lines in memory and the
ids discarded. Both alternate over several rounds, and the best round of each counts. The ratio of
CPU times is reported too, because other load affects it less.

Memory: resident memory of all processes together, sampled while a million and ten million pairs are
prepared; and time and memory from opening the data to its first batch. This takes about ten minutes
and 4 GB of temporary files.

The text is synthetic and seeded: words of a Zipf vocabulary, with targets about as long as their
sources. With --src and --tgt, speed is measured on those files instead. The tests do not run this.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice, pairwise
from multiprocessing import get_context
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import numpy as np
import sentencepiece
from machine import machine

from headwise.data import ParallelFiles, load_subwords, prepare
from headwise.recipes import load_recipe

WORDS = 60_000
PAIRS_AT_A_TIME = 100_000
SAMPLE_SECONDS = 0.05
BATCH_TOKENS = 25_000


def made_up_lines(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield pairs of lines; a larger count extends the same sequence."""
    generator = np.random.default_rng(1)
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkjqxz", dtype=np.uint8)
    letter_shares = 1 / (np.arange(len(letters)) + 2)
    vocabularies = []
    for _ in range(2):
        # Rare words are longer.
        ends = np.cumsum(2 + generator.poisson(np.log10(np.arange(WORDS) + 1)))
        text = generator.choice(letters, ends[-1], p=letter_shares / letter_shares.sum()).tobytes()
        vocabularies.append([text[a:b] for a, b in pairwise([0, *ends.tolist()])])
    shares = np.cumsum(1 / (np.arange(WORDS) + 2.7))
    for _ in range(0, count, PAIRS_AT_A_TIME):
        sources = 1 + generator.gamma(4, 3.5, PAIRS_AT_A_TIME).astype(int)
        targets = 1 + (sources * generator.lognormal(0, 0.15, PAIRS_AT_A_TIME)).astype(int)
        sides = []
        for lengths, vocabulary in zip((sources, targets), vocabularies, strict=True):
            draws = generator.random(lengths.sum()) * shares[-1]
            words = [vocabulary[n] for n in np.searchsorted(shares, draws).tolist()]
            ends = np.cumsum(lengths).tolist()
            sides.append([b" ".join(words[a:b]) for a, b in pairwise([0, *ends])])
        yield from zip(*sides, strict=True)


def write_text(folder: Path, count: int) -> ParallelFiles:
    paths = folder / f"{count}.src", folder / f"{count}.tgt"
    with paths[0].open("wb") as source, paths[1].open("wb") as target:
        for source_line, target_line in islice(made_up_lines(count), count):
            source.write(source_line + b"\n")
            target.write(target_line + b"\n")
    return ParallelFiles(sources=(paths[0],), targets=(paths[1],))


def processor_seconds() -> float:
    """Return the CPU seconds of this process and its finished children."""
    return sum(os.times()[:4])


def timed_prepare(
    text: ParallelFiles, directory: Path, vocab_size: int, processes: int
) -> dict[str, float]:
    """Prepare a text; return how long each phase took."""
    began: dict[str, float] = {}
    processor_began: dict[str, float] = {}

    def note(what: str, _done: int, _of: int | None) -> None:
        if what not in began:
            began[what], processor_began[what] = time.perf_counter(), processor_seconds()

    start = time.perf_counter()
    config = load_recipe("base", [f"data.vocab_size={vocab_size}"])
    report = prepare(text, config, directory, processes=processes, on_progress=note)
    end = time.perf_counter()
    return {
        "pairs": report.train.pairs,
        "reading_seconds": began["learning subwords"] - start,
        "learning_seconds": began["encoding"] - began["learning subwords"],
        "encoding_seconds": end - began["encoding"],
        "encoding_processor_seconds": processor_seconds() - processor_began["encoding"],
        "whole_seconds": end - start,
    }


def bare_encoding(
    text: ParallelFiles, models: tuple[bytes, bytes], processes: int
) -> tuple[float, float]:
    """Encode a text, each process its share from memory; return seconds and CPU time."""
    context = get_context("spawn")
    barrier, spans = context.Barrier(processes), context.Queue()
    workers = [
        context.Process(target=_encode_share, args=(text, models, n, processes, barrier, spans))
        for n in range(processes)
    ]
    for worker in workers:
        worker.start()
    starts, ends, used = zip(*(spans.get() for _ in workers), strict=True)
    for worker in workers:
        worker.join()
    return max(ends) - min(starts), sum(used)


def _encode_share(
    text: ParallelFiles,
    models: tuple[bytes, bytes],
    number: int,
    of: int,
    barrier: Barrier,
    spans: "Queue[tuple[float, float, float]]",
) -> None:
    sides = [
        [line for path in paths for line in path.read_text("utf-8").split("\n")][number::of]
        for paths in (text.sources, text.targets)
    ]
    processors = [sentencepiece.SentencePieceProcessor(model_proto=model) for model in models]
    barrier.wait()
    start, processor_start = time.monotonic(), time.process_time()
    for lines, processor in zip(sides, processors, strict=True):
        for first in range(0, len(lines), 1000):
            processor.encode(lines[first : first + 1000], num_threads=1)
    spans.put((start, time.monotonic(), time.process_time() - processor_start))


def measure_speed(
    text: ParallelFiles, folder: Path, vocab_size: int, processes: int, rounds: int
) -> dict[str, float]:
    times: dict[str, float] = {}
    bare = bare_processor = float("inf")
    for number in range(rounds):
        directory = folder / f"speed{number}"
        new = timed_prepare(text, directory, vocab_size, processes)
        times = {name: min(value, times.get(name, value)) for name, value in new.items()}
        source, target = load_subwords(directory)
        seconds, used = bare_encoding(text, (source.model, target.model), processes)
        bare, bare_processor = min(bare, seconds), min(bare_processor, used)
    return {
        **times,
        "bare_seconds": bare,
        "bare_processor_seconds": bare_processor,
        "pairs_per_second": times["pairs"] / times["encoding_seconds"],
        "bare_pairs_per_second": times["pairs"] / bare,
        "share_of_bare": bare / times["encoding_seconds"],
        "share_of_bare_by_processor_time": bare_processor / times["encoding_processor_seconds"],
    }


def measure_preparing(
    text: ParallelFiles, directory: Path, vocab_size: int, processes: int
) -> dict[str, float]:
    """Prepare a text in a separate process and sample the memory of its process tree."""
    command = ["--only-prepare", str(text.sources[0]), str(text.targets[0]), str(directory)]
    command += ["--vocab-size", str(vocab_size), "--processes", str(processes)]
    process = subprocess.Popen(
        [sys.executable, __file__, *command], stdout=subprocess.PIPE, text=True
    )
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(map(_resident, _tree(process.pid))))
        time.sleep(SAMPLE_SECONDS)
    assert process.stdout is not None
    if process.returncode:
        sys.exit(process.returncode)
    times: dict[str, float] = json.loads(process.stdout.read())
    # The parent reports its exact peak, which sampling could miss.
    return {**times, "peak_mib": max(times["peak_mib"], peak / 2**20)}


def _own_peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _tree(pid: int) -> list[int]:
    """Return a process and its descendants, without those that have just exited."""
    found = [pid]
    for parent in found:
        for children in Path(f"/proc/{parent}/task").glob("*/children"):
            try:
                found += map(int, children.read_text().split())
            except OSError:
                continue
    return found


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def measure_opening(directory: Path) -> dict[str, float]:
    """Return the time and the memory from opening prepared data to the first batch of an epoch."""
    from headwise.config import Vocab
    from headwise.data.batches import Batches
    from headwise.data.pairs import PAIR_FIELDS, collate_pairs
    from headwise.data.shards import TokenShards

    before = _resident(os.getpid()) / 2**20
    start = time.perf_counter()
    shards = TokenShards(directory / "train")
    batches = Batches(shards, PAIR_FIELDS, batch_tokens=BATCH_TOKENS, seed=1)
    opened = time.perf_counter()
    collate_pairs(batches.read(next(batches.epoch(1))), Vocab.shared(37_000))
    end = time.perf_counter()
    return {
        "open_seconds": opened - start,
        "first_batch_seconds": end - opened,
        "open_peak_mib": _own_peak(),
        "before_opening_mib": before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--src", type=Path, help="text to measure speed on (default: made up)")
    parser.add_argument("--tgt", type=Path)
    parser.add_argument("--pairs", type=int, default=500_000, help="made-up pairs for speed")
    parser.add_argument("--memory-pairs", type=int, nargs=2, default=[1_000_000, 10_000_000])
    parser.add_argument("--vocab-size", type=int, default=8_000)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    default_out = Path(__file__).parent / "results" / "prepare.json"
    parser.add_argument("--out", type=Path, default=default_out)
    parser.add_argument("--skip-memory", action="store_true", help="measure speed only")
    parser.add_argument("--only-prepare", nargs=3, type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--only-open", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only_prepare:
        source, target, directory = options.only_prepare
        text = ParallelFiles(sources=(source,), targets=(target,))
        times = timed_prepare(text, directory, options.vocab_size, options.processes)
        print(json.dumps(times | {"peak_mib": _own_peak()}))
        return
    if options.only_open:
        print(json.dumps(measure_opening(options.only_open)))
        return

    with tempfile.TemporaryDirectory() as name:
        results = measure(Path(name), options)
    about = machine(
        processes=options.processes,
        vocab_size=options.vocab_size,
        sentencepiece=sentencepiece.__version__,
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"machine": about, **results}, indent=2) + "\n", "utf-8")
    print_tables(results)


def measure(folder: Path, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    print("measuring speed ...", file=sys.stderr)
    if options.src:
        text = ParallelFiles(sources=(options.src,), targets=(options.tgt,))
    else:
        text = write_text(folder, options.pairs)
    common = options.vocab_size, options.processes
    results = {"speed": measure_speed(text, folder, *common, options.rounds)}
    if options.skip_memory:
        return results
    for size, count in zip(("small", "large"), options.memory_pairs, strict=True):
        print(f"preparing {count:,} pairs ...", file=sys.stderr)
        text = write_text(folder, count)
        results[size] = measure_preparing(text, folder / size, *common)
        command = [sys.executable, __file__, "--only-open", str(folder / size)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        results[size] |= json.loads(output)
    return results


def print_tables(results: dict[str, dict[str, float]]) -> None:
    speed = results["speed"]
    print(
        f"{speed['pairs']:,.0f} pairs: encoded {speed['pairs_per_second']:,.0f} pairs/s, "
        f"{speed['share_of_bare']:.0%} of bare SentencePiece's "
        f"{speed['bare_pairs_per_second']:,.0f} "
        f"({speed['share_of_bare_by_processor_time']:.0%} by processor time); "
        f"in all {speed['whole_seconds']:.1f} s, of them reading {speed['reading_seconds']:.1f} "
        f"and learning subwords {speed['learning_seconds']:.1f}"
    )
    if "large" not in results:
        return
    heads = ("pairs", "prepared in", "peak MiB", "opened in", "first batch", "peak MiB", "before")
    print("{:>12} {:>12} {:>9} {:>10} {:>12} {:>9} {:>7}".format(*heads))
    for r in (results["small"], results["large"]):
        print(
            f"{r['pairs']:>12,.0f} {r['whole_seconds']:>11.0f}s {r['peak_mib']:>9.0f} "
            f"{r['open_seconds']:>9.2f}s {r['first_batch_seconds']:>11.2f}s "
            f"{r['open_peak_mib']:>9.0f} {r['before_opening_mib']:>7.0f}"
        )
    more = results["large"]["peak_mib"] / results["small"]["peak_mib"] - 1
    print(f"peak memory: {more:+.1%}")


if __name__ == "__main__":
    main()
