"""How C of the baseline is chosen."""

import numpy as np
import pytest
from numpy.typing import NDArray

from headwise.tasks.classification.baseline import choose_strength

pytest.importorskip("sklearn")


def chosen(features: object, labels: list[int], input_: str = "images") -> tuple[float, str]:
    return choose_strength(features, np.array(labels), input_, lambda *_: None)


def noisy(count: int, classes: int) -> tuple[NDArray[np.float64], list[int]]:
    """Draw points around the one of each class, half of which have another's label."""
    generator = np.random.default_rng(1)
    labels = generator.integers(0, classes, count)
    points = 3 * np.eye(classes, 30)[labels] + generator.standard_normal((count, 30))
    wrong = generator.random(count) < 0.5
    return points, np.where(wrong, generator.integers(0, classes, count), labels).tolist()


def test_it_is_the_most_accurate_in_cross_validation() -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    points, labels = noisy(300, 3)
    found, said = chosen(points, labels)
    shuffled = np.random.default_rng(0).permutation(300)
    accuracies = {
        strength: cross_val_score(
            LogisticRegression(C=strength, max_iter=1_000),
            points[shuffled],
            np.array(labels)[shuffled],
            cv=StratifiedKFold(3),
        ).mean()
        for strength in (0.0003, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0)
    }
    assert accuracies[found] >= max(accuracies.values()) - 0.01
    assert said == f"C = {found:g}"


def test_a_class_of_one_example_does_not_prevent_it() -> None:
    points, labels = noisy(300, 3)
    with_another = np.concatenate([points, np.full((1, 30), 9.0)])
    assert "not chosen" not in chosen(with_another, [*labels, 3])[1]


def test_texts_choose_too_and_an_edge_is_said() -> None:
    texts = [f"{word} {number}" for number in range(30) for word in ("good", "bad")]
    assert chosen(texts, [0, 1] * 30, "text") == (1.0, "C = 1 (the smallest tried)")


@pytest.mark.parametrize("labels", [[0, 1], [0, 1, 2, 0, 0], [0, 0, 0]])
def test_where_it_is_impossible_that_is_said(labels: list[int]) -> None:
    points = np.random.default_rng(1).standard_normal((len(labels), 3))
    assert chosen(points, labels) == (1.0, "C = 1, not chosen: there are too few examples")
