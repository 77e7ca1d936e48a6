"""Texts as ids, and the names of the classes: the folder `tokenizer` of a classifier."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headwise.config import FEWEST_CLASSES, ClassificationDataConfig, Vocab
from headwise.data import Subwords
from headwise.data.tokenizer import load_stream, load_table, save_streams
from headwise.errors import DataError
from headwise.files import Folder

TEXT, LABEL = "text", "label"
"""What the streams of the tokenizer and of the shards are called."""

_MOST_CLASSES = 10_000
_LONGEST_NAME = 1_000


class EncodedText(NamedTuple):
    """A text as the model reads it."""

    ids: list[int]
    """The class token, subwords, and eos."""
    is_cut: bool
    """Whether the text is longer than what is read."""


class ClassTokenizer:
    """Subwords of texts, and the classes in a fixed order: a label's id is its place there."""

    def __init__(self, subwords: Subwords, classes: Sequence[str]) -> None:
        self.subwords, self.classes = subwords, tuple(classes)
        self._ids = {name: number for number, name in enumerate(self.classes)}

    @classmethod
    def learn(
        cls,
        texts: Iterable[str],
        counts: Counter[str],
        data: ClassificationDataConfig,
        subwords: Subwords | None = None,
    ) -> "ClassTokenizer":
        """Learn subwords from texts, unless they are given; the classes are those counted."""
        if len(counts) < FEWEST_CLASSES:
            names = ", ".join(map(repr, counts)) or "none"
            raise DataError(f"the texts have {len(counts)} class ({names}): give at least two")
        if len(counts) > _MOST_CLASSES:
            raise DataError(
                f"the texts have {len(counts):,} different labels, more than {_MOST_CLASSES:,}: "
                "is this the right column?"
            )
        if subwords is None:
            subwords = Subwords.learn(texts, data, may_be_fewer=True)
        return cls(subwords, _in_order(counts))

    @classmethod
    def load(cls, folder: Path | Folder) -> "ClassTokenizer":
        """Load the tokenizer of prepared data or of a run."""
        table = load_table(folder, LABEL)
        try:
            return cls(load_stream(folder, TEXT), _read_classes(table))
        except ValueError as error:
            path = Folder.of(folder).path / "tokenizer" / f"{LABEL}.json"
            raise DataError(f"{path}: {error}") from error

    def save(self, directory: Path) -> None:
        """Write the tokenizer into a directory that is being made."""
        save_streams(directory, {TEXT: self.subwords}, {LABEL: {"classes": self.classes}})

    @property
    def vocab(self) -> Vocab:
        """The vocabulary of a model."""
        return Vocab(source_size=len(self.subwords), target_size=len(self.classes))

    def encode(self, text: str, longest: int) -> EncodedText:
        """Return the ids of a text, at most `longest` of them."""
        # No subword has so many characters that the cut could change the first ones.
        ids = self.subwords.encode(text[: 64 * longest])
        kept = ids[: longest - 2]
        is_cut = len(kept) < len(ids) or len(text) > 64 * longest
        return EncodedText([Vocab.bos, *kept, Vocab.eos], is_cut)

    def label_id(self, label: str, place: str) -> int:
        """Return the id of a label; one that is no class is a DataError."""
        if label not in self._ids:
            raise DataError(
                f"{place}: the label {label!r:.80} is not in the training texts, which have "
                f"{_some(self.classes)}"
            )
        return self._ids[label]


def _in_order(counts: Mapping[str, int]) -> list[str]:
    """Order classes by name; numbers by their value."""
    if all(name.isdecimal() and len(name) < 10 for name in counts):
        return sorted(counts, key=lambda name: (int(name), name))
    return sorted(counts)


def _some(classes: Sequence[str]) -> str:
    shown = ", ".join(repr(name)[:40] for name in classes[:8])
    return shown if len(classes) <= 8 else f"{shown} and {len(classes) - 8:,} more"


def _read_classes(table: object) -> list[str]:
    """Check what label.json holds; ValueError says what is wrong with it."""
    if not isinstance(table, Mapping) or set(table) != {"classes"}:
        raise ValueError("not a table of classes")
    classes = table["classes"]
    if not isinstance(classes, list) or not FEWEST_CLASSES <= len(classes) <= _MOST_CLASSES:
        raise ValueError(f"its classes are not a list of {FEWEST_CLASSES} to {_MOST_CLASSES:,}")
    for name in classes:
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME or "\0" in name:
            raise ValueError(f"{name!r:.40} is not the name of a class")
        if name != " ".join(name.split()) or any("\ud800" <= c <= "\udfff" for c in name):
            raise ValueError(f"{name!r:.40} is not the name of a class")
    if len(set(classes)) < len(classes):
        raise ValueError("a class is listed twice")
    return classes
