"""Clients above their fair share of event loop time are paused."""

import asyncio
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from headwise.serving.client_limits import LoopTime, LoopTimeMeter
from headwise.serving.clients import TrustedProxies


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("headwise.serving.client_limits.time.monotonic", lambda: now[0])
    return now


def use(times: LoopTime, clock: list[float], parts: dict[str, float], seconds: float = 5) -> None:
    """Let clients use shares of the loop's time for a while."""
    for _ in range(int(seconds * 100)):
        clock[0] += 0.01
        for client, part in parts.items():
            times.charge(client, part / 100)


def test_a_single_client_may_use_all_loop_time(clock: list[float]) -> None:
    times = LoopTime(TrustedProxies())
    use(times, clock, {"a": 1.0})
    assert times.pause("a") == 0
    assert times.pause("unknown") == 0


def test_no_client_is_paused_while_the_loop_is_not_busy(clock: list[float]) -> None:
    times = LoopTime(TrustedProxies())
    use(times, clock, {"a": 0.12, "b": 0.05})
    assert (times.pause("a"), times.pause("b")) == (0, 0)


def test_clients_above_the_fair_share_are_paused(clock: list[float]) -> None:
    times = LoopTime(TrustedProxies())
    use(times, clock, {"hog 1": 0.2, "hog 2": 0.15, "light": 0.02})
    assert 0 < times.pause("hog 2") < times.pause("hog 1") <= 1
    assert times.pause("light") == 0
    clock[0] += 3
    assert times.pause("hog 1") == 0, "its share decays"


def test_unused_shares_go_to_other_clients(clock: list[float]) -> None:
    times = LoopTime(TrustedProxies())
    use(times, clock, {"hog": 0.16} | {f"light {n}": 0.005 for n in range(5)})
    assert times.pause("hog") == 0
    use(times, clock, {"hog": 0.6} | {f"light {n}": 0.005 for n in range(5)})
    assert times.pause("hog") > 0
    assert times.pause("light 1") == 0


def test_inactive_clients_are_forgotten(clock: list[float]) -> None:
    times = LoopTime(TrustedProxies())
    use(times, clock, {f"client {n}": 0.01 for n in range(100)}, seconds=1)
    clock[0] += 60
    times.pause("a")
    assert times.num_clients == 0


def test_a_trusted_proxy_is_neither_counted_nor_paused(clock: list[float]) -> None:
    times = LoopTime(TrustedProxies(["10.0.0.1"]))
    use(times, clock, {"10.0.0.1": 0.9, "192.0.2.1": 0.3})
    assert (times.pause("10.0.0.1"), times.pause("192.0.2.1")) == (0, 0)


class Recorded(LoopTime):
    def __init__(self) -> None:
        super().__init__(TrustedProxies())
        self.charges: list[tuple[str, float]] = []

    def charge(self, address: str, seconds: float) -> None:
        self.charges.append((address, seconds))


async def nothing(*_: Any) -> Any:
    raise AssertionError("nothing is received or sent here")


def scope(kind: str = "http") -> Scope:
    return {"type": kind, "client": ("192.0.2.1", 1)}


def test_waiting_time_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now, recorded = [0.0], Recorded()
    monkeypatch.setattr("headwise.serving.client_limits.time.perf_counter", lambda: now[0])

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        now[0] += 0.5  # Computes.
        await asyncio.sleep(0)
        now[0] += 0.25

    async def test() -> None:
        task = asyncio.ensure_future(LoopTimeMeter(app, recorded)(scope(), nothing, nothing))
        await asyncio.sleep(0)
        now[0] += 100
        await task
        await LoopTimeMeter(app, recorded)(scope("lifespan"), nothing, nothing)

    asyncio.run(test())
    assert recorded.charges == [("192.0.2.1", 0.5), ("192.0.2.1", 0.25)]


def test_successful_requests_get_most_of_their_time_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr("headwise.serving.client_limits.time.perf_counter", lambda: now[0])

    def charged(status: int) -> float:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            now[0] += 1.0
            await send({"type": "http.response.start", "status": status})

        async def send(_: Message) -> None:
            pass

        recorded = Recorded()
        asyncio.run(LoopTimeMeter(app, recorded)(scope(), nothing, send))
        return sum(seconds for _, seconds in recorded.charges)

    assert charged(200) == pytest.approx(0.25, abs=0.01)
    assert charged(413) == 1.0


def test_cancellation_and_errors_propagate() -> None:
    recorded, seen = Recorded(), []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(0)
            raise ValueError("on the way out") from None

    async def test() -> None:
        task = asyncio.ensure_future(LoopTimeMeter(app, recorded)(scope(), nothing, nothing))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(ValueError, match="on the way out"):
            await task

    asyncio.run(test())
    assert seen == ["cancelled"]
    assert len(recorded.charges) == 3
