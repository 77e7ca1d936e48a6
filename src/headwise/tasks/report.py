"""What `headwise report` needs of a task: what to put on the page of one of its runs.

The page itself, with the curves, the recipe, the machine and the attention explorer, is the same
for every task (`headwise.inspect.report_page`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from headwise.runs.directory import RunDirectory
from headwise.training.task import Progress


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number, as it is shown."""

    name: str
    value: str
    more: str = ""
    """What follows in small print: its unit, or its margin."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A text of a sample. Its line breaks are shown."""

    label: str
    text: str
    language: str = ""
    """The code of its language, if known."""
    is_output: bool = False
    """Whether the model wrote it."""
    png: bytes = b""
    """A picture, which the text then describes to people who do not see it."""


@dataclass(frozen=True, kw_only=True)
class Confusion:
    """How many examples of each class were put into each class."""

    names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    """A row for each class that is right, a column for each that was found."""
    about: str


@dataclass(frozen=True, kw_only=True)
class Contents:
    """What a task says about a run. What is left out, the page leaves out.

    All texts are plain and of any origin: the page escapes them. In `about_scores` and `notes`,
    what stands between backticks is set as code.
    """

    does: str
    """What the model does, to continue "A Transformer of 5 million parameters that": for example
    "translates English to German"."""
    title: str = ""
    """The heading of the page, as in "English to German"; by default the name of the run."""
    trained_on: tuple[int, str] | None = None
    """How much it was trained on, and the unit in the plural: (29_000, "pairs of sentences")."""
    scores: tuple[Figure, ...] = ()
    """How it did on a test set, the most important first."""
    about_scores: str = ""
    """What was measured and on what; or, without scores, how to get them."""
    confusion: Confusion | None = None
    """Of a test set, if there are classes."""
    notes: tuple[str, ...] = ()
    """Small print below the scores, a paragraph each."""
    samples: tuple[tuple[Cell, ...], ...] = ()
    """Examples of what the model does; all have cells of the same labels, in the same order."""
    about_samples: str = ""
    """Where the samples are from; or, without any, why there are none."""
    traced: tuple[Any, ...] = ()
    """Texts, or what else the predictor can trace, whose attention is shown."""
    commands: tuple[tuple[str, str], ...] = ()
    """What to do next: why, and the command."""


@runtime_checkable
class ReportsRuns(Protocol):
    """A task that describes its runs."""

    def report_contents(
        self,
        run: RunDirectory,
        predictor: Any,
        values: Mapping[str, Any],
        on_progress: Progress,
    ) -> Contents:
        """Describe a run.

        `predictor` is what the task's `predictor` method loaded. `values` are those of the options
        of `headwise report`: of the task's `evaluation_options`, by their names, and for
        translation `source` and `references`. They name a test set; where they are empty, there is
        none, and samples can be made of the run's own validation text
        (`headwise.runs.data.own_shards`). Files that cannot be used are a HeadwiseError.
        """
        ...
