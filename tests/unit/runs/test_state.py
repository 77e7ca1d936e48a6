"""What a state.json may contain; others are refused."""

import math

import pytest

from headwise.runs.state import TrainingState


def test_a_state_survives_its_own_dict() -> None:
    state = TrainingState(step=7, tokens=11, minutes=0.5)
    assert TrainingState.from_dict(state.to_dict()) == state


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("batch", -5, "out of range"),
        ("tokens", 2**63, "out of range"),
        ("minutes", math.nan, "out of range"),
        ("minutes", -1.0, "out of range"),
        ("due_minutes", math.inf, "out of range"),
        ("step", 1.0, "not of type int"),
        ("step", True, "not of type int"),
    ],
)
def test_numbers_that_no_training_has_are_refused(key: str, value: object, complaint: str) -> None:
    values = TrainingState().to_dict() | {key: value}
    with pytest.raises(ValueError, match=f"{key} = .* is {complaint}"):
        TrainingState.from_dict(values)
