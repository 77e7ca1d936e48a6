"""Generation on a server: streaming clients together, and their requests one after the other.

`generation.py --run RUN` measures it. The same requests, with the same seeds, go to one server
(`headwise serve`), from all clients at once and from one client alone, in turns over some rounds;
the best round of each counts. The tokens of both are compared: rounding may change a few draws.
"""

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Round:
    """What was measured while all requests were answered once."""

    seconds: float = 0.0
    tokens: int = 0
    first_seconds: list[float] = field(default_factory=list)
    """From sending a request to its first text."""
    texts: dict[int, str] = field(default_factory=dict)

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds

    def first_ms(self) -> dict[str, float]:
        cut = statistics.quantiles(self.first_seconds, n=20)
        return {"p50": 1000 * statistics.median(self.first_seconds), "p95": 1000 * cut[18]}


async def ask(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    number: int,
    fields: dict[str, Any],
    found: Round,
) -> None:
    body = json.dumps(fields | {"seed": number}).encode()
    begin = time.perf_counter()
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    )
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    text = ""
    while True:
        size = int((await reader.readline()).strip(), 16)
        chunk = await reader.readexactly(size + 2)
        if not size:
            break
        for line in chunk.splitlines():
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line.removeprefix(b"data: "))
            assert "error" not in event, event
            if event["usage"]:
                found.tokens += event["usage"]["completion_tokens"]
            for choice in event["choices"]:
                if not text and choice["text"]:
                    found.first_seconds.append(time.perf_counter() - begin)
                text += choice["text"]
    found.texts[number] = text


async def ask_all(port: int, prompts: Sequence[str], clients: int, tokens: int) -> Round:
    """Send a request for each prompt from so many clients, each on a connection of its own."""
    waiting, found = iter(enumerate(prompts)), Round()

    async def client() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number, prompt in waiting:
            fields = {
                "prompt": prompt,
                "max_tokens": tokens,
                "stream": True,
                "stream_options": {"include_usage": True},
            }
            await ask(reader, writer, number, fields, found)
        writer.close()

    begin = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    found.seconds = time.perf_counter() - begin
    return found


def measure_clients(
    run: Path, prompts: Sequence[str], *, clients: int, tokens: int, rounds: int
) -> dict[str, Any]:
    """Return tokens per second and the time to the first text, together and one by one."""
    command = [sys.executable, "-m", "headwise", "serve", str(run), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("serving at "), "the server did not start"
    port = int(line.rpartition(":")[2])
    found: dict[str, list[Round]] = {"together": [], "one by one": []}
    try:
        asyncio.run(ask_all(port, prompts[:clients], clients, tokens))  # To warm up.
        for number in range(rounds):
            for name, count in (("together", clients), ("one by one", 1)):
                found[name].append(asyncio.run(ask_all(port, prompts, count, tokens)))
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()
    best = {name: max(each, key=lambda one: one.speed) for name, each in found.items()}
    alone = found["one by one"][0].texts
    return {
        "clients": clients,
        "requests": len(prompts),
        "max_tokens": tokens,
        "tokens_per_second": {name: each.speed for name, each in best.items()},
        "ratio": best["together"].speed / best["one by one"].speed,
        "first_text_ms": {name: each.first_ms() for name, each in best.items()},
        "texts_that_differ": sum(
            each.texts[number] != alone[number] for each in found["together"] for number in alone
        ),
    }
