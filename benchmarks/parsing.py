"""Sentences per second of a parser, with several beams, constrained and unconstrained.

    python benchmarks/parsing.py RUN SENTENCES [--beams 1 4 21] [--count N] [--rounds N]

SENTENCES has one sentence on a line, with spaces between words. All settings parse the same
sentences on the same number of threads. They take turns over several rounds, and the best round of
each counts. Loading the model is not in the time; cutting words into subwords is.
"""

import argparse
import json
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from machine import machine

from headwise.data import read_lines
from headwise.tasks.parsing.parser import Parse, Parser


def measure(
    parser: Parser, sentences: list[str], beam: int, constrained: bool
) -> tuple[float, list[Parse]]:
    """Parse all sentences once; return the seconds and the parses."""
    began = time.perf_counter()
    parses = parser.parse(sentences, tokenized=True, beam=beam, constrained=constrained)
    return time.perf_counter() - began, parses


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("run", type=Path)
    arguments.add_argument("sentences", type=Path)
    arguments.add_argument("--beams", type=int, nargs="+", default=[1, 4, 21])
    arguments.add_argument("--count", type=int, default=500, help="most sentences")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--threads", type=int, default=2)
    default = Path(__file__).parent / "results" / "parsing.json"
    arguments.add_argument("--out", type=Path, default=default)
    options = arguments.parse_args()
    torch.set_num_threads(options.threads)
    parser = Parser.load(options.run)
    lines = (line for line in read_lines(options.sentences) if line.strip())
    sentences = list(islice(lines, options.count))
    if not sentences:
        sys.exit(f"{options.sentences}: there are no sentences")
    parser.parse(sentences[:8], tokenized=True, beam=1)  # The first call allocates.
    rows: list[dict[str, Any]] = [
        {"beam": beam, "constrained": constrained, "seconds": []}
        for beam in options.beams
        for constrained in (True, False)
    ]
    for _ in range(options.rounds):
        for row in rows:
            seconds, parses = measure(parser, sentences, row["beam"], row["constrained"])
            row["seconds"].append(seconds)
            row["repaired"] = sum(parse.is_repaired for parse in parses)
    for row in rows:
        row["sentences_per_second"] = len(sentences) / min(row["seconds"])
    report = {
        "machine": machine(threads=options.threads, torch=torch.__version__),
        "run": options.run.name,
        "parameters": sum(parameter.numel() for parameter in parser.model.parameters()),
        "sentences": len(sentences),
        "words": sum(len(sentence.split()) for sentence in sentences),
        "rounds": options.rounds,
        "settings": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    for row in rows:
        how = "constrained" if row["constrained"] else "unconstrained"
        speed, repaired = row["sentences_per_second"], row["repaired"]
        print(f"beam {row['beam']:2} {how:>13} {speed:8.1f} sentences/s, {repaired} repaired")


if __name__ == "__main__":
    main()
