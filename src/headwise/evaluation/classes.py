"""Scores of classifiers: labels and probabilities in, numbers out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headwise.evaluation.resampling import RESAMPLES, SEED, Interval
from headwise.seeding import keyed_generator

_BINS = 10
"""Of the calibration error: probabilities from 0 to 0.1, and so on."""

Labels = NDArray[np.int64]
Probabilities = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ClassScore:
    """How well one class was found."""

    name: str
    precision: float
    recall: float
    f1: float
    gold: int
    """How many examples are in it."""
    found: int
    """How many were put into it."""


@dataclass(frozen=True, kw_only=True)
class ClassScores:
    """How well the classes of examples were found. Shares are from 0 to 1."""

    examples: int
    accuracy: float
    """The share of examples all of whose labels were found, and no others."""
    macro_f1: float
    """The mean F1 of the classes that examples are in or were put into."""
    weighted_f1: float
    """The mean F1 of the classes, each weighted by how many examples are in it."""
    micro_f1: float
    """F1 of all labels together; the accuracy, if every example has one label."""
    calibration_error: float
    """By how much the probability of an answer differs from how often such answers are right."""
    accuracy_interval: Interval | None
    macro_f1_interval: Interval | None
    classes: tuple[ClassScore, ...]
    confusion: tuple[tuple[int, int, int], ...] | None
    """The numbers of two classes, gold and found, and how many examples have them, where any have;
    None where an example may have several labels."""


def score_classes(
    gold: Labels,  # [N]
    probabilities: Probabilities,  # [N, C]
    names: Sequence[str],
    *,
    resamples: int = RESAMPLES,
) -> ClassScores:
    """Score examples with a single label each; the most probable class is the answer.

    Intervals are of the bootstrap over examples. Drawing examples with replacement draws the cells
    of the confusion matrix from a multinomial distribution, which takes less time.
    """
    count, num_classes = probabilities.shape
    found = probabilities.argmax(1)
    cells, counts = np.unique(gold * num_classes + found, return_counts=True)
    golds, founds = np.divmod(cells, num_classes)
    confusion = _Confusion(golds, founds, num_classes)
    accuracy_interval = macro_interval = None
    if resamples and count:
        generator = keyed_generator("bootstrap of classes", SEED, count)
        shares = counts / count
        drawn = [generator.multinomial(count, shares) for _ in range(resamples)]
        accuracy_interval = _interval([each[golds == founds].sum() / count for each in drawn])
        macro_interval = _interval([confusion.macro_f1(each) for each in drawn])
    right, gold_counts, found_counts = confusion.totals(counts)
    classes = _class_scores(names, right=right, gold=gold_counts, found=found_counts)
    accuracy = _share(right.sum(), count)
    return ClassScores(
        examples=count,
        accuracy=accuracy,
        macro_f1=confusion.macro_f1(counts),
        weighted_f1=_share(math.fsum(each.f1 * each.gold for each in classes), count),
        micro_f1=accuracy,
        calibration_error=_calibration_error(probabilities.max(1, initial=0.0), found == gold),
        accuracy_interval=accuracy_interval,
        macro_f1_interval=macro_interval,
        classes=classes,
        confusion=tuple(zip(golds.tolist(), founds.tolist(), counts.tolist(), strict=True)),
    )


def score_labels(
    gold: Labels,  # [N, C]
    probabilities: Probabilities,  # [N, C]
    names: Sequence[str],
    *,
    threshold: float = 0.5,
    resamples: int = RESAMPLES,
) -> ClassScores:
    """Score examples with any number of labels each: 1 for each class that an example is in.

    Every class that is at least as probable as the threshold is an answer.
    """
    count = len(gold)
    is_gold, is_found = gold > 0, probabilities >= threshold
    right = is_gold & is_found
    totals = [part.sum(0) for part in (right, is_gold, is_found)]
    classes = _class_scores(names, right=totals[0], gold=totals[1], found=totals[2])
    present = [each.f1 for each in classes if each.gold or each.found]
    all_right = (is_gold == is_found).all(1)
    accuracy_interval = None
    if resamples and count:
        generator = keyed_generator("bootstrap of labels", SEED, count)
        share = float(all_right.mean())
        accuracy_interval = _interval(
            (generator.binomial(count, share, size=resamples) / count).tolist()
        )
    num_right, num_gold, num_found = (int(part.sum()) for part in totals)
    confidences = np.where(is_found, probabilities, 1 - probabilities)
    return ClassScores(
        examples=count,
        accuracy=_share(all_right.sum(), count),
        macro_f1=float(np.mean(present)) if present else 0.0,
        weighted_f1=_share(math.fsum(each.f1 * each.gold for each in classes), num_gold),
        micro_f1=_share(2 * num_right, num_gold + num_found),
        calibration_error=_calibration_error(
            confidences.flatten(), (is_gold == is_found).flatten()
        ),
        accuracy_interval=accuracy_interval,
        macro_f1_interval=None,
        classes=classes,
        confusion=None,
    )


def paired_difference(first: Sequence[bool], second: Sequence[bool]) -> tuple[float, float]:
    """Return by how much the share of right answers differs, and the margin of its 95 % interval.

    Both answered the same questions. The interval is the normal one for paired answers.
    """
    differences = np.array(first, dtype=np.int64) - np.array(second, dtype=np.int64)
    if not len(differences):
        return 0.0, 0.0
    return float(differences.mean()), 1.96 * float(differences.std()) / math.sqrt(len(differences))


@dataclass(frozen=True)
class _Confusion:
    """The cells of a confusion matrix that examples are in."""

    golds: Labels
    founds: Labels
    num_classes: int

    def totals(self, counts: Labels) -> tuple[Labels, Labels, Labels]:
        """Return for each class how many were right, how many are in it and were put into it."""
        right = np.where(self.golds == self.founds, counts, 0)
        return (
            self._sums(self.golds, right),
            self._sums(self.golds, counts),
            self._sums(self.founds, counts),
        )

    def macro_f1(self, counts: Labels) -> float:
        """Return the mean F1 of the classes that occur."""
        right, gold, found = self.totals(counts)
        both = gold + found
        occurs = both > 0
        return float((2 * right[occurs] / both[occurs]).mean()) if occurs.any() else 0.0

    def _sums(self, classes: Labels, counts: Labels) -> Labels:
        sums = np.bincount(classes, weights=counts, minlength=self.num_classes)
        return sums.astype(np.int64)


def _class_scores(
    names: Sequence[str], *, right: Labels, gold: Labels, found: Labels
) -> tuple[ClassScore, ...]:
    return tuple(
        ClassScore(
            name=name,
            precision=_share(num_right, num_found),
            recall=_share(num_right, num_gold),
            f1=_share(2 * num_right, num_gold + num_found),
            gold=num_gold,
            found=num_found,
        )
        for name, num_right, num_gold, num_found in zip(
            names, right.tolist(), gold.tolist(), found.tolist(), strict=True
        )
    )


def _calibration_error(confidences: Probabilities, right: NDArray[np.bool_]) -> float:
    """Return the expected calibration error, over bins of equal width (Guo et al., 2017)."""
    bins = np.minimum((confidences * _BINS).astype(np.int64), _BINS - 1)
    sums = [np.bincount(bins, weights=each, minlength=_BINS) for each in (confidences, right)]
    return _share(float(np.abs(sums[0] - sums[1]).sum()), len(confidences))


def _interval(scores: Sequence[float]) -> Interval:
    ordered = np.sort(scores)
    tail = len(ordered) // 40  # 2.5 % on either side.
    margin = (ordered[len(ordered) - tail - 1] - ordered[tail]) / 2
    return Interval(mean=float(ordered.mean()), margin=float(margin))


def _share(part: float, whole: float) -> float:
    return float(part) / whole if whole else 0.0
