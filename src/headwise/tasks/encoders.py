"""From what a user gives to what the encoder of the model reads, for each kind of input.

An `InputKind` has what follows from the config alone; what it learns from the training data, or
loads from a run, is its `Encoder`. `tasks.vectors` has one of each for images and sounds.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray
from torch import Tensor

from headwise.config import Vocab
from headwise.data import Subwords
from headwise.data.batches import Field
from headwise.data.shards import Floats, Packed
from headwise.files import Folder
from headwise.tasks.tracing import Picture
from headwise.training.task import Progress


class Encoded(NamedTuple):
    """An example as the model reads it."""

    values: NDArray[Any]
    """Ids with the class token first; or vectors, before which the model puts its class token."""
    is_cut: bool = False
    """Whether there is more than is read."""
    changes: tuple[str, ...] = ()
    """What else was done to it that a user should know, as in "resampled to 16,000 Hz"."""


class Encoder(Protocol):
    """A trained way to read examples."""

    @property
    def stored(self) -> int | Floats:
        """What shards hold of an example: ids of so many subwords, or floats."""
        ...

    def vocab(self, target_size: int) -> Vocab:
        """Return the vocabulary of a model with so many outputs."""
        ...

    def save(
        self,
        directory: Path,
        tables: Mapping[str, object],
        subwords: Mapping[str, Subwords] | None = None,
    ) -> None:
        """Write the folder `tokenizer`, the tables or subwords of other streams beside its own."""
        ...

    def given(self, example: Any) -> Any:
        """Read what a user of the predictor gives, or raise RequestError or DataError."""
        ...

    def encode(self, content: Any) -> Encoded:
        """Encode what `InputKind.read` or `given` has returned."""
        ...

    def padded(self, packed: Packed) -> tuple[Tensor, Tensor]:
        """Lay encoded examples out as a batch; return it, and the positions of each."""
        ...

    def tokens(self, encoded: Encoded) -> tuple[str, ...]:
        """Name the positions of an example, for people; without the last of a text, eos."""
        ...

    def picture(self, encoded: Encoded) -> Picture | None:
        """Draw an example that is not text."""
        ...


class InputKind(Protocol):
    """One value of `data.input`."""

    stream: str
    """What its stream is called, in the tokenizer and in the shards."""
    field: Field
    unit: str
    """What examples are called, in the plural."""
    settings: tuple[str, ...]
    """The keys of [data] that stored examples depend on."""
    starts_from: Mapping[str, tuple[str, ...]]
    """As in `headwise.training.task.StartsFromOthers`."""

    def read(self, content: Any, data: Any, place: str) -> Any:
        """Read the content of an example, such as an image of a file, or raise DataError."""
        ...

    def most(self, data: Any) -> str:
        """Say how much is read of an example, as in "512 tokens (data.longest)"."""
        ...

    def fault(self, content: Any) -> str:
        """Say why content that was read cannot be used; nothing if it can."""
        ...

    def identity(self, content: Any) -> str:
        """Return a key that identifies an example, wherever it stands."""
        ...

    def learn(
        self,
        contents: Iterator[Any],
        data: Any,
        seed: int,
        of: Subwords | None,
        on_progress: Progress,
    ) -> Encoder | None:
        """Learn from the contents of all training examples; None if there are none.

        `of` are subwords that are used instead of learning some.
        """
        ...

    def augmented(self, packed: Packed, data: Any, key: tuple[int, int]) -> Packed:
        """Change the examples of a training batch at random; the key and they decide how."""
        ...

    def check_installed(self) -> None:
        """Raise ConfigError if a library that reads such files is not there."""
        ...

    def load(self, folder: Path | Folder, data: Any) -> Encoder:
        """Load what prepared data, or a run, has learned."""
        ...
