"""The confusion matrix of a report."""

import numpy as np

from headwise.evaluation import score_classes, score_labels
from headwise.tasks.classification.report import confusion_of


def test_it_counts_what_was_found_of_each_class() -> None:
    gold = np.array([0, 0, 1, 2, 2, 2])
    probabilities = np.eye(3)[[0, 1, 1, 2, 2, 0]]
    found = confusion_of(score_classes(gold, probabilities, "abc", resamples=0))
    assert found is not None
    assert found.names == ("a", "b", "c")
    assert found.counts == ((1, 1, 0), (0, 1, 0), (1, 0, 2))


def test_of_many_classes_it_has_those_that_are_confused_most() -> None:
    names = [f"class {number}" for number in range(50)]
    gold = np.repeat(np.arange(50), 40)
    answers = gold.copy()
    for number in range(0, 40, 2):  # Each class with an even number below 40 is taken for the next.
        answers[gold == number] = np.where(np.arange(40) <= number // 2, number + 1, number)
    found = confusion_of(score_classes(gold, np.eye(50)[answers], names, resamples=0))
    assert found is not None
    assert found.names == tuple(names[20:40])
    assert found.counts[0][:2] == (29, 11)
    assert found.about.endswith(": the 20 of 50 classes that are confused most.")


def test_several_labels_have_none() -> None:
    labels = np.array([[1, 0], [1, 1]])
    assert confusion_of(score_labels(labels, labels * 0.9, "ab", resamples=0)) is None
