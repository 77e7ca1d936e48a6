"""The classes of a classifier in a fixed order: a label's id is its place there."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from headwise.config import FEWEST_CLASSES
from headwise.data.tokenizer import load_table
from headwise.errors import DataError
from headwise.files import Folder

LABEL = "label"
"""What the stream of classes is called, in the tokenizer and in the shards."""

_MOST_CLASSES = 10_000
_LONGEST_NAME = 1_000


class Classes:
    """The names of the classes."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._ids = {name: number for number, name in enumerate(self.names)}

    @classmethod
    def of(cls, counts: Counter[str], unit: str) -> Self:
        """Order the labels that were counted."""
        if len(counts) < FEWEST_CLASSES:
            found = ", ".join(map(repr, counts)) or "none"
            raise DataError(f"the {unit} have {len(counts)} class ({found}): give at least two")
        if len(counts) > _MOST_CLASSES:
            raise DataError(
                f"the {unit} have {len(counts):,} different labels, more than {_MOST_CLASSES:,}: "
                "is this the right column?"
            )
        return cls(_in_order(counts))

    @classmethod
    def load(cls, folder: Path | Folder) -> Self:
        """Load the classes of prepared data or of a run."""
        table = load_table(folder, LABEL)
        try:
            return cls(_read_names(table))
        except ValueError as error:
            path = Folder.of(folder).path / "tokenizer" / f"{LABEL}.json"
            raise DataError(f"{path}: {error}") from error

    def __len__(self) -> int:
        """Return how many classes there are."""
        return len(self.names)

    def table(self) -> dict[str, object]:
        """Return what is stored of them."""
        return {"classes": self.names}

    def label_id(self, label: str, place: str) -> int:
        """Return the id of a label; one that is no class is a DataError."""
        if label not in self._ids:
            raise DataError(
                f"{place}: the label {label!r:.80} is not in the training data, which has "
                f"{_some(self.names)}"
            )
        return self._ids[label]


def _in_order(counts: Mapping[str, int]) -> list[str]:
    """Order classes by name; numbers by their value."""
    if all(name.isdecimal() and len(name) < 10 for name in counts):
        return sorted(counts, key=lambda name: (int(name), name))
    return sorted(counts)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name)[:40] for name in names[:8])
    return shown if len(names) <= 8 else f"{shown} and {len(names) - 8:,} more"


def _read_names(table: object) -> list[str]:
    """Check what label.json holds; ValueError says what is wrong with it."""
    if not isinstance(table, Mapping) or set(table) != {"classes"}:
        raise ValueError("not a table of classes")
    names = table["classes"]
    if not isinstance(names, list) or not FEWEST_CLASSES <= len(names) <= _MOST_CLASSES:
        raise ValueError(f"its classes are not a list of {FEWEST_CLASSES} to {_MOST_CLASSES:,}")
    for name in names:
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or "\0" in name:
            raise ValueError(f"{name!r:.40} is not the name of a class")
        if name != " ".join(name.split()) or any("\ud800" <= c <= "\udfff" for c in name):
            raise ValueError(f"{name!r:.40} is not the name of a class")
    if len(set(names)) < len(names):
        raise ValueError("a class is listed twice")
    return names
