"""The client that does nothing wrong: what it is answered, and how long it waits."""

import http.client
import json
import threading
import time
from dataclasses import dataclass, field

ADDRESS = "127.0.0.9"
EVERY_SECONDS = 0.2
MOST_SECONDS = 40.0
"""Longer than the server's own deadline."""


@dataclass
class Answers:
    """What one kind of request was answered, and after how long."""

    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def at(self, share: float) -> float:
        """Return the waiting time that a share of the requests did not exceed."""
        times = sorted(self.seconds)
        return times[min(len(times) - 1, int(share * len(times)))]

    def figures(self) -> dict[str, object]:
        return {
            "requests": len(self.seconds),
            "failures": self.failures,
            **{
                name: round(self.at(share) * 1000, 1)
                for name, share in (("p50_ms", 0.5), ("p95_ms", 0.95), ("worst_ms", 1.0))
            },
        }


def ask(port: int, method: str, path: str, body: bytes | None = None) -> str:
    """Make one request on a connection of its own; return its status, or what went wrong."""
    connection = http.client.HTTPConnection(
        "127.0.0.1", port, timeout=MOST_SECONDS, source_address=(ADDRESS, 0)
    )
    try:
        connection.request(method, path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return str(answer.status)
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


class Innocent:
    """Asks for the server's health and for translations again and again, while a block runs."""

    def __init__(self, port: int) -> None:
        self.health, self.translations = Answers(), Answers()
        body = json.dumps({"q": "ban dora kun"}).encode()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask_on, args=(self.health, port, "GET", "/healthz")),
            threading.Thread(
                target=self._ask_on, args=(self.translations, port, "POST", "/v1/translate", body)
            ),
        ]

    def __enter__(self) -> "Innocent":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask_on(
        self, answers: Answers, port: int, method: str, path: str, body: bytes | None = None
    ) -> None:
        stopped = False
        while not stopped:
            begin = time.perf_counter()
            status = ask(port, method, path, body)
            taken = time.perf_counter() - begin
            answers.seconds.append(taken)
            if status != "200":
                answers.failures.append(status)
            stopped = self._stop.wait(max(0.0, EVERY_SECONDS - taken))
