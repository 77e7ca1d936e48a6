"""Work in turns: the compute thread, the event loop, and the speed of searches."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from headwise.serving.compute import ComputeThread, InLoop
from headwise.serving.searches import Speed
from tests.servers import wait_for


@pytest.fixture(scope="module")
def compute() -> ComputeThread:
    return ComputeThread()


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


class Broken:
    """Work that fails in its first turn."""

    def due(self) -> float | None:
        return 0

    def priority(self) -> tuple[float, float]:
        return 0.0, 0.0

    def turn(self) -> None:
        raise ValueError("a mistake")


def test_failing_work_is_removed_and_other_work_continues(compute: ComputeThread) -> None:
    broken = Broken()
    compute.add(broken)
    with pytest.raises(ZeroDivisionError, match="division"):
        compute.call(lambda: 1 // 0)
    assert compute.call(lambda: 7) == 7
    wait_for(lambda: not compute.has(broken))
    compute.remove(broken, 1)
    assert compute.call(lambda: 7) == 7


class Removed:
    """Work that is removed in a turn that then fails."""

    def __init__(self, compute: ComputeThread) -> None:
        self._compute, self.is_removed = compute, threading.Event()

    def due(self) -> float | None:
        return 0

    def priority(self) -> tuple[float, float]:
        return 0.0, 0.0

    def turn(self) -> None:
        self._compute.remove(self, 0)
        self.is_removed.set()
        raise ValueError("a mistake")


def test_work_that_is_removed_as_it_fails_ends_nothing_else(compute: ComputeThread) -> None:
    removed = Removed(compute)
    compute.add(removed)
    assert removed.is_removed.wait(20)
    assert compute.call(lambda: 7) == 7
    assert not compute.has(removed)


def test_a_cancelled_call_is_not_made(compute: ComputeThread) -> None:
    may, made = threading.Event(), []
    first = compute.submit(lambda: may.wait(5))
    second = compute.submit(lambda: made.append(2))
    assert second.cancel()
    may.set()
    assert first.result(5)
    assert compute.call(lambda: threading.current_thread().name) == "compute"
    assert made == []


def test_clear_removes_what_waits_and_waits_for_the_rest(compute: ComputeThread) -> None:
    begun, may, turns = threading.Event(), threading.Event(), []

    class Eager:
        def due(self) -> float | None:
            return 0

        def priority(self) -> tuple[float, float]:
            return 0.0, 0.0

        def turn(self) -> None:
            turns.append(1)

    def call() -> None:
        begun.set()
        may.wait(5)

    first = compute.submit(call)
    assert begun.wait(5)
    eager = Eager()
    compute.add(eager)
    second = compute.submit(lambda: None)
    assert not compute.clear(0.01), "a call is in progress"
    assert second.cancelled()
    may.set()
    assert compute.clear(5)
    assert first.done()
    assert (turns, compute.has(eager)) == ([], False)
    assert compute.call(lambda: 7) == 7


def test_failing_work_in_the_loop_is_removed_and_other_work_continues() -> None:
    async def test() -> None:
        in_loop, turns = InLoop(), 0

        class Thrice:
            def due(self) -> float | None:
                return 0 if turns < 3 else None

            def priority(self) -> tuple[float, float]:
                return 0.0, 0.0

            def turn(self) -> None:
                nonlocal turns
                turns += 1

        broken, good = Broken(), Thrice()
        for work in (broken, good):
            in_loop.add(work)
        await until(lambda: turns == 3)
        assert (in_loop.has(broken), in_loop.has(good)) == (False, True)

    asyncio.run(test())


def test_speed_is_measured_only_while_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("headwise.serving.searches.time.monotonic", lambda: now)
    speed = Speed()
    assert speed.seconds_for(50) == 1.0
    speed.record(0, is_busy=True)
    for _ in range(5):
        now += 0.5
        speed.record(20, is_busy=True)
    assert speed.per_second == pytest.approx(40)
    speed.record(0, is_busy=False)
    now += 1000
    speed.record(0, is_busy=True)
    assert speed.seconds_for(80) == pytest.approx(2.0)
