"""The attackers: one process, several addresses, at most half a core.

Run as `python -m tests.attacks.swarm PORT SECONDS ATTACK...`. It prints a line when it begins, and
then, as JSON, which statuses each attack was answered with; "closed" is a connection that the
server closed before or instead of an answer.
"""

import asyncio
import json
import re
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import count

from tests.attacks import payloads

CORES = 0.5
CONNECTIONS = 8
"""Spread over the addresses: of one attack, or of all together."""
TURN_SECONDS = 1.0
"""How long a connection attacks in one way before it goes on to the next."""
ADDRESSES = [f"127.0.0.{number}" for number in range(2, 6)]
FLOOD_CONNECTIONS = 400
FLOOD_ADDRESS = "127.0.0.10"
"""Another one, so that a limit of connections from one address does not stop the other attacks."""

_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")


class Throttle:
    """Keeps this process at its share of a core."""

    def __init__(self) -> None:
        self._begin, self._used = time.monotonic(), time.process_time()

    async def wait(self) -> None:
        """Wait until this process has used no more than its share."""
        used = time.process_time() - self._used
        await asyncio.sleep(max(0.0, used / CORES - (time.monotonic() - self._begin)))


class Attacker:
    """One connection after the other from one address."""

    def __init__(self, port: int, address: str, throttle: Throttle, counts: Counter[str]) -> None:
        self._port, self._address, self._throttle, self._counts = port, address, throttle, counts

    async def again_and_again(self, attack: Callable[["Attacker"], Awaitable[None]]) -> None:
        """Attack until cancelled; reconnect when a connection ends."""
        while True:
            try:
                await attack(self)
            except (OSError, EOFError):
                self._counts["closed"] += 1
            # No faster than this, whatever the server does with connections.
            await asyncio.sleep(0.05)

    async def in_turns(
        self,
        attacks: list[tuple[Callable[["Attacker"], Awaitable[None]], Counter[str]]],
        first: int,
    ) -> None:
        """Attack in one way after the other until cancelled."""
        for number in count(first):
            one, self._counts = attacks[number % len(attacks)]
            with suppress(TimeoutError):
                async with asyncio.timeout(TURN_SECONDS):
                    await self.again_and_again(one)

    async def connect(self, *, receive_bytes: int | None = None) -> socket.socket:
        await self._throttle.wait()
        connection = socket.socket()
        connection.setblocking(False)
        if receive_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.bind((self._address, 0))
        try:
            await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self._port))
        except BaseException:
            connection.close()
            raise
        return connection

    async def send(self, connection: socket.socket, content: bytes) -> None:
        await self._throttle.wait()
        await asyncio.get_running_loop().sock_sendall(connection, content)

    async def receive(self, connection: socket.socket, most: int = 1 << 16) -> bytes:
        """Return what comes next, and count the statuses in it."""
        await self._throttle.wait()
        content = await asyncio.get_running_loop().sock_recv(connection, most)
        if not content:
            raise EOFError
        self._counts.update(status.decode() for status in _STATUS.findall(content))
        return content

    async def ask(self, requests: Iterator[bytes]) -> None:
        """Send requests on one connection, each when the one before is answered."""
        with await self.connect() as connection:
            for request in requests:
                await self.send(connection, request)
                self._counts["sent"] += 1
                content = await self.receive(connection)
                while b"\r\n\r\n" not in content:
                    content += await self.receive(connection)
                head, _, body = content.partition(b"\r\n\r\n")
                found = re.search(rb"(?i)content-length: (\d+)", head)
                left = int(found[1]) - len(body) if found else 0
                while left > 0:
                    left -= len(await self.receive(connection))

    async def read_slowly(self, requests: Iterator[bytes]) -> None:
        """Ask for large answers and take a byte a second."""
        with await self.connect(receive_bytes=4096) as connection:
            await self.send(connection, next(requests))
            self._counts["sent"] += 1
            await self.receive(connection, len("HTTP/1.1 200"))
            while True:
                await asyncio.sleep(1)
                await self.receive(connection, 1)

    async def hoard(self, numbers: Iterator[int]) -> None:
        """Send almost all of a body, or a header a byte a second, and hold the connection."""
        head = (
            b"POST /v1/translate HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            b"Content-Type: application/json\r\nContent-Length: 1000000\r\n"
        )
        with await self.connect() as connection:
            self._counts["opened"] += 1
            if next(numbers) % 4:
                await self.send(connection, head + b"\r\n" + b" " * 999_000)
                await self.receive(connection)
                return
            for byte in head:
                await self.send(connection, bytes([byte]))
                await asyncio.sleep(1)

    async def hold(self) -> None:
        """Hold a connection and send nothing."""
        with await self.connect() as connection:
            self._counts["opened"] += 1
            await self.receive(connection)

    async def hang_up(self, requests: Iterator[bytes]) -> None:
        """Send a request and reset the connection."""
        with await self.connect() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await self.send(connection, next(requests))
            self._counts["hung up"] += 1

    async def pipeline(self, content: bytes) -> None:
        """Send many requests before any is answered."""
        with await self.connect() as connection:
            await self.send(connection, content)
            # The last of them asks for the connection to be closed.
            with suppress(EOFError):
                while True:
                    await self.receive(connection)

    async def send_garbage(self, requests: Iterator[bytes]) -> None:
        """Send a malformed request, and more of it after the answer."""
        with await self.connect() as connection:
            garbage = next(requests)
            await self.send(connection, garbage)
            await self.receive(connection)
            for _ in range(20):
                await self.send(connection, garbage)


def attacks() -> dict[str, Callable[[Attacker], Awaitable[None]]]:
    """Return what one connection of each attack does."""
    wide, details, large = payloads.wide(), payloads.details(), payloads.large_answers()
    types, odd_json, forms = payloads.wrong_types(), payloads.odd_json(), payloads.odd_forms()
    lines, sites, garbage = payloads.many_lines(), payloads.other_sites(), payloads.garbage()
    pipelined, numbers = payloads.pipelined(), iter(range(sys.maxsize))
    return {
        "types": lambda one: one.ask(types),
        "json": lambda one: one.ask(odd_json),
        "forms": lambda one: one.ask(forms),
        "lines": lambda one: one.ask(lines),
        "searches": lambda one: one.ask(wide),
        "details": lambda one: one.ask(details),
        "readers": lambda one: one.read_slowly(large),
        "hoarders": lambda one: one.hoard(numbers),
        "flood": lambda one: one.hold(),
        "sites": lambda one: one.ask(sites),
        "hang-ups": lambda one: one.hang_up(wide),
        "pipelines": lambda one: one.pipeline(pipelined),
        "garbage": lambda one: one.send_garbage(garbage),
    }


async def attack(port: int, seconds: float, names: list[str]) -> dict[str, Counter[str]]:
    """Attack a server in some ways at once; return the statuses of each."""
    throttle, known = Throttle(), attacks()
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    tasks = []
    for _ in range(FLOOD_CONNECTIONS if "flood" in names else 0):
        one = Attacker(port, FLOOD_ADDRESS, throttle, counts["flood"])
        tasks.append(asyncio.ensure_future(one.again_and_again(known["flood"])))
    turns = [(known[name], counts[name]) for name in names if name != "flood"]
    for number in range(CONNECTIONS if turns else 0):
        address = ADDRESSES[number % len(ADDRESSES)]
        one = Attacker(port, address, throttle, Counter())
        if len(turns) == 1:
            one = Attacker(port, address, throttle, turns[0][1])
            tasks.append(asyncio.ensure_future(one.again_and_again(turns[0][0])))
        else:
            tasks.append(asyncio.ensure_future(one.in_turns(turns, number)))
    print("begin", flush=True)
    done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in tasks:
        task.cancel()
    for task in done:
        task.result()
    await asyncio.gather(*tasks, return_exceptions=True)
    return counts


if __name__ == "__main__":
    port, seconds, *names = sys.argv[1:]
    print(json.dumps(asyncio.run(attack(int(port), float(seconds), names))))
