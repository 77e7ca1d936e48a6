"""The budget for responses that clients do not receive."""

from headwise.serving.client_limits import UnsentResponses


class Connection:
    def __init__(self, group: str, size: int) -> None:
        self.group, self.size, self.is_open = group, size, True

    def unsent(self) -> int:
        return self.size

    def abort(self) -> None:
        self.is_open = False


def test_within_the_budget_nothing_is_closed() -> None:
    responses = UnsentResponses(100)
    waiting = [Connection("a", 40), Connection("b", 60)]
    for each in waiting:
        responses.record(each, each.size)
    assert all(each.is_open for each in waiting)


def test_the_client_with_most_unsent_bytes_loses_its_oldest_connections() -> None:
    responses = UnsentResponses(100)
    other = Connection("other", 30)
    hog = [Connection("hog", 20) for _ in range(5)]
    for each in (other, *hog):
        responses.record(each, each.size)
    assert other.is_open
    assert [each.is_open for each in hog] == [False, False, True, True, True]


def test_recording_a_connection_again_does_not_change_its_age() -> None:
    responses = UnsentResponses(100)
    first, second, third = (Connection("a", 40) for _ in range(3))
    for each in (first, second, first, third):
        responses.record(each, each.size)
    assert [each.is_open for each in (first, second, third)] == [False, True, True]


def test_bytes_sent_since_they_were_recorded_do_not_count() -> None:
    responses = UnsentResponses(100)
    first, second, third = (Connection("a", 50) for _ in range(3))
    responses.record(first, 50)
    responses.record(second, 50)
    first.size = 0  # It has received all since its size was recorded.
    responses.record(third, 50)
    assert all(each.is_open for each in (first, second, third))
    responses.record(second, 0)
    responses.record(third, 0)
    assert (responses.total, responses.num_connections) == (0, 0)
