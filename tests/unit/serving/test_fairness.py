"""The fair queue, compute time per client, and the order of turns."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwise.serving import fairness
from headwise.serving.fairness import FairQueue, Shares, Ticket, Turns


def ticket(client: str, *items: int) -> Ticket[int, int]:
    return Ticket.of(client, items, None)  # type: ignore[arg-type]


def taken(queue: FairQueue[int, int], most: int = 1000) -> list[int]:
    found: list[int] = []

    def starts(_: Ticket[int, int], __: int, item: int) -> bool | None:
        if len(found) == most:
            return None
        found.append(item)
        return True

    queue.take(starts)
    return found


def test_clients_take_turns_and_so_do_a_clients_requests() -> None:
    queue: FairQueue[int, int] = FairQueue()
    for each in (ticket("a", 1, 2, 3), ticket("a", 11, 12), ticket("b", 21, 22), ticket("c", 31)):
        queue.add(each)
    assert len(queue) == 8
    assert taken(queue) == [1, 21, 31, 11, 22, 2, 12, 3]
    assert (len(queue), queue.clients) == (0, [])


def test_turns_continue_where_they_were_interrupted() -> None:
    queue: FairQueue[int, int] = FairQueue()
    for each in (ticket("a", 1, 2, 3), ticket("b", 21, 22), ticket("c", 31)):
        queue.add(each)
    assert taken(queue, 2) == [1, 21]
    queue.add(ticket("d", 41))
    assert taken(queue, 2) == [31, 2]
    assert taken(queue) == [22, 41, 3]


def test_an_item_that_cannot_start_blocks_only_its_own_request() -> None:
    queue: FairQueue[int, int] = FairQueue()
    stuck, other = ticket("a", 1, 2), ticket("a", 11, 12)
    queue.add(stuck)
    queue.add(other)
    found: list[int] = []

    def starts(each: Ticket[int, int], _: int, item: int) -> bool:
        if each is stuck:
            return False
        found.append(item)
        return True

    queue.take(starts)
    assert (found, len(queue)) == ([11, 12], 2)
    assert taken(queue) == [1, 2]


def test_removed_items_never_start() -> None:
    queue: FairQueue[int, int] = FairQueue()
    first, second = ticket("a", 1, 2), ticket("a", 11)
    queue.add(first)
    queue.add(second)
    assert taken(queue, 1) == [1]
    assert queue.remove(first) == [2]
    assert queue.remove(first) == []
    assert taken(queue) == [11]
    queue.add(ticket("a", 1))
    assert [each.client for each in queue.clear()] == ["a"]
    assert (len(queue), queue.waiting_of("a")) == (0, 0)


def test_a_clients_share_falls_with_the_number_of_waiting_clients() -> None:
    queue: FairQueue[int, int] = FairQueue()
    assert queue.has_room("a", 5000, 100), "nothing else of it waits"
    queue.add(ticket("a", *range(60)))
    assert queue.has_room("a", 40, 100)
    assert not queue.has_room("a", 41, 100)
    assert queue.has_room("b", 5000, 100)
    queue.add(ticket("b", 1))
    assert queue.has_room("b", 49, 100)
    assert not queue.has_room("b", 50, 100)
    assert not queue.has_room("a", 1, 100)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 30)), max_size=12))
def test_no_client_waits_for_more_than_one_item_of_each_other(sizes: list[tuple[str, int]]) -> None:
    queue: FairQueue[str, int] = FairQueue()
    for client, size in sizes:
        queue.add(Ticket.of(client, [client] * size, None))  # type: ignore[arg-type]
    order: list[str] = []

    def starts(each: Ticket[str, int], _: int, item: str) -> bool:
        order.append(each.client)
        return True

    queue.take(starts)
    assert len(order) == sum(size for _, size in sizes)
    for client in set(order):
        places = [place for place, each in enumerate(order) if each == client]
        for start, end in itertools.pairwise(places):
            between = order[start + 1 : end]
            assert len(between) == len(set(between))


def test_the_client_with_least_compute_time_is_next() -> None:
    shares = Shares()
    for client in "ab":
        shares.wake(client)
    shares.charge({"a": 3, "b": 1}, 4.0)
    assert shares.first("ab") == "b"
    shares.charge({"b": 1}, 4.0)
    assert shares.first("ab") == "a"


def turns_of(shares: Shares, client: str, *others: str, seconds: float = 0.01) -> int:
    """Count the steps that a client has before one of the others."""
    turns = 0
    while shares.first((client, *others)) == client:
        shares.charge({client: 1}, seconds)
        turns += 1
    return turns


def test_an_idle_client_gains_a_limited_time() -> None:
    shares = Shares()
    for client in ("innocent", "hog"):
        shares.wake(client)
        shares.charge({client: 1}, 0.01)
    for _ in range(10_000):
        shares.charge({"hog": 1}, 0.01)
    shares.wake("innocent")
    assert 10 < turns_of(shares, "innocent", "hog") < 30, "a quarter of a second, not a hundred"


def test_new_clients_do_not_delay_an_occasional_one() -> None:
    shares = Shares()
    for _ in range(30):
        shares.wake("innocent")
        shares.charge({"innocent": 1}, 0.01)
    for number in range(50):
        shares.wake(f"hog {number}")
    hogs = [f"hog {number}" for number in range(50)]
    for hog in hogs:
        shares.charge({hog: 1}, 0.1)
    shares.wake("innocent")
    assert turns_of(shares, "innocent", *hogs) >= 5
    shares.wake("another innocent")
    assert turns_of(shares, "another innocent", *hogs) >= 1


def test_old_compute_times_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fairness, "_MOST_CLIENTS", 10)
    shares = Shares()
    for number in range(1000):
        shares.wake(str(number))
        shares.charge({str(number): 1}, 1.0)
        shares.charge({"hog": 1}, 3.0)
    assert shares.num_clients <= 21


def test_light_clients_get_four_times_the_time_of_bulk_ones() -> None:
    turns = Turns()
    for client in ("light", "bulk"):
        turns.wake(client)
    seconds = {False: 0.0, True: 0.0}
    for _ in range(10_000):
        is_bulk = turns.priority(["bulk"], is_bulk=True) < turns.priority(["light"], is_bulk=False)
        step = 0.05 if is_bulk else 0.002
        turns.charge({"bulk" if is_bulk else "light": 1}, step, is_bulk=is_bulk)
        seconds[is_bulk] += step
    assert seconds[False] / seconds[True] == pytest.approx(4, rel=0.1)


def test_light_comes_before_bulk_whatever_a_client_has_used() -> None:
    turns = Turns()
    turns.wake("busy")
    turns.charge({"busy": 1}, 5.0, is_bulk=False)
    turns.wake("hog")
    for _ in range(100):
        turns.charge({"hog": 1}, 0.05, is_bulk=True)
    turns.wake("busy")
    assert turns.priority(["busy"], is_bulk=False) < turns.priority(["hog"], is_bulk=True)


def test_bulk_gains_a_limited_time_while_idle() -> None:
    turns = Turns()
    turns.wake("light")
    turns.charge({"light": 1}, 1000.0, is_bulk=False)
    turns.wake("bulk")
    turns.charge({"bulk": 1}, 0.1, is_bulk=True)
    assert turns.priority(["light"], is_bulk=False) < turns.priority(["bulk"], is_bulk=True)
    turns.charge({"light": 1}, 0.5, is_bulk=False)
    assert turns.priority(["bulk"], is_bulk=True) < turns.priority(["light"], is_bulk=False)
