"""Scores of classifiers against counts by hand and scikit-learn."""

import math

import numpy as np
import pytest
from sklearn import metrics

from headwise.evaluation import class_report, paired_difference, score_classes, score_labels

NAMES = ("cat", "dog", "owl")

GOLD = np.array([0, 0, 0, 1, 1, 2])
PROBABILITIES = np.array(
    [
        [0.9, 0.1, 0.0],
        [0.6, 0.3, 0.1],
        [0.2, 0.8, 0.0],
        [0.1, 0.7, 0.2],
        [0.5, 0.4, 0.1],
        [0.4, 0.35, 0.25],
    ]
)


def test_scores_counted_by_hand() -> None:
    scores = score_classes(GOLD, PROBABILITIES, NAMES)
    assert scores.examples == 6
    assert scores.accuracy == scores.micro_f1 == pytest.approx(3 / 6)
    cat, dog, owl = scores.classes
    assert (cat.gold, cat.found, dog.gold, dog.found, owl.gold, owl.found) == (3, 4, 2, 2, 1, 0)
    assert (cat.precision, cat.recall) == (2 / 4, 2 / 3)
    assert cat.f1 == pytest.approx(4 / 7)
    assert dog.f1 == pytest.approx(1 / 2)
    assert (owl.precision, owl.recall, owl.f1) == (0, 0, 0)
    assert scores.macro_f1 == pytest.approx((4 / 7 + 1 / 2 + 0) / 3)
    assert scores.weighted_f1 == pytest.approx((3 * 4 / 7 + 2 / 2) / 6)
    assert scores.confusion == ((0, 0, 2), (0, 1, 1), (1, 0, 1), (1, 1, 1), (2, 0, 1))


def test_the_calibration_error_counted_by_hand() -> None:
    # The answers' probabilities are 0.9, 0.6, 0.8, 0.7, 0.5 and 0.4, each in a bin of its own.
    expected = (0.1 + 0.4 + 0.8 + 0.3 + 0.5 + 0.4) / 6
    scores = score_classes(GOLD, PROBABILITIES, NAMES)
    assert scores.calibration_error == pytest.approx(expected)
    sure = score_classes(np.array([0, 1]), np.array([[1.0, 0.0], [0.0, 1.0]]), NAMES[:2])
    assert sure.calibration_error == 0


def test_the_intervals_are_those_of_drawing_examples() -> None:
    generator = np.random.default_rng(3)
    gold = generator.integers(0, 3, 400)
    probabilities = generator.dirichlet((1, 1, 1), 400)
    probabilities[np.arange(400), gold] += 0.5
    scores = score_classes(gold, probabilities, NAMES, resamples=2000)
    found = probabilities.argmax(1)
    drawn = []
    for _ in range(2000):
        rows = generator.integers(0, 400, 400)
        drawn.append(float((found[rows] == gold[rows]).mean()))
    drawn.sort()
    assert scores.accuracy_interval is not None
    assert scores.accuracy_interval.mean == pytest.approx(scores.accuracy, abs=0.005)
    margin = (drawn[1949] - drawn[50]) / 2
    assert scores.accuracy_interval.margin == pytest.approx(margin, rel=0.15)
    assert scores.macro_f1_interval is not None
    assert scores.macro_f1_interval.mean == pytest.approx(scores.macro_f1, abs=0.01)
    again = score_classes(gold, probabilities, NAMES, resamples=2000)
    assert again == scores
    assert score_classes(gold, probabilities, NAMES, resamples=0).accuracy_interval is None


def test_several_labels_counted_by_hand() -> None:
    gold = np.array([[1, 0, 1], [0, 1, 0], [0, 0, 0], [1, 1, 0]])
    probabilities = np.array([[0.9, 0.2, 0.6], [0.1, 0.5, 0.7], [0.4, 0.3, 0.2], [0.8, 0.1, 0.0]])
    scores = score_labels(gold, probabilities, NAMES)
    assert scores.accuracy == 2 / 4
    cat, dog, owl = scores.classes
    assert [cat.f1, dog.f1, owl.f1] == pytest.approx([1, 2 / 3, 2 / 3])
    assert scores.macro_f1 == pytest.approx((1 + 2 / 3 + 2 / 3) / 3)
    assert scores.micro_f1 == pytest.approx(2 * 4 / (5 + 5))
    assert scores.weighted_f1 == pytest.approx((2 * 1 + 2 * 2 / 3 + 2 / 3) / 5)
    assert scores.confusion is None
    assert "all labels right" in class_report(scores)
    assert "micro F1" in class_report(scores)


def test_the_report_has_a_table_by_class_and_the_confusions() -> None:
    report = class_report(score_classes(GOLD, PROBABILITIES, NAMES))
    lines = report.splitlines()
    assert lines[1].split()[:2] == ["accuracy", "50.0"]
    assert "6 examples" in lines
    assert "cat    57.1       50.0    66.7     3      4" in lines
    matrix = lines[lines.index(next(line for line in lines if line.startswith("gold \\ found"))) :]
    assert [line.split() for line in matrix[1:]] == [
        ["cat", "2", "1", "0"],
        ["dog", "1", "1", "0"],
        ["owl", "1", "0", "0"],
    ]


def test_many_classes_are_listed_by_what_was_confused_most() -> None:
    names = [f"class {number}" for number in range(20)]
    gold = np.array([3, 3, 3, 4, 5])
    probabilities = np.eye(20)[[7, 7, 3, 4, 6]]
    report = class_report(score_classes(gold, probabilities, names))
    *_, first, second = report.splitlines()
    assert first.split() == ["class", "3", "class", "7", "2"]
    assert second.split() == ["class", "5", "class", "6", "1"]


def test_a_paired_difference_counted_by_hand() -> None:
    difference, margin = paired_difference([True, True, False, True], [True, False, False, False])
    assert difference == 0.5
    assert margin == pytest.approx(1.96 * math.sqrt((0.25 * 2 + 0.25 * 2) / 4) / math.sqrt(4))
    assert paired_difference([True] * 9, [True] * 9) == (0, 0)
    assert paired_difference([], []) == (0, 0)


def test_scores_are_scikit_learns() -> None:
    generator = np.random.default_rng(5)
    gold = generator.integers(0, 7, 300)
    probabilities = generator.dirichlet(np.ones(7), 300)
    found = probabilities.argmax(1)
    scores = score_classes(gold, probabilities, list("abcdefg"), resamples=0)
    for ours, average in ((scores.macro_f1, "macro"), (scores.weighted_f1, "weighted")):
        assert math.isclose(ours, metrics.f1_score(gold, found, average=average), rel_tol=1e-12)
    labels = (generator.random((300, 5)) < 0.3).astype(int)
    guesses = generator.random((300, 5))
    several = score_labels(labels, guesses, list("abcde"), resamples=0)
    for ours, average in (
        (several.macro_f1, "macro"),
        (several.weighted_f1, "weighted"),
        (several.micro_f1, "micro"),
    ):
        expected = metrics.f1_score(labels, guesses >= 0.5, average=average)
        assert math.isclose(ours, expected, rel_tol=1e-12)
