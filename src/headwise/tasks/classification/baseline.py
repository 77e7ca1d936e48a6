"""What a classifier is compared with: logistic regression, by scikit-learn.

Of texts it sees TF-IDF of words and pairs of words; of images, the pixels; of sounds, the mean of
their frames.
"""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.errors import ConfigError, DataError
from headwise.runs.data import own_shards
from headwise.runs.directory import RunDirectory
from headwise.tasks.classification.classifier import Classifier
from headwise.tasks.classification.stored import stored_example, stored_labels
from headwise.tasks.classification.text import TextEncoder
from headwise.tasks.encoders import Encoded, Encoder
from headwise.training.task import Progress

_STRENGTHS = {
    "text": (1.0, 10.0, 100.0, 1_000.0),
    "": (0.0003, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0),
}
"""Values of C to choose from: for texts, and for vectors."""

_WORSE = 2
"""Values in a row that are worse than one before them end the search."""

_WORDS = r"(?u)\w+|[^\w\s]"
"""Words, and each punctuation mark: a question mark says something."""

_FOLDS = 3
_MOST_COMPARED = 10_000
"""Examples that C is chosen with: all of a large set would take minutes."""
_MOST_ITERATIONS = {"text": 1_000, "": 200}


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A trained baseline. It makes the same answers as a Classifier."""

    name: str
    pipeline: Any
    encoder: Encoder
    input: str
    num_classes: int
    seconds: float
    """What choosing C and training took."""

    def probabilities(self, examples: Sequence[Encoded]) -> NDArray[np.float64]:
        """Return the probability of every class [N, C] for each example."""
        found = np.zeros((len(examples), self.num_classes))
        # A class that no training example has is never the answer.
        features = _features(examples, self.encoder, self.input)
        found[:, self.pipeline.classes_] = self.pipeline.predict_proba(features)
        return found


def train_baseline(
    run: Path, classifier: Classifier, on_progress: Progress = lambda *_: None
) -> Baseline:
    """Train on what a run was trained on, as it is stored in its directory.

    C is chosen by cross-validation.
    """
    if find_spec("sklearn") is None:
        raise ConfigError("--baseline needs scikit-learn: pip install 'headwise[baseline]'")
    if classifier.is_multi_label:
        raise ConfigError("--baseline is for examples with a single label each")
    began = time.perf_counter()
    examples, labels = _training_examples(run, classifier)
    features = _features(examples, classifier.encoder, classifier.input)
    strength, choice = choose_strength(features, labels, classifier.input, on_progress)
    on_progress("training the baseline", 0, None)
    pipeline = _pipeline(classifier.input, strength)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # That it stops before the last digit is intended.
        pipeline.fit(features, labels)
    return Baseline(
        name=f"baseline: {_SEES[classifier.input]}, logistic regression, {choice}",
        pipeline=pipeline,
        encoder=classifier.encoder,
        input=classifier.input,
        num_classes=len(classifier.classes),
        seconds=time.perf_counter() - began,
    )


_SEES = {"text": "TF-IDF", "images": "pixels", "audio": "mean log-mel frame"}


def choose_strength(
    features: Any, labels: NDArray[np.int64], input_: str, on_progress: Progress
) -> tuple[float, str]:
    """Return the C with the highest accuracy on examples that were left out; and it in words."""
    from sklearn.model_selection import StratifiedKFold

    some = np.random.default_rng(0).permutation(len(labels))[:_MOST_COMPARED]
    counts = np.sort(np.bincount(labels[some], minlength=2))
    if counts[-2] < 2:  # Some part would have a single class.
        return 1.0, "C = 1, not chosen: there are too few examples"
    strengths = _STRENGTHS[_of(input_)]
    with warnings.catch_warnings():
        # What does not converge in time has a lower score; and rare classes may be in no fold.
        warnings.simplefilter("ignore")
        parts = StratifiedKFold(min(_FOLDS, int(counts[-1]))).split(some, labels[some])
        folds = [_Fold(features, labels, some[train], some[rest], input_) for train, rest in parts]
        scores: list[float] = []
        for number, strength in enumerate(strengths):
            on_progress("choosing C of the baseline", number, len(strengths))
            scores.append(sum(fold.accuracy(strength) for fold in folds))
            best = int(np.argmax(scores))
            if number - best == _WORSE:
                break
    edges = {0: " (the smallest tried)", len(strengths) - 1: " (the largest tried)"}
    return strengths[best], f"C = {strengths[best]:g}{edges.get(best, '')}"


class _Fold:
    """Examples to train on, and those that are left out; trained with one C after another."""

    def __init__(
        self,
        features: Any,
        labels: NDArray[np.int64],
        train: NDArray[np.int64],
        rest: NDArray[np.int64],
        input_: str,
    ) -> None:
        *before, self._regression = (step for _, step in _pipeline(input_, 1.0).steps)
        self._train, self._rest = _selected(features, train), _selected(features, rest)
        for step in before:
            self._train, self._rest = step.fit_transform(self._train), step.transform(self._rest)
        self._train_labels, self._rest_labels = labels[train], labels[rest]

    def accuracy(self, strength: float) -> float:
        # Each solution is near the one before.
        self._regression.set_params(C=strength, warm_start=True)
        self._regression.fit(self._train, self._train_labels)
        return float(self._regression.score(self._rest, self._rest_labels))


def _selected(features: Any, numbers: NDArray[np.int64]) -> Any:
    if isinstance(features, list):
        return [features[number] for number in numbers]
    return features[numbers]


def _pipeline(input_: str, strength: float) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    regression = LogisticRegression(C=strength, max_iter=_MOST_ITERATIONS[_of(input_)])
    if input_ != "text":
        return make_pipeline(regression)
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), token_pattern=_WORDS)
    return make_pipeline(words, regression)


def _of(input_: str) -> str:
    return input_ if input_ == "text" else ""


def _features(examples: Sequence[Encoded], encoder: Encoder, input_: str) -> Any:
    if isinstance(encoder, TextEncoder):
        return [encoder.text(each) for each in examples]
    if input_ == "images":
        return np.stack([each.values.reshape(-1) for each in examples])
    return np.stack([each.values.mean(0) for each in examples])


def _training_examples(
    run: Path, classifier: Classifier
) -> tuple[list[Encoded], NDArray[np.int64]]:
    shards = own_shards(RunDirectory(run), "train")
    if shards is None:
        raise DataError(f"{run}: its training examples are not in its directory: no baseline")
    numbers = range(len(shards))
    examples = [stored_example(shards, number, classifier) for number in numbers]
    labels = [stored_labels(shards, number, classifier)[0] for number in numbers]
    return examples, np.array(labels)
