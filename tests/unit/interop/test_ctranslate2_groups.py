"""How CTranslate2's groups are formed, with a fake engine."""

import threading
from collections.abc import Sequence
from concurrent.futures import Future

import pytest

from headwise.decoding import Hypothesis, SearchSettings
from headwise.interop.ctranslate2 import groups
from headwise.interop.ctranslate2.engine import CTranslate2Engine
from headwise.interop.ctranslate2.groups import GroupingEngine, GroupSearch
from tests.servers import wait_for


class Engine(GroupingEngine):
    """Two workers, whose groups end when the test calls `end`."""

    def __init__(self) -> None:
        self.workers = 2
        self.groups: list[tuple[Future[list[list[Hypothesis]]], list[list[int]]]] = []

    def begin(
        self, sources: list[list[int]], settings: SearchSettings, max_extra_tokens: int
    ) -> Future[list[list[Hypothesis]]]:
        future: Future[list[list[Hypothesis]]] = Future()
        self.groups.append((future, sources))
        return future

    @property
    def is_free(self) -> bool:
        return sum(not future.done() for future, _ in self.groups) < self.workers

    def end(self, number: int) -> None:
        future, sources = self.groups[number]
        future.set_result([[Hypothesis(tuple(ids), 0.0, 0.0)] for ids in sources])


def test_each_worker_has_a_group_and_the_next_is_gathered_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, calls = Engine(), []
    monkeypatch.setattr(groups, "_GATHER_SECONDS", 1000.0)
    search = GroupSearch(engine, SearchSettings(), 50, lambda: calls.append(1))
    assert search.accepts(1), "the first sentence starts at once"
    search.add({0: [4], 1: [5, 5], 2: [6], 3: [7]})
    assert (len(search), search.is_ready) == (4, False)
    assert not search.accepts(3), "a few are not enough for the other worker"
    assert search.accepts(4)
    monkeypatch.setattr(groups, "_GATHER_SECONDS", 0.0)
    assert search.accepts(1), "they wait for others only briefly"
    search.add({4: [8]})
    assert not search.accepts(100), "both are busy"
    search.drop([1, 4])
    engine.end(0)
    assert (calls, search.is_ready) == ([1], True)
    found = [(number, hypotheses[0].ids) for number, hypotheses in search.advance()]
    assert found == [(0, (4,)), (2, (6,)), (3, (7,))], "dropped sentences are discarded"
    engine.end(1)
    assert search.advance() == []
    assert (len(search), search.is_ready) == (0, False)
    assert search._dropped == set()


def test_an_error_is_raised() -> None:
    engine = Engine()
    search = GroupSearch(engine, SearchSettings(), 50, lambda: None)
    search.add({0: [4]})
    engine.groups[0][0].set_exception(ValueError("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        search.advance()


def test_a_group_of_another_search_leaves_fewer_workers() -> None:
    may_end = threading.Event()

    class Slow(CTranslate2Engine):
        workers = 2

        def __init__(self) -> None:
            pass

        def translate(
            self, sources: Sequence[Sequence[int]], **_: object
        ) -> list[list[Hypothesis]]:
            assert may_end.wait(20)
            return [[Hypothesis(tuple(ids), 0.0, 0.0)] for ids in sources]

    engine = GroupingEngine(Slow())
    first, second = (engine.search(SearchSettings(beam=n), 50) for n in (1, 2))
    first.add({0: [4]})
    assert second.accepts(1)
    second.add({1: [5]})
    assert not first.accepts(100)
    assert not second.accepts(100)
    may_end.set()
    assert [number for number, _ in first.advance()] == [0]
    assert [number for number, _ in second.advance()] == [1]
    wait_for(lambda: engine.is_free)
