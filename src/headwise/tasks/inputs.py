"""How a task's files are named on the command line.

`headwise --help` must not import torch, so a task describes its options here, apart from the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from headwise.training.task import Source


@dataclass(frozen=True, kw_only=True)
class InputOption:
    """An option that names files, or says what is in them."""

    flag: str
    name: str
    """The key of its value."""
    help: str
    kind: Literal["path", "paths", "text", "columns", "flag"] = "path"
    """A path; any number of paths; a word; two column numbers as in 1,2; or whether it is there."""
    default: str | None = None
    choices: tuple[str, ...] = ()
    """What a word may be."""


class TaskInputs(Protocol):
    """The options of a task, and what they mean."""

    options: tuple[InputOption, ...]
    """Those of `headwise train` and `headwise prepare`."""
    needed: str
    """What a new run needs, and the options that name it."""
    evaluation_options: tuple[InputOption, ...]
    """Those of `headwise evaluate`, for a task that `EvaluatesFiles`."""

    def training(self, values: Mapping[str, Any]) -> "Source | None":
        """Return the files to train on that the options name, if they name any."""
        ...

    def validation(self, values: Mapping[str, Any]) -> "Source | None":
        """Return the files to validate on."""
        ...


@runtime_checkable
class SaysWhatIsGiven(Protocol):
    """Options whose first one alone does not tell that files of this kind are given."""

    def given(self, values: Mapping[str, Any]) -> str:
        """Return the flag that tells it; nothing if there are no such files."""
        ...


def given_flag(inputs: TaskInputs, values: Mapping[str, Any]) -> str:
    """Return the flag that names files to train on of this kind; nothing if none does."""
    if isinstance(inputs, SaysWhatIsGiven):
        return inputs.given(values)
    first = inputs.options[0]
    return first.flag if values.get(first.name) not in (None, ()) else ""


def paths(values: Mapping[str, Any], name: str) -> tuple[Path, ...]:
    """Return the paths given by an option of that kind."""
    return tuple(values.get(name) or ())
