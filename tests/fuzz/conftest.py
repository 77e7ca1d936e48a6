"""How long fuzzing runs: a few fixed inputs with `make test`, minutes of random ones otherwise."""

import os
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

settings.register_profile(
    "fuzz",
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example],
)

_ROUND = 500
"""Random inputs of one round; rounds are repeated until the time is over."""


class Fuzz(Protocol):
    """The `fuzz` fixture: call a target with inputs, quickly or for some minutes."""

    def __call__(
        self, values: st.SearchStrategy[Any], target: Callable[[Any], object], *, examples: int = 30
    ) -> None: ...


class FuzzMachine(Protocol):
    """The `fuzz_machine` fixture: the same for a state machine."""

    def __call__(self, machine: type[RuleBasedStateMachine], *, examples: int) -> None: ...


_QUICK_OR_TIMED = ["quick", pytest.param("timed", marks=pytest.mark.slow)]


@pytest.fixture
def long_inputs() -> Iterator[None]:
    """Let Hypothesis print inputs of any length: it warns of long ones, and warnings are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", HypothesisWarning)
        yield


@pytest.fixture(params=_QUICK_OR_TIMED)
def fuzz(request: pytest.FixtureRequest, long_inputs: None) -> Fuzz:
    def run(
        values: st.SearchStrategy[Any], target: Callable[[Any], object], *, examples: int = 30
    ) -> None:
        if request.param == "quick":
            _quick(examples)(given(values)(_printed(target)))()
            return
        clock = _Clock()
        while not clock.is_over():
            _timed()(given(values)(_printed(clock.until_over(target))))()

    return run


@pytest.fixture(params=_QUICK_OR_TIMED)
def fuzz_machine(request: pytest.FixtureRequest, long_inputs: None) -> FuzzMachine:
    def run(machine: type[RuleBasedStateMachine], *, examples: int) -> None:
        if request.param == "quick":
            run_state_machine_as_test(machine, settings=_quick(examples))
            return
        clock = _Clock()
        while not clock.is_over():
            run_state_machine_as_test(machine, settings=settings(_timed(), max_examples=10))

    return run


def _quick(examples: int) -> settings:
    """The same inputs in every run: a change of the code alone can make it fail."""
    profile = settings.get_profile("fuzz")
    return settings(profile, derandomize=True, max_examples=examples, stateful_step_count=8)


def _timed() -> settings:
    return settings(settings.get_profile("fuzz"), max_examples=_ROUND, stateful_step_count=30)


def _printed(target: Callable[[Any], object]) -> Callable[[Any], None]:
    """Let a target print its whole input when it fails, and return nothing."""

    def fuzzed(value: Any) -> None:
        note(f"input: {value!r}")
        target(value)

    return fuzzed


class _Clock:
    """FUZZ_MINUTES from its making."""

    def __init__(self) -> None:
        self._end = time.monotonic() + 60 * float(os.environ.get("FUZZ_MINUTES", "1"))

    def is_over(self) -> bool:
        return time.monotonic() >= self._end

    def until_over(self, target: Callable[[Any], object]) -> Callable[[Any], object]:
        """Do nothing once the time is over, unless a failure has been found and is being shrunk."""
        failed = False

        def run(value: Any) -> None:
            nonlocal failed
            if self.is_over() and not failed:
                return
            try:
                target(value)
            except BaseException:
                failed = True
                raise

        return run
