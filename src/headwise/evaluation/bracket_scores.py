"""Bracket scores of a whole test set: EVALB's summary, by length and by label, with an interval."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from headwise.evaluation.bracket_parameters import COLLINS, BracketParameters
from headwise.evaluation.brackets import (
    LabelCounts,
    SentenceScore,
    Status,
    percentage,
    score_sentence,
)
from headwise.evaluation.corpus import read_parallel
from headwise.evaluation.resampling import RESAMPLES, SEED, Interval, bootstrap
from headwise.evaluation.tree_lines import TreeLine, read_tree_line

LENGTHS = (10, 20, 30, 40)
"""The longest sentences of each row of a table by length; a last row has the rest."""

_MOST_REASONS = 3
"""How many sentences that are not scored are listed in a note."""

_PROGRESS_EVERY = 1000


@dataclass(frozen=True, kw_only=True)
class BracketSummary:
    """A block of EVALB's summary: counts and percentages of some sentences.

    Sentences with errors and skipped ones are in none of the percentages.
    """

    sentences: int
    errors: int
    skipped: int
    matched: int
    gold: int
    test: int
    crossing: int
    words: int
    correct_tags: int
    complete: int
    without_crossing: int
    up_to_2_crossing: int

    @classmethod
    def of(cls, rows: Sequence[SentenceScore]) -> Self:
        """Add up the sentences' counts."""
        scored = [row for row in rows if row.status == "ok"]
        return cls(
            sentences=len(rows),
            errors=sum(row.status == "error" for row in rows),
            skipped=sum(row.status == "skip" for row in rows),
            matched=sum(row.matched for row in scored),
            gold=sum(row.gold for row in scored),
            test=sum(row.test for row in scored),
            crossing=sum(row.crossing for row in scored),
            words=sum(row.words for row in scored),
            correct_tags=sum(row.correct_tags for row in scored),
            complete=sum(row.is_complete for row in scored),
            without_crossing=sum(row.crossing == 0 for row in scored),
            up_to_2_crossing=sum(row.crossing <= 2 for row in scored),
        )

    @property
    def scored(self) -> int:
        """The sentences that count."""
        return self.sentences - self.errors - self.skipped

    @property
    def recall(self) -> float:
        """The percentage of gold brackets that were found."""
        return percentage(self.matched, self.gold)

    @property
    def precision(self) -> float:
        """The percentage of test brackets that are right."""
        return percentage(self.matched, self.test)

    @property
    def f1(self) -> float:
        """The harmonic mean of recall and precision."""
        return f1(self.recall, self.precision)

    @property
    def complete_match(self) -> float:
        """The percentage of sentences with all brackets right."""
        return percentage(self.complete, self.scored)

    @property
    def average_crossing(self) -> float:
        """How many test brackets of a sentence cross one of the gold tree."""
        return self.crossing / self.scored if self.scored else 0.0

    @property
    def no_crossing(self) -> float:
        """The percentage of sentences without crossing brackets."""
        return percentage(self.without_crossing, self.scored)

    @property
    def two_or_less_crossing(self) -> float:
        """The percentage of sentences with at most two crossing brackets."""
        return percentage(self.up_to_2_crossing, self.scored)

    @property
    def tagging_accuracy(self) -> float:
        """The percentage of words with the right tag."""
        return percentage(self.correct_tags, self.words)

    def to_dict(self) -> dict[str, object]:
        """Return counts and percentages as JSON values."""
        return {
            **asdict(self),
            "scored": self.scored,
            "recall": self.recall,
            "precision": self.precision,
            "f1": self.f1,
            "complete_match": self.complete_match,
            "average_crossing": self.average_crossing,
            "no_crossing": self.no_crossing,
            "two_or_less_crossing": self.two_or_less_crossing,
            "tagging_accuracy": self.tagging_accuracy,
        }


@dataclass(frozen=True, kw_only=True)
class LabelScore:
    """How well the brackets of one label were found.

    Where labels count as the same, a match may have another label on the other side.
    """

    label: str
    gold: int
    test: int
    matched_gold: int
    matched_test: int

    @property
    def recall(self) -> float:
        """The percentage of gold brackets with this label that were found."""
        return percentage(self.matched_gold, self.gold)

    @property
    def precision(self) -> float:
        """The percentage of test brackets with this label that are right."""
        return percentage(self.matched_test, self.test)

    @property
    def f1(self) -> float:
        """The harmonic mean of recall and precision."""
        return f1(self.recall, self.precision)

    def to_dict(self) -> dict[str, object]:
        """Return counts and percentages as JSON values."""
        percentages = {"recall": self.recall, "precision": self.precision, "f1": self.f1}
        return {**asdict(self), **percentages}


@dataclass(frozen=True, kw_only=True)
class LengthScore:
    """The sentences of some lengths."""

    shortest: int
    longest: int | None
    """None if there is no limit."""
    summary: BracketSummary

    def to_dict(self) -> dict[str, object]:
        """Return the lengths with their counts and percentages as JSON values."""
        lengths = {"shortest": self.shortest, "longest": self.longest}
        return {**lengths, **self.summary.to_dict()}


@dataclass(frozen=True, kw_only=True)
class BracketScores:
    """The bracket scores of one parser's trees."""

    rows: tuple[SentenceScore, ...]
    overall: BracketSummary
    cutoff: int
    short: BracketSummary
    """The sentences of at most `cutoff` words."""
    interval: Interval | None
    """Of the F1 of all scored sentences; None if there are none."""
    labels: tuple[LabelScore, ...]
    """The most frequent of the gold trees first."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Why the figures may mislead, a sentence each; usually none."""
        notes = []
        reasons = [
            f"line {number:,}: {row.reason}"
            for number, row in enumerate(self.rows, start=1)
            if row.status != "ok"
        ]
        if reasons:
            listed = reasons[:_MOST_REASONS]
            if len(reasons) > len(listed):
                listed.append(f"and {len(reasons) - len(listed):,} more")
            notes.append(
                f"{len(reasons):,} of {len(self.rows):,} sentences were not scored: "
                + "; ".join(listed)
            )
        if any(score.label == "" for score in self.labels):
            notes.append(
                "brackets without a label, as in ( (S …)), count like others, as in EVALB: remove "
                "them from both files"
            )
        return tuple(notes)

    def by_length(self, limits: Sequence[int] = LENGTHS) -> tuple[LengthScore, ...]:
        """Score sentences by length; each limit, in ascending order, ends a group."""
        found = []
        shortest = 0
        for longest in (*limits, None):
            rows = [
                row
                for row in self.rows
                if shortest <= row.length and (longest is None or row.length <= longest)
            ]
            summary = BracketSummary.of(rows)
            found.append(LengthScore(shortest=shortest, longest=longest, summary=summary))
            shortest = (longest or 0) + 1
        return tuple(found)


def f1(recall: float, precision: float) -> float:
    """Return the harmonic mean of recall and precision; 0 if both are 0."""
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def score_trees(
    pairs: Iterable[tuple[TreeLine, TreeLine]],
    parameters: BracketParameters = COLLINS,
    *,
    resamples: int = RESAMPLES,
) -> BracketScores:
    """Score pairs of gold and test trees; without `resamples` there is no interval."""
    counts = LabelCounts()
    rows = [_score_pair(gold, test, parameters, counts) for gold, test in pairs]
    short = [row for row in rows if row.length <= parameters.cutoff]
    return BracketScores(
        rows=tuple(rows),
        overall=BracketSummary.of(rows),
        cutoff=parameters.cutoff,
        short=BracketSummary.of(short),
        interval=_interval(rows, resamples),
        labels=_label_scores(counts),
    )


def score_tree_files(
    gold: Path,
    test: Path,
    parameters: BracketParameters = COLLINS,
    *,
    on_progress: Callable[[str, int, int | None], None] = lambda *_: None,
) -> BracketScores:
    """Score a file of test trees against a file of gold trees, line by line."""
    lines = list(zip(*read_parallel(gold, test), strict=True))

    def pairs() -> Iterator[tuple[TreeLine, TreeLine]]:
        for number, (gold_line, test_line) in enumerate(lines):
            if number and number % _PROGRESS_EVERY == 0:
                on_progress("scoring", number, len(lines))
            yield read_tree_line(gold_line), read_tree_line(test_line)

    return score_trees(pairs(), parameters)


def _score_pair(
    gold: TreeLine, test: TreeLine, parameters: BracketParameters, counts: LabelCounts
) -> SentenceScore:
    fault = (gold.fault and f"gold: {gold.fault}") or (test.fault and f"test: {test.fault}")
    row = score_sentence(gold.trees, test.trees, parameters, labels=None if fault else counts)
    if not fault:
        return row
    status: Status = "skip" if row.status == "skip" else "error"
    return SentenceScore(length=row.length, status=status, reason=fault)


def _interval(rows: Sequence[SentenceScore], resamples: int) -> Interval | None:
    counts = [(row.matched, row.gold, row.test) for row in rows if row.status == "ok"]
    if not counts or not resamples:
        return None
    return bootstrap(np.array(counts), _f1_of_sums, resamples=resamples, key=("brackets", SEED))


def _f1_of_sums(sums: NDArray[np.int64]) -> float:
    matched, gold, test = sums
    return f1(percentage(matched, gold), percentage(matched, test))


def _label_scores(counts: LabelCounts) -> tuple[LabelScore, ...]:
    found = [
        LabelScore(
            label=label,
            gold=counts.gold[label],
            test=counts.test[label],
            matched_gold=counts.matched_gold[label],
            matched_test=counts.matched_test[label],
        )
        for label in {*counts.gold, *counts.test}
    ]
    return tuple(sorted(found, key=lambda score: (-score.gold, -score.test, score.label)))
