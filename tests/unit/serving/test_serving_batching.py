"""The queue and its thread, over a translator that does as it is told."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from headwise.decoding import Found, Hypothesis, SearchSettings
from headwise.serving import batching, rates, under_way
from headwise.serving.batching import _MOST_SEARCHES, Batcher, ClientOf
from headwise.serving.compute import Driver, computer
from headwise.serving.in_loop import InLoop
from headwise.serving.limits import Limits, RefusedError
from headwise.serving.metrics import Metrics
from headwise.serving.rates import Speed
from headwise.tasks.translation.engine import LostError

Test = Callable[[Batcher], Coroutine[Any, Any, None]]

SETTINGS = SearchSettings()
LONG = [9] * 50


class Slow:
    """Answers a source with itself after a step, once steps may be taken; LONG ones take longer.

    It notes who joined and who was dropped.
    """

    def __init__(self) -> None:
        self.joined: list[list[list[int]]] = []
        self.dropped: list[int] = []
        self.accepts = self.is_ready = self.drops = True
        self.tell: Callable[[], None] = lambda: None
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
        self.tell = on_ready
        return SlowSearch(self)


class Permission(threading.Event):
    """Whether steps may be taken: a thread waits for it, an event loop comes back later."""

    def __init__(self, slow: Slow) -> None:
        super().__init__()
        self._slow, self.is_waited_for = slow, True

    def set(self) -> None:
        super().set()
        self._slow.tell()


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

    def add(self, sources: dict[int, list[int]]) -> None:
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

    def drop(self, numbers: list[int]) -> None:
        if not self._slow.drops:
            self._unwanted.update(numbers)
            return
        self._slow.dropped += [number for number in numbers if self._sources.pop(number, None)]


@pytest.fixture
def slow() -> Slow:
    return Slow()


@pytest.fixture(params=["in a thread", "in the loop"])
def driver(request: pytest.FixtureRequest) -> Driver:
    return computer if request.param == "in a thread" else InLoop()


@pytest.fixture
def run(
    slow: Slow, driver: Driver
) -> Callable[[Callable[[Batcher], Coroutine[Any, Any, None]]], None]:
    def go(test: Callable[[Batcher], Coroutine[Any, Any, None]]) -> None:
        slow.may.is_waited_for = driver is computer
        batcher = Batcher("m", slow.search, Limits(queue=6), Metrics(), driver)  # type: ignore[arg-type]

        async def inside() -> None:
            batcher.start()
            assert batcher.is_alive
            try:
                await asyncio.wait_for(test(batcher), 10)
                assert batcher.due() is None
            finally:
                slow.may.set()
                slow.may_end.set()
                batcher.close(5)
                assert not batcher.is_alive

        asyncio.run(inside())

    return go


def ids(found: list[list[Hypothesis]]) -> list[list[int]]:
    return [list(hypotheses[0].ids) for hypotheses in found]


def test_sentences_join_a_search_and_are_answered_as_they_are_done(slow: Slow, run: Any) -> None:
    async def test(batcher: Batcher) -> None:
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


def test_other_settings_are_searched_apart_but_at_the_same_time(slow: Slow, run: Any) -> None:
    async def test(batcher: Batcher) -> None:
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
    async def test(batcher: Batcher) -> None:
        *kinds, other = [SearchSettings(beam=5 + n) for n in range(_MOST_SEARCHES + 1)]
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


def test_other_settings_cannot_occupy_the_search_of_the_models_own(slow: Slow, run: Any) -> None:
    async def test(batcher: Batcher) -> None:
        hostile = [SearchSettings(alpha=n / 10) for n in range(7, 13)]
        tickets = [batcher.submit([LONG], kind, f"client {kind.alpha}") for kind in hostile]
        await until(lambda: len(slow.joined) == _MOST_SEARCHES)
        assert ids(await batcher.submit([[1]], SETTINGS, "innocent").future) == [[1]]
        assert slow.searches == _MOST_SEARCHES + 1
        slow.may_end.set()
        await asyncio.gather(*(each.future for each in tickets))

    run(test)


def test_a_search_may_take_its_time_and_say_when_it_is_ready(slow: Slow, run: Any) -> None:
    async def test(batcher: Batcher) -> None:
        slow.is_ready = False
        first = batcher.submit([[1]], SETTINGS)
        await until(lambda: len(slow.joined) == 1)
        slow.accepts = False
        second = batcher.submit([[2]], SETTINGS)
        await asyncio.sleep(0.05)
        assert (slow.joined, slow.steps) == ([[[1]]], 0), "nobody joins, and nothing is asked for"
        slow.accepts = True
        if not slow.may.is_waited_for:
            slow.tell()  # A thread asks again by itself.
        await until(lambda: len(slow.joined) == 2)
        assert slow.steps == 0
        slow.is_ready = True
        slow.tell()
        assert ids(await first.future) == [[1]]
        assert ids(await second.future) == [[2]]
        assert slow.steps == 1

    run(test)


def test_whoever_could_begin_does_not_wait_for_whoever_cannot(
    slow: Slow, run: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(under_way, "_MOST_SENTENCES", 1)

    async def test(batcher: Batcher) -> None:
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
        slow.tell()
        await asyncio.gather(first.future, second.future, other.future)

    run(test)


def test_a_long_sentence_is_not_overtaken_by_short_ones(
    slow: Slow, run: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(under_way, "_MOST_TOKENS", 400)  # Of four hypotheses each: a hundred.

    async def test(batcher: Batcher) -> None:
        slow.may.clear()
        first = batcher.submit([[1]], SETTINGS)
        await until(lambda: len(slow.joined) == 1)
        long, short = batcher.submit([[2] * 98], SETTINGS), batcher.submit([[3]], SETTINGS)
        slow.may.set()
        await asyncio.gather(first.future, long.future, short.future)
        assert slow.joined == [[[1]], [[2] * 98], [[3]]]

    run(test)


def test_a_request_without_room_is_not_asked_about_again_and_again(
    slow: Slow, run: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(under_way, "_MOST_TOKENS", 400)

    async def test(batcher: Batcher) -> None:
        slow.is_ready = False
        first = batcher.submit([[1]], SETTINGS, "a")
        await until(lambda: len(slow.joined) == 1)
        long = batcher.submit([[2] * 98], SETTINGS, "b")
        short = batcher.submit([[3]], SETTINGS, "c")
        assert batcher.due() is None, "the short one would find room, but the long one is first"
        slow.is_ready = True
        slow.tell()
        await asyncio.gather(first.future, long.future, short.future)
        assert slow.joined == [[[1]], [[2] * 98], [[3]]]

    run(test)


def test_a_search_that_nobody_wants_is_kept_until_it_has_ended(slow: Slow, run: Any) -> None:
    """As of a library that cannot be stopped: its workers are not free before."""

    async def test(batcher: Batcher) -> None:
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
        slow.tell()
        await until(lambda: batcher.due() is None)

    run(test)


def test_after_an_error_nothing_more_is_searched_for(
    slow: Slow, run: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(under_way, "_MOST_SENTENCES", 1)

    async def test(batcher: Batcher) -> None:
        slow.may.clear()  # After the first, which fails at once, none goes on by itself.
        ticket = batcher.submit([[666], [1], [2], [3]], SETTINGS)
        with pytest.raises(ValueError, match="a bug"):
            await ticket.future
        batcher.drop(ticket)
        slow.may.set()
        await until(lambda: batcher.due() is None)
        assert len(slow.joined) < 4

    run(test)


def test_a_bug_fails_the_requests_of_that_moment_and_no_later_ones(
    slow: Slow, run: Any, monkeypatch: Any
) -> None:
    async def test(batcher: Batcher) -> None:
        slow.may.clear()
        tickets = [batcher.submit([LONG], SETTINGS)]
        await until(lambda: len(slow.joined) == 1)
        tickets.append(batcher.submit([[1]], SETTINGS))
        with monkeypatch.context() as bug:
            bug.setattr(batcher, "_waiting", lambda: {}["bug"])
            bug.setattr(batcher, "due", lambda: 0 if batcher._running else None)
            slow.may.set()
            for ticket in tickets:
                with pytest.raises(KeyError, match="bug"):
                    await ticket.future
                batcher.drop(ticket)
        assert batcher.is_alive
        assert ids(await batcher.submit([[2]], SETTINGS).future) == [[2]]

    run(test)


def test_a_search_takes_no_more_than_it_may(slow: Slow, run: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(under_way, "_MOST_TOKENS", 40)  # Of four hypotheses each: ten ids and ends.
    monkeypatch.setattr(under_way, "_MOST_SENTENCES", 3)

    async def test(batcher: Batcher) -> None:
        # The first is too long for any, and has its turn alone; so are four for three places.
        for sources in ([[1] * 20, [2] * 3, [3] * 3], [[4], [5], [6], [7]]):
            assert ids(await batcher.submit(sources, SETTINGS).future) == sources
        assert slow.joined == [[[1] * 20], [[2] * 3, [3] * 3], [[4], [5], [6]], [[7]]]

    run(test)


def test_what_is_lost_is_told_to_its_caller_alone(slow: Slow, run: Any, monkeypatch: Any) -> None:
    def lose(search: SlowSearch) -> Found:
        slow.is_ready = False
        del search._sources[1]
        raise LostError({1: KeyError("gone")})

    async def test(batcher: Batcher) -> None:
        slow.is_ready = False
        first, second = batcher.submit([[1]], SETTINGS), batcher.submit([[2]], SETTINGS)
        await until(lambda: len(slow.joined) == 1)
        advance = SlowSearch.advance
        monkeypatch.setattr(SlowSearch, "advance", lose)
        slow.is_ready = True
        slow.tell()
        with pytest.raises(KeyError, match="gone"):
            await second.future
        batcher.drop(second)
        assert not first.future.done()
        monkeypatch.setattr(SlowSearch, "advance", advance)
        slow.is_ready = True
        slow.tell()
        assert ids(await first.future) == [[1]]

    run(test)


@pytest.mark.parametrize("shares", [1, 2])
def test_several_who_search_take_so_much_more(
    slow: Slow, driver: Driver, monkeypatch: Any, shares: int
) -> None:
    monkeypatch.setattr(under_way, "_MOST_SENTENCES", 2)

    async def test() -> None:
        batcher = Batcher("m", slow.search, Limits(), Metrics(), driver, shares=lambda: shares)  # type: ignore[arg-type]
        batcher.start()
        slow.is_ready = False
        ticket = batcher.submit([[n] for n in range(1, 7)], SETTINGS)
        await until(lambda: len(slow.joined) == 1)
        assert slow.joined == [[[n] for n in range(1, 1 + 2 * shares)]]
        slow.is_ready = True
        slow.tell()
        await ticket.future
        batcher.close(5)

    asyncio.run(test())


def test_what_is_dropped_never_starts_or_is_given_up(slow: Slow, run: Any) -> None:
    async def test(batcher: Batcher) -> None:
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
        # In a thread the second was done by the step that was being taken.
        assert slow.dropped == ([0, 2] if slow.may.is_waited_for else [0, 1, 2])

    run(test)


def test_what_is_given_up_is_dropped_though_the_search_has_nothing_to_tell(
    slow: Slow, run: Any
) -> None:
    async def test(batcher: Batcher) -> None:
        slow.is_ready = False
        ticket = batcher.submit([[1], [2]], SETTINGS)
        await until(lambda: len(slow.joined) == 1)
        assert batcher.due() is None
        ticket.future.cancel()
        batcher.drop(ticket)
        await until(lambda: slow.dropped == [0, 1])
        assert not batcher._running

    run(test)


def test_a_full_queue_refuses_and_says_when_to_come_again(slow: Slow, run: Any) -> None:
    async def test(batcher: Batcher) -> None:
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


def test_an_error_is_its_searchs_own_and_the_thread_lives_on(slow: Slow, run: Any) -> None:
    async def test(batcher: Batcher) -> None:
        with pytest.raises(ValueError, match="a bug"):
            await batcher.submit([[666]], SETTINGS).future
        assert ids(await batcher.submit([[1]], SETTINGS).future) == [[1]]

    run(test)


def test_a_search_that_cannot_begin_is_its_callers_matter(slow: Slow, run: Any) -> None:
    begin = slow.search

    def refuse(
        settings: SearchSettings, on_ready: Callable[[], None], client_of: ClientOf, is_bulk: bool
    ) -> SlowSearch:
        if settings.beam == 9:
            raise OSError("no more memory")
        return begin(settings, on_ready, client_of, is_bulk)

    async def test(batcher: Batcher) -> None:
        batcher._search = refuse  # type: ignore[assignment]
        refused = batcher.submit([[1], [2]], SearchSettings(beam=9))
        other = batcher.submit([[3]], SETTINGS)
        with pytest.raises(OSError, match="no more memory"):
            await refused.future
        assert ids(await other.future) == [[3]]
        assert batcher.is_alive

    run(test)


def test_a_short_request_is_served_whatever_others_have_queued(slow: Slow, run: Any) -> None:
    async def test(batcher: Batcher) -> None:
        # LONG sentences never end by themselves here: they keep every place they have taken.
        hogs = [batcher.submit([LONG] * 5000, SETTINGS, f"hog {n}") for n in range(3)]
        await until(lambda: len(slow.joined) > 0 and slow.steps > 3)
        assert ids(await batcher.submit([[1], [2]], SETTINGS, "innocent").future) == [[1], [2]]
        with pytest.raises(RefusedError, match="too many sentences"):
            batcher.submit([[1]], SETTINGS, "hog 1")
        for hog in hogs:
            batcher.drop(hog)
        await until(lambda: batcher.due() is None)

    run(test)


def test_a_client_with_little_under_way_is_searched_apart_from_one_with_much(
    slow: Slow, run: Any
) -> None:
    async def test(batcher: Batcher) -> None:
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


def test_a_search_in_bulk_is_kept_small_while_clients_with_little_come(
    slow: Slow, run: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(under_way, "_MOST_SENTENCES", 12)
    monkeypatch.setattr(batching, "_LIGHT_SECONDS", 1000.0)

    async def test(batcher: Batcher) -> None:
        first = batcher.submit([[1]] * 24, SETTINGS, "hog")
        await first.future
        assert [len(joined) for joined in slow.joined] == [12, 12]
        await batcher.submit([[2]], SETTINGS, "innocent").future
        second = batcher.submit([[1]] * 12, SETTINGS, "hog")
        await second.future
        assert [len(joined) for joined in slow.joined[3:]] == [3, 3, 3, 3]

    run(test)


def test_a_search_begins_when_something_is_free_to_compute_it(slow: Slow, driver: Driver) -> None:
    async def test() -> None:
        free = False
        slow.may.is_waited_for = driver is computer
        batcher = Batcher(
            "m",
            slow.search,
            Limits(),
            Metrics(),
            driver,
            is_free=lambda: free,  # type: ignore[arg-type]
        )
        batcher.start()
        ticket = batcher.submit([[1]], SETTINGS)
        assert batcher.due() not in (0, None), "it is asked again"
        assert slow.searches == 0
        free = True
        driver.wake()
        assert ids(await ticket.future) == [[1]]
        batcher.close(5)

    asyncio.run(test())


def test_a_nan_fails_its_own_request_alone(slow: Slow, run: Any, monkeypatch: Any) -> None:
    advance = SlowSearch.advance

    def with_nan(search: SlowSearch) -> Found:
        return [(n, [] if list(found[0].ids) == [13] else found) for n, found in advance(search)]

    monkeypatch.setattr(SlowSearch, "advance", with_nan)

    async def test(batcher: Batcher) -> None:
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


def test_what_makes_no_progress_is_stalled(slow: Slow, run: Any, monkeypatch: Any) -> None:
    async def test(batcher: Batcher) -> None:
        slow.is_ready = False
        ticket = batcher.submit([[1]], SETTINGS)
        await until(lambda: len(slow.joined) == 1)
        now = time.monotonic()
        with monkeypatch.context() as later:
            later.setattr(batching.time, "monotonic", lambda: now + 1000)
            assert batcher.stalled_seconds > 900
        slow.is_ready = True
        slow.tell()
        await ticket.future
        await until(lambda: batcher.stalled_seconds == 0)

    run(test)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


class Broken:
    """Work that comes to a bad end."""

    def due(self) -> float | None:
        return 0

    def place(self) -> tuple[float, float]:
        return 0.0, 0.0

    def turn(self) -> None:
        raise ValueError("a mistake")


def test_work_that_breaks_is_in_nobodys_way() -> None:
    broken = Broken()
    computer.add(broken)
    with pytest.raises(KeyError, match="x"):
        computer.call(lambda: {}["x"])
    assert computer.call(lambda: 7) == 7
    until_then = time.monotonic() + 5
    while computer.has(broken) and time.monotonic() < until_then:
        time.sleep(0.01)
    assert not computer.has(broken)
    computer.remove(broken, 1)
    assert computer.call(lambda: 7) == 7


class Removed:
    """Work that is taken away while it comes to a bad end."""

    def due(self) -> float | None:
        return 0

    def place(self) -> tuple[float, float]:
        return 0.0, 0.0

    def turn(self) -> None:
        computer._work.remove(self)
        raise ValueError("a mistake")


def test_work_that_is_taken_away_as_it_breaks_ends_nothing_else() -> None:
    computer.add(Removed())
    assert computer.call(lambda: 7) == 7
    time.sleep(0.05)
    assert computer.call(lambda: 7) == 7


def test_a_call_that_is_given_up_is_not_made() -> None:
    may, made = threading.Event(), []
    first = computer.submit(lambda: may.wait(5))
    second = computer.submit(lambda: made.append(2))
    assert second.cancel()
    may.set()
    assert first.result(5)
    assert computer.call(lambda: threading.current_thread().name) == "compute"
    assert made == []


def test_what_was_not_begun_is_cleared_and_what_was_is_waited_for() -> None:
    begun, may, turns = threading.Event(), threading.Event(), []

    class Eager:
        def due(self) -> float | None:
            return 0

        def place(self) -> tuple[float, float]:
            return 0.0, 0.0

        def turn(self) -> None:
            turns.append(1)

    def call() -> None:
        begun.set()
        may.wait(5)

    first = computer.submit(call)
    assert begun.wait(5)
    eager = Eager()
    computer.add(eager)
    second = computer.submit(lambda: None)
    assert not computer.clear(0.01), "it is still at work"
    assert second.cancelled()
    may.set()
    assert computer.clear(5)
    assert first.done()
    assert (turns, computer.has(eager)) == ([], False)
    assert computer.call(lambda: 7) == 7


def test_work_that_breaks_in_the_loop_is_in_nobodys_way() -> None:
    async def test() -> None:
        in_loop, turns = InLoop(), 0

        class Thrice:
            def due(self) -> float | None:
                return 0 if turns < 3 else None

            def place(self) -> tuple[float, float]:
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


def test_speed_is_of_sentences_while_there_were_any(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(rates.time, "monotonic", lambda: now)
    speed = Speed()
    assert speed.seconds_for(50) == 1.0
    speed.note(0, is_busy=True)
    for _ in range(5):
        now += 0.5
        speed.note(20, is_busy=True)
    assert speed.per_second == pytest.approx(40)
    speed.note(0, is_busy=False)
    now += 1000
    speed.note(0, is_busy=True)
    assert speed.seconds_for(80) == pytest.approx(2.0)
