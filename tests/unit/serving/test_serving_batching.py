"""The queue and its thread, over a translator that does as it is told."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headwise.decoding import Hypothesis, SearchSettings
from headwise.serving.batching import Batcher
from headwise.serving.limits import Limits, RefusedError
from headwise.serving.metrics import Metrics

SETTINGS = SearchSettings()


class Slow:
    """Answers a source with itself, once it may; the shortest first."""

    def __init__(self) -> None:
        self.batches: list[list[list[int]]] = []
        self.may = threading.Event()
        self.may.set()
        self.unwanted: list[set[int]] = []

    def search(self, sources: list[list[int]], settings: SearchSettings, watcher: Any) -> None:
        self.batches.append(sources)
        if [666] in sources:
            raise ValueError("a bug")
        for number in sorted(range(len(sources)), key=lambda n: len(sources[n])):
            if len(sources[number]) > 1:
                assert self.may.wait(10)
            self.unwanted.append(set(watcher.unwanted()))
            watcher.done(number, [Hypothesis(tuple(sources[number]), 0.0, 0.0)])


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture
def run(slow: Slow) -> Callable[[Callable[[Batcher], Coroutine[Any, Any, None]]], None]:
    def go(test: Callable[[Batcher], Coroutine[Any, Any, None]]) -> None:
        batcher = Batcher("m", slow, Limits(queue=4), Metrics())  # type: ignore[arg-type]

        async def inside() -> None:
            batcher.start()
            try:
                await asyncio.wait_for(test(batcher), 10)
            finally:
                slow.may.set()
                batcher.close()
                batcher.join(5)

        asyncio.run(inside())
        assert not batcher.is_alive

    return go


def ids(found: list[list[Hypothesis]]) -> list[list[int]]:
    return [list(hypotheses[0].ids) for hypotheses in found]


def test_what_waits_is_searched_together_and_answered_in_order(slow: Slow, run: Any) -> None:
    async def test(batcher: Batcher) -> None:
        slow.may.clear()
        first = batcher.submit([[1, 1]], SETTINGS)
        await until(lambda: len(slow.batches) == 1)
        second = batcher.submit([[2, 2], [3]], SETTINGS)
        third = batcher.submit([[4]], SETTINGS)
        slow.may.set()
        assert ids(await first.future) == [[1, 1]]
        assert ids(await second.future) == [[2, 2], [3]]
        assert ids(await third.future) == [[4]]
        assert slow.batches == [[[1, 1]], [[2, 2], [3], [4]]]
        assert await batcher.submit([], SETTINGS).future == []

    run(test)


def test_a_sentence_is_answered_while_its_batch_goes_on(slow: Slow, run: Any) -> None:
    async def test(batcher: Batcher) -> None:
        slow.may.clear()
        with batcher._change:  # Both are there before the thread can take one.
            long, short = batcher.submit([[3, 3]], SETTINGS), batcher.submit([[2]], SETTINGS)
        assert ids(await short.future) == [[2]]
        assert slow.batches == [[[3, 3], [2]]]
        assert not long.future.done()
        slow.may.set()
        assert ids(await long.future) == [[3, 3]]

    run(test)


def test_other_settings_are_searched_apart(slow: Slow, run: Any) -> None:
    async def test(batcher: Batcher) -> None:
        slow.may.clear()
        tickets = [batcher.submit([[1, 1]], SETTINGS)]
        await until(lambda: len(slow.batches) == 1)
        wide = SearchSettings(beam=8)
        tickets += [batcher.submit([[n]], wide if n == 3 else SETTINGS) for n in (2, 3, 4)]
        slow.may.set()
        await asyncio.gather(*(ticket.future for ticket in tickets))
        assert slow.batches == [[[1, 1]], [[2], [4]], [[3]]]

    run(test)


def test_what_is_dropped_never_starts_or_is_unwanted(slow: Slow, run: Any) -> None:
    async def test(batcher: Batcher) -> None:
        slow.may.clear()
        searched = batcher.submit([[1, 1], [5, 5, 5]], SETTINGS)
        await until(lambda: len(slow.batches) == 1)
        waiting = batcher.submit([[2], [3]], SETTINGS)
        kept = batcher.submit([[4]], SETTINGS)
        for ticket in (searched, waiting):
            ticket.future.cancel()
            batcher.drop(ticket)
        slow.may.set()
        assert ids(await kept.future) == [[4]]
        assert slow.batches[1:] == [[[4]]]
        assert slow.unwanted[0] == {0, 1}

    run(test)


def test_a_full_queue_refuses_and_says_when_to_come_again(slow: Slow, run: Any) -> None:
    async def test(batcher: Batcher) -> None:
        slow.may.clear()
        blocker = batcher.submit([[1, 1]], SETTINGS)
        await until(lambda: len(slow.batches) == 1)
        many = batcher.submit([[2]] * 9, SETTINGS)  # More than the queue, but nothing waits.
        with pytest.raises(RefusedError, match="too many sentences are waiting") as caught:
            batcher.submit([[3]], SETTINGS)
        assert caught.value.status == 429
        assert caught.value.retry_after == 1
        slow.may.set()
        await asyncio.gather(blocker.future, many.future)

    run(test)


def test_an_error_is_its_batchs_own_and_the_thread_lives_on(slow: Slow, run: Any) -> None:
    async def test(batcher: Batcher) -> None:
        with pytest.raises(ValueError, match="a bug"):
            await batcher.submit([[666]], SETTINGS).future
        with pytest.raises(KeyError, match="x"):
            await batcher.call(lambda: {}["x"])
        assert await batcher.call(lambda: threading.current_thread().name) == "compute_0"
        assert ids(await batcher.submit([[1]], SETTINGS).future) == [[1]]

    run(test)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)
