"""What training needs of a task. Nothing in this folder knows a particular one."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn

from headwise.config import AnyConfig, Vocab
from headwise.data import TokenShards
from headwise.data.batches import Batches, Field, Rows
from headwise.files import Folder
from headwise.training.distributed import World

Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, how much of it is done, and of how much if that is known."""


class Source(Protocol):
    """The files that a run is trained on."""

    def describe(self) -> list[Any]:
        """Return names, sizes and settings as JSON holds them: what the files are recognised by."""
        ...


class PreparedReport(Protocol):
    """What became of a task's files."""

    def lines(self) -> list[str]:
        """Say it in sentences: what there is to train on, what was left out and why."""
        ...


class Evaluator(Protocol):
    """Named numbers on the validation data, besides the loss."""

    @property
    def score(self) -> str:
        """The number that decides which checkpoint is best, the higher the better.

        Empty where the loss decides.
        """
        ...

    def measure(self, model: nn.Module, nll: float, world: World) -> dict[str, float]:
        """Return the numbers. `nll` is the negative log-likelihood of all targets, in nats."""
        ...


@dataclass(frozen=True, kw_only=True)
class ValidationData:
    """What a task's evaluator looks at."""

    shards: TokenShards
    batches: Batches
    folder: Folder
    """The run directory, or prepared data: where the tokenizer is."""


class Task(Protocol):
    """One kind of work: from the user's files to a trained model."""

    name: str
    fields: tuple[Field, ...]
    """The streams of an example. The last is what the model predicts."""
    unit: str
    """What an example is called, in the plural: "pairs", "blocks", ..."""

    def prepare(
        self,
        source: Any,
        config: AnyConfig,
        directory: Path,
        *,
        valid: Any | None,
        lenient: bool,
        processes: int | None,
        tokenizer_from: Folder | None,
        on_progress: Progress,
    ) -> PreparedReport:
        """Write prepared data: `tokenizer/`, `train/`, `valid/` and `report.json`.

        With `tokenizer_from`, another run's tokenizer is used instead of learning one; of another
        task's, for a task that `StartsFromOthers`, what both have.
        """
        ...

    def vocab(self, config: AnyConfig, folder: Folder | None) -> Vocab:
        """Read the vocabulary from the tokenizer of prepared data or of a run.

        Without a folder, return the one that the config asks for.
        """
        ...

    def objective(self, model: nn.Module, config: AnyConfig) -> nn.Module:
        """Join the model and its loss: `forward(*batch) -> (LossSums, count)`.

        Sums, not means: they are divided by the targets of all batches of an update, so that
        accumulated gradients equal those of one large batch.
        """
        ...

    def collate(self, rows: Rows, vocab: Vocab, key: tuple[int, int]) -> tuple[Tensor, ...]:
        """Lay examples out as a batch, and check it.

        Anything random follows from the key, (seed, epoch), and the examples alone.
        """
        ...

    def example_batch(self, config: AnyConfig, vocab: Vocab, tokens: int) -> tuple[Tensor, ...]:
        """Make up a batch of about so many tokens, to time the model where there is no data."""
        ...

    def evaluator(self, data: ValidationData, config: AnyConfig) -> Evaluator:
        """Return what measures the model on validation data."""
        ...


@runtime_checkable
class CompletesConfig(Protocol):
    """A task that fills in settings which the config leaves empty."""

    def complete(
        self, config: AnyConfig, source: Any | None, before: AnyConfig | None
    ) -> AnyConfig:
        """Fill them in from the files, or from the run as it was created before."""
        ...


@runtime_checkable
class StartsFromOthers(Protocol):
    """A task whose models can start from the weights of another task's."""

    starts_from: Mapping[str, tuple[str, ...]]
    """For each such task, how the names of the parameters begin that it does not have. All others
    must be there, and have the same shapes."""


@runtime_checkable
class RenewsOutputs(Protocol):
    """A task whose models can start from one of its own that has other outputs."""

    def renewed(self, first: Folder, own: Folder) -> tuple[str, ...]:
        """Return how the names of the parameters begin that are not taken over, if any.

        `first` is the run to start from, `own` the new run or its prepared data.
        """
        ...


@runtime_checkable
class AugmentsTraining(Protocol):
    """A task that changes training examples at random, anew in each epoch."""

    def augment(self, rows: Rows, config: AnyConfig, key: tuple[int, int]) -> Rows:
        """Change the examples of a batch. How, follows from the key, (seed, epoch), and them."""
        ...


@runtime_checkable
class RecordsOrigin(Protocol):
    """A task that stores facts about its training data in the run."""

    def origin(self, train: TokenShards) -> dict[str, Any]:
        """Return what origin.json is to say besides the names of the files."""
        ...
