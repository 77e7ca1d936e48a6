"""Serving single sentences to 32 clients: batched, one decode per request, and offline.

    python benchmarks/serving.py --run RUN --src test.en [--engine ctranslate2] [--out FILE]

RUN is a trained run; with --engine ctranslate2, an exported one. These variants do the same work
with the same engine and number of threads. They alternate, and the best round of each counts:

    offline        one Translator call with all sentences
    offline, few   the same, with a batch size equal to the number of clients, the most that a
                   server can have in progress (torch only; CTranslate2 divides its work itself)
    batched        `headwise serve` with 32 clients, each sending one sentence at a time; with
                   torch, one worker per core (--workers)
    one by one     a server without workers that decodes each request alone

The server and the clients run in separate processes, but share the cores of the machine. Afterwards
p50 and p95 are measured at several loads.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from machine import machine

from headwise.data import read_lines
from headwise.runs.directory import RunDirectory

CLIENTS = 32
LOADS = (1, 4, 16, 32, 64)


async def ask(address: tuple[str, int], sentences: list[str], clients: int) -> list[float]:
    """Send sentences from concurrent clients, one at a time each; return the request durations."""
    waiting = iter(sentences)
    seconds: list[float] = []

    async def client() -> None:
        reader, writer = await asyncio.open_connection(*address)
        for sentence in waiting:
            body = json.dumps({"q": sentence, "split": False}).encode()
            begin = time.perf_counter()
            writer.write(
                b"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            answer = await reader.readexactly(size)
            seconds.append(time.perf_counter() - begin)
            assert head.startswith(b"HTTP/1.1 200"), answer
        writer.close()

    await asyncio.gather(*(client() for _ in range(clients)))
    return seconds


class Server:
    """`headwise serve` in a separate process."""

    def __init__(self, options: argparse.Namespace, *, alone: bool) -> None:
        """Start the server; with `alone` it decodes one sentence at a time."""
        code = "from headwise.cli import main; main()"
        if alone:
            code = f"import headwise.serving.searches as b; b._MOST_SENTENCES = 1; {code}"
        command = [sys.executable, "-c", code, "serve", str(options.run), "--port", "0"]
        command += ["--engine", options.engine, "--max-queue", "100000"]
        if not alone:
            command += ["--workers", str(options.workers)]
        if options.quantization:
            command += ["--quantization", options.quantization]
        if options.checkpoint:
            command += ["--checkpoint", options.checkpoint]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line.startswith("serving at "), "the server did not start"
        self.address = ("127.0.0.1", int(line.rpartition(":")[2]))

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


def offline(options: argparse.Namespace, sentences: list[str], at_a_time: int | None) -> float:
    """Return sentences per second of the Translator, in a separate process."""
    code = f"""
import json, sys, time
from pathlib import Path
from headwise.workflows.translators import load_translator
sentences = json.load(sys.stdin)
translator = load_translator(Path({str(options.run)!r}), engine={options.engine!r},
    quantization={options.quantization!r}, checkpoint={options.checkpoint!r},
    batch_size={at_a_time!r})
translator.translate(sentences[:64])
begin = time.perf_counter()
translator.translate(sentences)
print(len(sentences) / (time.perf_counter() - begin))
"""
    result = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(sentences),
        capture_output=True,
        text=True,
        check=True,
    )
    return float(result.stdout)


def served(server: Server, sentences: list[str], clients: int) -> tuple[float, list[float]]:
    """Return sentences per second and the request durations."""
    begin = time.perf_counter()
    seconds = asyncio.run(ask(server.address, sentences, clients))
    return len(sentences) / (time.perf_counter() - begin), seconds


def percentiles(seconds: list[float]) -> dict[str, float]:
    cut = statistics.quantiles(seconds, n=20)
    return {"p50_ms": 1000 * statistics.median(seconds), "p95_ms": 1000 * cut[18]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--src", type=Path, required=True)
    parser.add_argument("--engine", choices=["torch", "ctranslate2"], default="torch")
    parser.add_argument("--quantization", choices=["int8", "int16", "float32"])
    parser.add_argument("--checkpoint")
    parser.add_argument("--workers", type=int, help="Processes that search, by default one a core.")
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    results = Path(__file__).parent / "results"
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    num_cores = len(os.sched_getaffinity(0))
    if options.workers is None:
        options.workers = num_cores if options.engine == "torch" else 1
    sentences = list(read_lines(options.src))[: options.sentences]
    few = sentences[: max(100, len(sentences) // 5)]  # One by one is slow.
    best = {"offline": 0.0, "batched": 0.0, "one by one": 0.0}
    if options.engine == "torch":
        best["offline, few"] = 0.0
    loads: dict[int, dict[str, float]] = {}
    batched, alone = Server(options, alone=False), Server(options, alone=True)
    try:
        for server in (batched, alone):
            served(server, sentences[:100], CLIENTS)  # Warm up.
        for number in range(options.rounds):
            for name, at_a_time in (("offline", None), ("offline, few", CLIENTS)):
                if name in best:
                    best[name] = max(best[name], offline(options, sentences, at_a_time))
            best["batched"] = max(best["batched"], served(batched, sentences, CLIENTS)[0])
            best["one by one"] = max(best["one by one"], served(alone, few, CLIENTS)[0])
            print(f"round {number + 1}: {best}", file=sys.stderr)
        for clients in LOADS:
            speed, seconds = served(batched, sentences if clients > 1 else few, clients)
            loads[clients] = {"sentences_per_second": speed, **percentiles(seconds)}
    finally:
        batched.stop()
        alone.stop()
    ratios = {
        "batched / one by one": best["batched"] / best["one by one"],
        "batched / offline": best["batched"] / best["offline"],
    }
    if few_at_a_time := best.get("offline, few"):
        ratios["batched / offline, few"] = best["batched"] / few_at_a_time
    config = RunDirectory(options.run).config()
    report: dict[str, Any] = {
        "machine": machine(cores=num_cores),
        "model": {
            "d_model": config.model.d_model,
            "d_ff": config.model.d_ff,
            "num_layers": config.model.num_layers,
            "vocab_size": config.data.vocab_size,
        },
        "engine": options.engine,
        "workers": options.workers,
        "quantization": options.quantization,
        "sentences": len(sentences),
        "clients": CLIENTS,
        "sentences_per_second": best,
        "ratios": ratios,
        "loads": loads,
    }
    out = options.out or results / f"serving-{options.engine}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=2) + "\n", "utf-8")
    for name, speed in best.items():
        print(f"{name:>12} {speed:8.0f} sentences/s")
    for name, ratio in ratios.items():
        print(f"{name:>22} {ratio:6.2f}")
    print(f"{'clients':>8} {'sentences/s':>12} {'p50 ms':>8} {'p95 ms':>8}")
    for clients, load in loads.items():
        speed, p50, p95 = load.values()
        print(f"{clients:>8} {speed:>12.0f} {p50:>8.0f} {p95:>8.0f}")


if __name__ == "__main__":
    main()
