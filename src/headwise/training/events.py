"""What training tells whoever watches it."""

from dataclasses import dataclass
from pathlib import Path

from headwise.training.estimate import Estimate
from headwise.training.validation import ValidationResult
from headwise.training.window import Means


@dataclass(frozen=True, kw_only=True)
class Updated:
    """One update has been made."""

    step: int
    epoch: float
    """Passes over the data so far: 1.5 is the middle of the second."""
    minutes: float
    share_done: float
    """How near the nearest limit is, from 0 to 1."""
    means: Means
    """Over the updates since the last logged one."""
    memory_mib: float
    logged: bool
    """Whether this update ended a line of metrics.jsonl."""


@dataclass(frozen=True, kw_only=True)
class Validated:
    """The model has been measured on the validation data."""

    step: int
    result: ValidationResult
    is_best: bool


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A checkpoint has been saved."""

    step: int
    path: Path


@dataclass(frozen=True, kw_only=True)
class Note:
    """Something to be said once, in a sentence."""

    text: str
    is_warning: bool = False


Event = Updated | Validated | Saved | Note | Estimate
