"""Small calls that take turns with the searches."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headwise.serving.calls import Calls
from headwise.serving.compute import Computer
from headwise.serving.limits import Limits, RefusedError

Test = Callable[[Calls, Computer], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def own() -> Computer:
    return Computer()


def run(test: Test, own: Computer, limits: Limits | None = None) -> None:
    async def inside() -> None:
        calls = Calls(limits or Limits(), own, is_bulk=False)
        calls.start()
        try:
            await asyncio.wait_for(test(calls, own), 20)
        finally:
            calls.close(5)

    asyncio.run(inside())


class Gate:
    """A call that lets nothing else be computed until it may end."""

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


def test_results_come_in_the_order_of_the_calls(own: Computer) -> None:
    async def test(calls: Calls, _: Computer) -> None:
        assert await calls.results([lambda n=n: n * n for n in range(9)], "a") == [
            n * n for n in range(9)
        ]
        assert await calls.results([], "a") == []

    run(test, own)


def test_clients_take_turns(own: Computer) -> None:
    async def test(calls: Calls, _: Computer) -> None:
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

    run(test, own)


def test_an_error_is_its_requests_own(own: Computer) -> None:
    async def test(calls: Calls, _: Computer) -> None:
        made: list[int] = []
        with pytest.raises(ZeroDivisionError, match="division"):
            await calls.results([lambda: 1 // 0, lambda: made.append(1)], "a")
        assert await calls.results([lambda: 7], "a") == [7]
        assert made == []

    run(test, own)


def test_what_is_cancelled_is_not_computed(own: Computer) -> None:
    async def test(calls: Calls, _: Computer) -> None:
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

    run(test, own)


def test_calls_count_in_a_queue_that_has_an_end(own: Computer) -> None:
    async def test(calls: Calls, _: Computer) -> None:
        gate, gated = await closed(calls)
        waiting = asyncio.create_task(calls.results([lambda: 1] * 5, "a"))
        await asyncio.sleep(0)
        calls.check_room("another")
        with pytest.raises(RefusedError, match="too many sentences are waiting") as caught:
            calls.check_room("a")
        assert (caught.value.status, caught.value.retry_after) == (429, 1)
        gate.open()
        await asyncio.gather(gated, waiting)

    run(test, own, Limits(queue=5))


def test_the_work_of_the_client_with_least_compute_time_is_next(own: Computer) -> None:
    async def test(calls: Calls, own: Computer) -> None:
        turns: list[str] = []

        class Counted:
            def __init__(self, name: str, used: float) -> None:
                self.name, self._used = name, used

            def due(self) -> float | None:
                return 0 if len(turns) < 9 else None

            def place(self) -> tuple[float, float]:
                return 0.0, self._used

            def turn(self) -> None:
                turns.append(self.name)
                self._used += 1

        gate, gated = await closed(calls)
        works = [Counted("much", 5.5), Counted("little", 1.0), Counted("as little", 1.0)]
        for work in works:
            own.add(work)
        gate.open()
        await gated
        while len(turns) < 9:
            await asyncio.sleep(0.005)
        for work in works:
            own.remove(work, 5)
        assert turns == ["little", "as little"] * 4 + ["little"]

    run(test, own)
