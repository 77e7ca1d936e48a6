"""Word and character error rates: edits that make one sequence of another (Levenshtein, 1966)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headwise.evaluation.resampling import RESAMPLES, SEED, Interval, bootstrap

Operation = Literal["equal", "substitute", "delete", "insert"]


class Edit(NamedTuple):
    """A pair of an alignment. What was inserted has no reference, what was deleted no output."""

    operation: Operation
    reference: str
    output: str


class EditCounts(NamedTuple):
    """The fewest edits that make the outputs of the references, by kind."""

    substitutions: int
    deletions: int
    insertions: int
    reference: int
    """How many words or characters the references have."""

    @property
    def edits(self) -> int:
        """All of them."""
        return self.substitutions + self.deletions + self.insertions

    @property
    def rate(self) -> float:
        """Edits for each word or character of the references; more than 1 if there are more."""
        if not self.reference:
            return float(self.edits > 0)
        return self.edits / self.reference


@dataclass(frozen=True, kw_only=True)
class TextErrors:
    """How outputs differ from their references. Shares and rates are from 0, and 1 is all."""

    examples: int
    exact: float
    """The share of outputs that are their references."""
    words: EditCounts
    characters: EditCounts
    exact_interval: Interval | None
    word_interval: Interval | None
    character_interval: Interval | None


def align(reference: Sequence[str], output: Sequence[str]) -> list[Edit]:
    """Return an alignment with the fewest edits; where there are several, pairs come late."""
    distances = _distances(reference, output)
    edits: list[Edit] = []
    row, column = len(reference), len(output)
    while row or column:
        here = distances[row, column]
        if row and column:
            is_equal = reference[row - 1] == output[column - 1]
            if here == distances[row - 1, column - 1] + (not is_equal):
                row, column = row - 1, column - 1
                operation: Operation = "equal" if is_equal else "substitute"
                edits.append(Edit(operation, reference[row], output[column]))
                continue
        if row and here == distances[row - 1, column] + 1:
            row -= 1
            edits.append(Edit("delete", reference[row], ""))
        else:
            column -= 1
            edits.append(Edit("insert", "", output[column]))
    return edits[::-1]


def count_edits(reference: Sequence[str], output: Sequence[str]) -> EditCounts:
    """Count the edits of an alignment."""
    if list(reference) == list(output):
        return EditCounts(0, 0, 0, len(reference))
    operations = [edit.operation for edit in align(reference, output)]
    return EditCounts(
        operations.count("substitute"),
        operations.count("delete"),
        operations.count("insert"),
        len(reference),
    )


def score_texts(
    references: Sequence[str], outputs: Sequence[str], *, resamples: int = RESAMPLES
) -> TextErrors:
    """Compare outputs with their references: words as white space parts them, and characters.

    Without resamples, there are no intervals.
    """
    assert references, "there is nothing to score"
    words, characters = (
        np.array(
            [
                count_edits(split(one), split(other))
                for one, other in zip(references, outputs, strict=True)
            ],
            dtype=np.int64,
        )
        for split in (_words, _characters)
    )
    exact = np.array(
        [[one == other, 1] for one, other in zip(references, outputs, strict=True)], dtype=np.int64
    )
    intervals: list[Interval | None] = [None, None, None]
    if resamples:
        intervals = [
            bootstrap(counts, score, resamples=resamples, key=("edits", SEED, name))
            for name, counts, score in (
                ("exact", exact, _share),
                ("words", words, _rate),
                ("characters", characters, _rate),
            )
        ]
    return TextErrors(
        examples=len(references),
        exact=_share(exact.sum(0)),
        words=EditCounts(*words.sum(0).tolist()),
        characters=EditCounts(*characters.sum(0).tolist()),
        exact_interval=intervals[0],
        word_interval=intervals[1],
        character_interval=intervals[2],
    )


def _words(text: str) -> list[str]:
    return text.split()


def _characters(text: str) -> list[str]:
    return list(text)


def _share(counts: NDArray[np.int64]) -> float:
    return float(counts[0] / counts[1])


def _rate(counts: NDArray[np.int64]) -> float:
    return EditCounts(*counts.tolist()).rate


def _distances(reference: Sequence[str], output: Sequence[str]) -> NDArray[np.int32]:
    """Return the fewest edits from each beginning of the one to each of the other, [R+1, O+1]."""
    numbers = {each: number for number, each in enumerate({*reference, *output})}
    rows = np.array([numbers[each] for each in reference], dtype=np.int64)
    columns = np.array([numbers[each] for each in output], dtype=np.int64)
    places = np.arange(len(output) + 1, dtype=np.int32)
    distances = np.empty((len(reference) + 1, len(output) + 1), dtype=np.int32)
    distances[0] = places
    for number, each in enumerate(rows, start=1):
        above = distances[number - 1]
        row = above + 1
        row[1:] = np.minimum(row[1:], above[:-1] + (columns != each))
        # Insertions go along the row, any number of them: a running minimum, each step one more.
        distances[number] = np.minimum.accumulate(row - places) + places
    return distances
