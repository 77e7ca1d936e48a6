"""Small calls in turns with the searches."""

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headwise.serving.calls import Calls
from headwise.serving.compute import ComputeThread
from headwise.serving.limits import Limits, RefusedError

Test = Callable[[Calls, ComputeThread], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def compute() -> ComputeThread:
    return ComputeThread()


def run(test: Test, compute: ComputeThread, limits: Limits | None = None) -> None:
    async def inside() -> None:
        calls = Calls(limits or Limits(), compute, is_bulk=False)
        compute.add(calls)
        try:
            await asyncio.wait_for(test(calls, compute), 20)
        finally:
            compute.remove(calls, 5)

    asyncio.run(inside())


class Gate:
    """A call that blocks the compute thread until it is opened."""

    def __init__(self) -> None:
        self.entered, self._may_end = threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.entered.set()
        assert self._may_end.wait(20)
        return "gate"

    def open(self) -> None:
        self._may_end.set()


async def closed(calls: Calls, client: str = "gate") -> tuple[Gate, "asyncio.Task[list[Any]]"]:
    gate = Gate()
    task = asyncio.create_task(calls.results([gate], client))
    while not gate.entered.is_set():
        await asyncio.sleep(0.005)
    return gate, task


def test_results_are_in_the_order_of_the_calls(compute: ComputeThread) -> None:
    async def test(calls: Calls, _: ComputeThread) -> None:
        squares = [functools.partial(pow, n, 2) for n in range(9)]
        assert await calls.results(squares, "a") == [n * n for n in range(9)]
        assert await calls.results([], "a") == []

    run(test, compute)


def test_clients_take_turns(compute: ComputeThread) -> None:
    async def test(calls: Calls, _: ComputeThread) -> None:
        gate, gated = await closed(calls)
        made: list[str] = []

        def call(client: str) -> Callable[[], None]:
            return lambda: made.append(client)

        hog = asyncio.create_task(calls.results([call("hog")] * 100, "hog"))
        await asyncio.sleep(0)
        innocent = asyncio.create_task(calls.results([call("innocent")] * 2, "innocent"))
        await asyncio.sleep(0)
        gate.open()
        await asyncio.gather(gated, hog, innocent)
        assert made.index("innocent") <= 1
        assert len(made) == 102
        assert [place for place, client in enumerate(made) if client == "innocent"][-1] < 20

    run(test, compute)


def test_an_error_fails_its_own_request_only(compute: ComputeThread) -> None:
    async def test(calls: Calls, _: ComputeThread) -> None:
        made: list[int] = []
        with pytest.raises(ZeroDivisionError, match="division"):
            await calls.results([lambda: 1 // 0, lambda: made.append(1)], "a")
        assert await calls.results([lambda: 7], "a") == [7]
        assert made == []

    run(test, compute)


def test_cancelled_calls_are_not_made(compute: ComputeThread) -> None:
    async def test(calls: Calls, _: ComputeThread) -> None:
        gate, gated = await closed(calls)
        made: list[int] = []
        given_up = asyncio.create_task(calls.results([lambda: made.append(1)] * 5, "a"))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
        gate.open()
        await gated
        assert await calls.results([lambda: 7], "a") == [7]
        assert made == []

    run(test, compute)


def test_the_queue_is_limited(compute: ComputeThread) -> None:
    async def test(calls: Calls, _: ComputeThread) -> None:
        gate, gated = await closed(calls)
        waiting = asyncio.create_task(calls.results([lambda: 1] * 5, "a"))
        await asyncio.sleep(0)
        calls.check_room("another")
        with pytest.raises(RefusedError, match="too many sentences are waiting") as caught:
            calls.check_room("a")
        assert (caught.value.status, caught.value.retry_after) == (429, 1)
        gate.open()
        await asyncio.gather(gated, waiting)

    run(test, compute, Limits(queue=5))


def test_work_with_the_smallest_priority_is_next(compute: ComputeThread) -> None:
    async def test(calls: Calls, compute: ComputeThread) -> None:
        turns: list[str] = []

        class Counted:
            def __init__(self, name: str, used: float) -> None:
                self.name, self._used = name, used

            def due(self) -> float | None:
                return 0 if len(turns) < 9 else None

            def priority(self) -> tuple[float, float]:
                return 0.0, self._used

            def turn(self) -> None:
                turns.append(self.name)
                self._used += 1

        gate, gated = await closed(calls)
        works = [Counted("much", 5.5), Counted("little", 1.0), Counted("as little", 1.0)]
        for work in works:
            compute.add(work)
        gate.open()
        await gated
        while len(turns) < 9:
            await asyncio.sleep(0.005)
        for work in works:
            compute.remove(work, 5)
        assert turns == ["little", "as little"] * 4 + ["little"]

    run(test, compute)
