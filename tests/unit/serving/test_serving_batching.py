"""Batching over a search that a test controls, in the compute thread and in the event loop."""

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

import pytest

from headwise.decoding import Found, Hypothesis, SearchSettings
from headwise.serving import batching, searches
from headwise.serving.batching import MOST_SEARCHES, Batcher
from headwise.serving.compute import ComputeThread, Driver, InLoop
from headwise.serving.limits import Limits, RefusedError
from headwise.serving.observation import Metrics
from headwise.serving.searches import ClientOf
from headwise.tasks.translation.engine import LostError

Sentences = Batcher[list[int], list[Hypothesis]]
Test = Callable[[Sentences], Coroutine[Any, Any, None]]

COMPUTE = ComputeThread()
SETTINGS = SearchSettings()
LONG = [9] * 50


class Slow:
    """Returns each source as its result after one step; LONG ones once they may end.

    Records which sentences join and which are dropped. A test decides when steps may be taken.
    """

    def __init__(self) -> None:
        self.joined: list[list[list[int]]] = []
        self.dropped: list[int] = []
        self.accepts = self.is_ready = self.drops = True
        self.on_ready: Callable[[], None] = lambda: None
        self.searches = self.steps = 0
        self.may, self.may_end = Permission(self), threading.Event()
        self.may.set()

    def search(
        self,
        settings: SearchSettings,
        on_ready: Callable[[], None],
        client_of: ClientOf,
        is_bulk: bool,
    ) -> "SlowSearch":
        self.searches += 1
        self.on_ready = on_ready
        return SlowSearch(self)


class Permission(threading.Event):
    """Whether steps may be taken: the compute thread waits for it, the event loop polls."""

    def __init__(self, slow: Slow) -> None:
        super().__init__()
        self._slow, self.is_waited_for = slow, True

    def set(self) -> None:
        super().set()
        self._slow.on_ready()


class SlowSearch:
    def __init__(self, slow: Slow) -> None:
        self._slow = slow
        self._sources: dict[int, list[int]] = {}
        self._unwanted: set[int] = set()

    def __len__(self) -> int:
        return len(self._sources)

    @property
    def is_ready(self) -> bool:
        may = self._slow.may
        return bool(self._sources) and self._slow.is_ready and (may.is_waited_for or may.is_set())

    def accepts(self, newcomers: int) -> bool:
        return self._slow.accepts

    def add(self, sources: Mapping[int, list[int]]) -> None:
        self._slow.joined.append(list(sources.values()))
        if [666] in sources.values():
            raise ValueError("a bug")
        self._sources.update(sources)

    def advance(self) -> Found:
        assert self._slow.may.wait(10)
        self._slow.steps += 1
        time.sleep(0.001)
        may_end = self._slow.may_end.is_set()
        done = [number for number, ids in self._sources.items() if may_end or ids != LONG]
        found = [(n, [Hypothesis(tuple(self._sources.pop(n)), 0.0, 0.0)]) for n in done]
        return [each for each in found if each[0] not in self._unwanted]

    def drop(self, numbers: Collection[int]) -> None:
        if not self._slow.drops:
            self._unwanted.update(numbers)
            return
        self._slow.dropped += [number for number in numbers if self._sources.pop(number, None)]


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture(params=["in a thread", "in the loop"])
def driver(request: pytest.FixtureRequest) -> Driver:
    return COMPUTE if request.param == "in a thread" else InLoop()


@pytest.fixture
def run(
    slow: Slow, driver: Driver
) -> Callable[[Callable[[Sentences], Coroutine[Any, Any, None]]], None]:
    def go(test: Callable[[Sentences], Coroutine[Any, Any, None]]) -> None:
        slow.may.is_waited_for = driver is COMPUTE
        batcher = Batcher("m", slow.search, Limits(queue=6), Metrics(), driver)

        async def inside() -> None:
            driver.add(batcher)
            assert driver.has(batcher)
            try:
                await asyncio.wait_for(test(batcher), 10)
                assert batcher.due() is None
            finally:
                slow.may.set()
                slow.may_end.set()
                driver.remove(batcher, 5)
                assert not driver.has(batcher)

        asyncio.run(inside())

    return go


def raise_bug(*_: object, **__: object) -> None:
    raise ValueError("a bug")


def ids(found: list[list[Hypothesis]]) -> list[list[int]]:
    return [list(hypotheses[0].ids) for hypotheses in found]


def test_sentences_join_a_search_and_are_returned_once_they_are_done(slow: Slow, run: Any) -> None:
    async def test(batcher: Sentences) -> None:
        slow.may.clear()
        first = batcher.submit([LONG], SETTINGS)
        await until(lambda: len(slow.joined) == 1)
        second = batcher.submit([[2, 2], [3]], SETTINGS)
        third = batcher.submit([[4]], SETTINGS)
        slow.may.set()
        assert ids(await third.future) == [[4]]
        assert ids(await second.future) == [[2, 2], [3]]
        assert not first.future.done()
        slow.may_end.set()
        assert ids(await first.future) == [LONG]
        assert slow.joined == [[LONG], [[2, 2], [4], [3]]], "round-robin by request"
        assert slow.searches == 1
        assert await batcher.submit([], SETTINGS).future == []

    run(test)


def test_other_settings_get_a_concurrent_search_of_their_own(slow: Slow, run: Any) -> None:
    async def test(batcher: Sentences) -> None:
        slow.may.clear()
        tickets = [batcher.submit([LONG], SETTINGS)]
        await until(lambda: len(slow.joined) == 1)
        wide = SearchSettings(beam=8)
        tickets += [batcher.submit([[n]], wide if n == 3 else SETTINGS) for n in (2, 3, 4)]
        slow.may.set()
        await asyncio.gather(*(ticket.future for ticket in tickets[1:]))
        assert not tickets[0].future.done()
        assert slow.joined[0] == [LONG]
        assert sorted(slow.joined[1:]) == [[[2], [4]], [[3]]]
        slow.may_end.set()
        await tickets[0].future

    run(test)


@pytest.mark.parametrize("client", ["", "another"])
def test_a_request_that_waits_for_a_search_to_end_is_not_overtaken(
    slow: Slow, run: Any, client: str
) -> None:
    async def test(batcher: Sentences) -> None:
        *kinds, other = [SearchSettings(beam=5 + n) for n in range(MOST_SEARCHES + 1)]
        tickets = [batcher.submit([LONG], kind) for kind in kinds]
        await until(lambda: len(slow.joined) == len(kinds))
        tickets += [batcher.submit([[1]], other), batcher.submit([[2]], kinds[0], client)]
        steps = slow.steps
        await until(lambda: slow.steps > steps + 10 * len(kinds))
        assert slow.joined == [[LONG]] * len(kinds)
        slow.may_end.set()
        await asyncio.gather(*(each.future for each in tickets))
        assert sorted(slow.joined[len(kinds) :]) == [[[1]], [[2]]]

    run(test)


def test_other_settings_cannot_block_the_models_own(slow: Slow, run: Any) -> None:
    async def test(batcher: Sentences) -> None:
        hostile = [SearchSettings(alpha=n / 10) for n in range(7, 13)]
        tickets = [batcher.submit([LONG], kind, f"client {kind.alpha}") for kind in hostile]
        await until(lambda: len(slow.joined) == MOST_SEARCHES)
        assert ids(await batcher.submit([[1]], SETTINGS, "innocent").future) == [[1]]
        assert slow.searches == MOST_SEARCHES + 1
        slow.may_end.set()
        await asyncio.gather(*(each.future for each in tickets))

    run(test)


def test_a_search_can_become_ready_by_itself(slow: Slow, run: Any) -> None:
    async def test(batcher: Sentences) -> None:
        slow.is_ready = False
        first = batcher.submit([[1]], SETTINGS)
        await until(lambda: len(slow.joined) == 1)
        slow.accepts = False
        second = batcher.submit([[2]], SETTINGS)
        await asyncio.sleep(0.05)
        assert (slow.joined, slow.steps) == ([[[1]]], 0), "no sentence joins, and no step is taken"
        slow.accepts = True
        if not slow.may.is_waited_for:
            slow.on_ready()  # The compute thread polls by itself.
        await until(lambda: len(slow.joined) == 2)
        assert slow.steps == 0
        slow.is_ready = True
        slow.on_ready()
        assert ids(await first.future) == [[1]]
        assert ids(await second.future) == [[2]]
        assert slow.steps == 1

    run(test)


def test_a_request_that_can_start_does_not_wait_for_one_that_cannot(
    slow: Slow, run: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(searches, "_MOST_SENTENCES", 1)

    async def test(batcher: Sentences) -> None:
        slow.is_ready = False
        first = batcher.submit([[1]], SETTINGS)
        await until(lambda: len(slow.joined) == 1)
        second, other = (
            batcher.submit([[2]], SETTINGS),
            batcher.submit([[3]], SearchSettings(beam=1)),
        )
        await until(lambda: len(slow.joined) == 2)
        assert slow.joined == [[[1]], [[3]]]
        slow.is_ready = True
        slow.on_ready()
        await asyncio.gather(first.future, second.future, other.future)

    run(test)


def test_a_long_sentence_is_not_overtaken_by_short_ones(
    slow: Slow, run: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(searches, "_MOST_TOKENS", 400)  # Of four hypotheses each: a hundred.

    async def test(batcher: Sentences) -> None:
        slow.may.clear()
        first = batcher.submit([[1]], SETTINGS)
        await until(lambda: len(slow.joined) == 1)
        long, short = batcher.submit([[2] * 98], SETTINGS), batcher.submit([[3]], SETTINGS)
        slow.may.set()
        await asyncio.gather(first.future, long.future, short.future)
        assert slow.joined == [[[1]], [[2] * 98], [[3]]]

    run(test)


def test_a_request_without_room_is_not_polled(slow: Slow, run: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(searches, "_MOST_TOKENS", 400)

    async def test(batcher: Sentences) -> None:
        slow.is_ready = False
        first = batcher.submit([[1]], SETTINGS, "a")
        await until(lambda: len(slow.joined) == 1)
        long = batcher.submit([[2] * 98], SETTINGS, "b")
        short = batcher.submit([[3]], SETTINGS, "c")
        assert batcher.due() is None, "there is room for the short one, but the long one is first"
        slow.is_ready = True
        slow.on_ready()
        await asyncio.gather(first.future, long.future, short.future)
        assert slow.joined == [[[1]], [[2] * 98], [[3]]]

    run(test)


def test_a_search_that_cannot_be_interrupted_is_kept_until_it_ends(slow: Slow, run: Any) -> None:
    """A library such as CTranslate2 cannot interrupt a search."""

    async def test(batcher: Sentences) -> None:
        slow.is_ready = slow.drops = False
        for _ in range(3):
            ticket = batcher.submit([[1]], SETTINGS)
            await until(lambda: len(slow.joined) == 1)
            slow.accepts = False
            ticket.future.cancel()
            batcher.drop(ticket)
            await until(lambda: batcher.due() is None)
        assert (slow.searches, slow.joined) == (1, [[[1]]])
        slow.is_ready = True
        slow.on_ready()
        await until(lambda: batcher.due() is None)

    run(test)


def test_after_an_error_the_rest_of_the_request_is_not_searched(
    slow: Slow, run: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(searches, "_MOST_SENTENCES", 1)

    async def test(batcher: Sentences) -> None:
        slow.may.clear()  # The first fails at once; the others wait.
        ticket = batcher.submit([[666], [1], [2], [3]], SETTINGS)
        with pytest.raises(ValueError, match="a bug"):
            await ticket.future
        batcher.drop(ticket)
        slow.may.set()
        await until(lambda: batcher.due() is None)
        assert len(slow.joined) < 4

    run(test)


def test_a_bug_fails_current_requests_and_no_later_ones(
    slow: Slow, run: Any, driver: Driver, monkeypatch: Any
) -> None:
    async def test(batcher: Sentences) -> None:
        slow.may.clear()
        tickets = [batcher.submit([LONG], SETTINGS)]
        await until(lambda: len(slow.joined) == 1)
        tickets.append(batcher.submit([[1]], SETTINGS))
        with monkeypatch.context() as bug:
            bug.setattr(driver.turns, "priority", raise_bug)
            slow.may.set()
            for ticket in tickets:
                with pytest.raises(ValueError, match="a bug"):
                    await ticket.future
                batcher.drop(ticket)
        assert driver.has(batcher)
        assert ids(await batcher.submit([[2]], SETTINGS).future) == [[2]]

    run(test)


def test_the_size_of_a_search_is_limited(slow: Slow, run: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(searches, "_MOST_TOKENS", 40)  # Of four hypotheses each: ten ids and ends.
    monkeypatch.setattr(searches, "_MOST_SENTENCES", 3)

    async def test(batcher: Sentences) -> None:
        # The first is too long to share a search; of the other four, three fit.
        for sources in ([[1] * 20, [2] * 3, [3] * 3], [[4], [5], [6], [7]]):
            assert ids(await batcher.submit(sources, SETTINGS).future) == sources
        assert slow.joined == [[[1] * 20], [[2] * 3, [3] * 3], [[4], [5], [6]], [[7]]]

    run(test)


def test_a_lost_sentence_fails_its_own_request_only(slow: Slow, run: Any, monkeypatch: Any) -> None:
    def lose(search: SlowSearch) -> Found:
        slow.is_ready = False
        del search._sources[1]
        raise LostError({1: KeyError("gone")})

    async def test(batcher: Sentences) -> None:
        slow.is_ready = False
        first, second = batcher.submit([[1]], SETTINGS), batcher.submit([[2]], SETTINGS)
        await until(lambda: len(slow.joined) == 1)
        advance = SlowSearch.advance
        monkeypatch.setattr(SlowSearch, "advance", lose)
        slow.is_ready = True
        slow.on_ready()
        with pytest.raises(KeyError, match="gone"):
            await second.future
        batcher.drop(second)
        assert not first.future.done()
        monkeypatch.setattr(SlowSearch, "advance", advance)
        slow.is_ready = True
        slow.on_ready()
        assert ids(await first.future) == [[1]]

    run(test)


@pytest.mark.parametrize("shares", [1, 2])
def test_several_processes_hold_more_sentences(
    slow: Slow, driver: Driver, monkeypatch: Any, shares: int
) -> None:
    monkeypatch.setattr(searches, "_MOST_SENTENCES", 2)

    async def test() -> None:
        batcher = Batcher("m", slow.search, Limits(), Metrics(), driver, shares=lambda: shares)
        driver.add(batcher)
        slow.is_ready = False
        ticket = batcher.submit([[n] for n in range(1, 7)], SETTINGS)
        await until(lambda: len(slow.joined) == 1)
        assert slow.joined == [[[n] for n in range(1, 1 + 2 * shares)]]
        slow.is_ready = True
        slow.on_ready()
        await ticket.future
        driver.remove(batcher, 5)

    asyncio.run(test())


def test_dropped_sentences_never_start_or_leave_the_search(slow: Slow, run: Any) -> None:
    async def test(batcher: Sentences) -> None:
        slow.may.clear()
        searched = batcher.submit([LONG, [1], LONG], SETTINGS)
        await until(lambda: len(slow.joined) == 1)
        waiting = batcher.submit([[2], [3]], SETTINGS)
        kept = batcher.submit([[4]], SETTINGS)
        for ticket in (searched, waiting):
            ticket.future.cancel()
            batcher.drop(ticket)
        slow.may.set()
        assert ids(await kept.future) == [[4]]
        assert slow.joined[1:] == [[[4]]]
        # In the compute thread, the second is done in the step in progress.
        assert slow.dropped == ([0, 2] if slow.may.is_waited_for else [0, 1, 2])

    run(test)


def test_sentences_are_dropped_while_the_search_is_not_ready(slow: Slow, run: Any) -> None:
    async def test(batcher: Sentences) -> None:
        slow.is_ready = False
        ticket = batcher.submit([[1], [2]], SETTINGS)
        await until(lambda: len(slow.joined) == 1)
        assert batcher.due() is None
        ticket.future.cancel()
        batcher.drop(ticket)
        await until(lambda: slow.dropped == [0, 1])
        assert batcher.num_searches == 0

    run(test)


def test_a_full_queue_refuses_with_retry_after(slow: Slow, run: Any) -> None:
    async def test(batcher: Sentences) -> None:
        slow.may.clear()
        blocker = batcher.submit([[1, 1]], SETTINGS)
        await until(lambda: len(slow.joined) == 1)
        many = batcher.submit([[2]] * 9, SETTINGS)  # More than the queue, but nothing waits.
        with pytest.raises(RefusedError, match="too many sentences are waiting") as caught:
            batcher.submit([[3]], SETTINGS)
        assert caught.value.status == 429
        assert caught.value.retry_after == 1
        slow.may.set()
        await asyncio.gather(blocker.future, many.future)

    run(test)


def test_an_error_fails_its_own_search_only(slow: Slow, run: Any) -> None:
    async def test(batcher: Sentences) -> None:
        with pytest.raises(ValueError, match="a bug"):
            await batcher.submit([[666]], SETTINGS).future
        assert ids(await batcher.submit([[1]], SETTINGS).future) == [[1]]

    run(test)


def test_a_search_that_cannot_begin_fails_its_own_requests_only(
    slow: Slow, run: Any, monkeypatch: Any
) -> None:
    def refuse(
        settings: SearchSettings, on_ready: Callable[[], None], client_of: ClientOf, is_bulk: bool
    ) -> SlowSearch:
        if settings.beam == 9:
            raise OSError("no more memory")
        return Slow.search(slow, settings, on_ready, client_of, is_bulk)

    monkeypatch.setattr(slow, "search", refuse)

    async def test(batcher: Sentences) -> None:
        refused = batcher.submit([[1], [2]], SearchSettings(beam=9))
        other = batcher.submit([[3]], SETTINGS)
        with pytest.raises(OSError, match="no more memory"):
            await refused.future
        assert ids(await other.future) == [[3]]

    run(test)


def test_a_short_request_is_served_whatever_others_have_queued(slow: Slow, run: Any) -> None:
    async def test(batcher: Sentences) -> None:
        # LONG sentences do not end here: they keep their places in the search.
        hogs = [batcher.submit([LONG] * 5000, SETTINGS, f"hog {n}") for n in range(3)]
        await until(lambda: len(slow.joined) > 0 and slow.steps > 3)
        assert ids(await batcher.submit([[1], [2]], SETTINGS, "innocent").future) == [[1], [2]]
        with pytest.raises(RefusedError, match="too many sentences"):
            batcher.submit([[1]], SETTINGS, "hog 1")
        for hog in hogs:
            batcher.drop(hog)
        await until(lambda: batcher.due() is None)

    run(test)


def test_light_and_bulk_clients_are_searched_apart(slow: Slow, run: Any) -> None:
    async def test(batcher: Sentences) -> None:
        hog = batcher.submit([LONG] * 9, SETTINGS, "hog")
        await until(lambda: len(slow.joined) == 1)
        also = batcher.submit([LONG] * 2, SETTINGS, "hog")
        await until(lambda: len(slow.joined) == 2)
        assert slow.searches == 1
        light = batcher.submit([LONG] * 8, SETTINGS, "innocent")
        await until(lambda: len(slow.joined) == 3)
        assert slow.searches == 2
        slow.may_end.set()
        await asyncio.gather(hog.future, light.future, also.future)

    run(test)


def test_bulk_searches_are_small_while_there_are_light_clients(
    slow: Slow, run: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(searches, "_MOST_SENTENCES", 12)
    monkeypatch.setattr(batching, "_LIGHT_SECONDS", 1000.0)
    monkeypatch.setattr(searches, "_BULK_SECONDS", 1000.0)

    async def test(batcher: Sentences) -> None:
        first = batcher.submit([[1]] * 24, SETTINGS, "hog")
        await first.future
        assert [len(joined) for joined in slow.joined] == [12, 12]
        await batcher.submit([[2]], SETTINGS, "innocent").future
        second = batcher.submit([[1]] * 12, SETTINGS, "hog")
        await second.future
        assert [len(joined) for joined in slow.joined[3:]] == [3, 3, 3, 3]

    run(test)


def test_a_search_begins_once_something_is_free_to_compute_it(slow: Slow, driver: Driver) -> None:
    async def test() -> None:
        free = False
        slow.may.is_waited_for = driver is COMPUTE
        batcher = Batcher(
            "m",
            slow.search,
            Limits(),
            Metrics(),
            driver,
            is_free=lambda: free,
        )
        driver.add(batcher)
        ticket = batcher.submit([[1]], SETTINGS)
        assert batcher.due() not in (0, None), "it polls"
        assert slow.searches == 0
        free = True
        driver.wake()
        assert ids(await ticket.future) == [[1]]
        driver.remove(batcher, 5)

    asyncio.run(test())


def test_nan_logits_fail_their_own_request_only(slow: Slow, run: Any, monkeypatch: Any) -> None:
    advance = SlowSearch.advance

    def with_nan(search: SlowSearch) -> Found:
        return [(n, [] if list(found[0].ids) == [13] else found) for n, found in advance(search)]

    monkeypatch.setattr(SlowSearch, "advance", with_nan)

    async def test(batcher: Sentences) -> None:
        slow.may.clear()
        bad, good = batcher.submit([[1], [13]], SETTINGS), batcher.submit([[2]], SETTINGS)
        slow.may.set()
        assert ids(await good.future) == [[2]]
        with pytest.raises(RefusedError, match="NaN") as caught:
            await bad.future
        assert caught.value.status == 500
        batcher.drop(bad)
        await until(lambda: batcher.due() is None)

    run(test)


def test_stalled_seconds_grow_without_progress(slow: Slow, run: Any, monkeypatch: Any) -> None:
    async def test(batcher: Sentences) -> None:
        slow.is_ready = False
        ticket = batcher.submit([[1]], SETTINGS)
        await until(lambda: len(slow.joined) == 1)
        now = time.monotonic()
        with monkeypatch.context() as later:
            later.setattr("headwise.serving.batching.time.monotonic", lambda: now + 1000)
            assert batcher.stalled_seconds > 900
        slow.is_ready = True
        slow.on_ready()
        await ticket.future
        await until(lambda: batcher.stalled_seconds == 0)

    run(test)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)
