"""The budget for answers that clients do not take."""

from headwise.serving.unsent import UnsentAnswers


class Connection:
    def __init__(self, group: str, size: int) -> None:
        self.group, self.size, self.is_open = group, size, True

    def unsent(self) -> int:
        return self.size

    def abort(self) -> None:
        self.is_open = False


def test_within_the_budget_nothing_is_closed() -> None:
    answers = UnsentAnswers(100)
    waiting = [Connection("a", 40), Connection("b", 60)]
    for each in waiting:
        answers.note(each, each.size)
    assert all(each.is_open for each in waiting)


def test_the_client_that_holds_most_loses_its_oldest_connections() -> None:
    answers = UnsentAnswers(100)
    other = Connection("other", 30)
    greedy = [Connection("greedy", 20) for _ in range(5)]
    for each in (other, *greedy):
        answers.note(each, each.size)
    assert other.is_open
    assert [each.is_open for each in greedy] == [False, False, True, True, True]


def test_a_connection_that_is_noted_again_stays_as_old_as_it_is() -> None:
    answers = UnsentAnswers(100)
    first, second, third = (Connection("a", 40) for _ in range(3))
    for each in (first, second, first, third):
        answers.note(each, each.size)
    assert [each.is_open for each in (first, second, third)] == [False, True, True]


def test_what_was_sent_meanwhile_does_not_count() -> None:
    answers = UnsentAnswers(100)
    first, second, third = (Connection("a", 50) for _ in range(3))
    answers.note(first, 50)
    answers.note(second, 50)
    first.size = 0  # It has taken all since its size was noted.
    answers.note(third, 50)
    assert all(each.is_open for each in (first, second, third))
    answers.note(second, 0)
    answers.note(third, 0)
    assert answers._total == 0
    assert not answers._sizes
