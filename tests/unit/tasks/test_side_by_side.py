"""Jobs on several threads, each with one core."""

import os
import threading
from collections.abc import Iterator

import pytest
import torch

from headwise.tasks.side_by_side import side_by_side


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_jobs_run_at_once_with_a_core_each_and_come_back_in_order() -> None:
    meeting = threading.Barrier(2, timeout=10)

    def job(number: int) -> tuple[int, int]:
        if number < 2:
            meeting.wait()  # Neither gets past this alone.
        return number, torch.get_num_threads()

    found = side_by_side([lambda n=n: job(n) for n in range(7)])  # type: ignore[misc]
    assert found == [(number, 1) for number in range(7)]
    assert torch.get_num_threads() == 2, "nobody else is slowed down"
    later: list[int] = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [2], "nor who comes later"


@pytest.mark.usefixtures("two_threads")
def test_an_error_comes_out_and_what_waits_is_not_begun() -> None:
    begun: list[int] = []
    raised = threading.Event()

    def job(number: int) -> None:
        begun.append(number)
        if number == 0:
            raise ValueError(f"job {number}")
        raised.wait(10)

    jobs = [lambda n=n: job(n) for n in range(1000)]  # type: ignore[misc]
    with pytest.raises(ValueError, match="job 0"):
        side_by_side(jobs)
    raised.set()
    assert side_by_side([lambda: 1]) == [1], "the threads live on"
    # Each of the two threads took one more, while the error was on its way.
    assert set(begun) <= {0, 1, 2}


@pytest.mark.usefixtures("two_threads")
def test_a_forked_process_has_threads_of_its_own() -> None:
    assert side_by_side([lambda: 1]) == [1]
    child = os.fork()
    if child == 0:
        os._exit(0 if side_by_side([lambda: 5, lambda: 6]) == [5, 6] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_with_one_thread_jobs_run_where_they_are() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert side_by_side([threading.get_ident]) == [threading.get_ident()]
    finally:
        torch.set_num_threads(before)
