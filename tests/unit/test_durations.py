import pytest

from headwise.durations import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.0044, "4 ms"),
        (0.25, "250 ms"),
        (1.0, "1 s"),
        (1.44, "1.4 s"),
        (40.2, "40 s"),
        (89.0, "89 s"),
        (90.0, "1.5 min"),
        (180.0, "3 min"),
        (185.0, "3.1 min"),
        (12 * 60.0, "12 min"),
        (3.5 * 3600, "3.5 h"),
        (20 * 3600, "20 h"),
        (20 * 86_400.0, "20 days"),
        (150 * 86_400.0, "5 months"),
        (1e12, "385802 months"),
        (float("inf"), "inf months"),
    ],
)
def test_a_duration_has_one_unit_and_two_digits_or_more(seconds: float, text: str) -> None:
    assert duration(seconds) == text
