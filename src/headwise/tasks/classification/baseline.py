"""What a classifier is compared with: logistic regression on TF-IDF, by scikit-learn."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwise.config import Vocab
from headwise.errors import ConfigError, DataError
from headwise.runs.data import own_shards
from headwise.runs.directory import RunDirectory
from headwise.tasks.classification.classifier import Classifier
from headwise.tasks.classification.tokenizer import LABEL, TEXT

_STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
"""Values of C to choose from."""

_WORDS = r"(?u)\w+|[^\w\s]"
"""Words, and each punctuation mark: a question mark says something."""

_MOST_FOLDS = 5
_MOST_ITERATIONS = 1_000


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A trained baseline. It makes the same answers as a Classifier."""

    name: str
    pipeline: Any
    num_classes: int
    seconds: float
    """What choosing C and training took."""

    def probabilities(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the probability of every class [N, C] for each text."""
        found = np.zeros((len(texts), self.num_classes))
        # A class that no training text has is never the answer.
        found[:, self.pipeline.classes_] = self.pipeline.predict_proba(list(texts))
        return found


def train_baseline(run: Path, classifier: Classifier) -> Baseline:
    """Train on the texts that a run was trained on, as they are stored in its directory.

    Words and pairs of words are weighted by TF-IDF; C is chosen by cross-validation.
    """
    if find_spec("sklearn") is None:
        raise ConfigError("--baseline needs scikit-learn: pip install 'headwise[baseline]'")
    if classifier.is_multi_label:
        raise ConfigError("--baseline is for texts with a single label each")
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline

    texts, labels = _training_texts(run, classifier)
    began = time.perf_counter()
    pipeline = make_pipeline(
        TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), token_pattern=_WORDS),
        LogisticRegression(C=1.0, max_iter=_MOST_ITERATIONS),
    )
    folds = min(_MOST_FOLDS, int(np.bincount(labels)[np.unique(labels)].min()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # What does not converge in time has a lower score.
        if folds > 1:
            search = GridSearchCV(
                pipeline, {"logisticregression__C": _STRENGTHS}, scoring="accuracy", cv=folds
            )
            pipeline = search.fit(texts, labels).best_estimator_
        else:  # A class of one text cannot be in every fold.
            pipeline.fit(texts, labels)
    strength = pipeline[-1].C
    return Baseline(
        name=f"baseline: TF-IDF, logistic regression, C = {strength:g}",
        pipeline=pipeline,
        num_classes=len(classifier.classes),
        seconds=time.perf_counter() - began,
    )


def _training_texts(run: Path, classifier: Classifier) -> tuple[list[str], NDArray[np.int64]]:
    shards = own_shards(RunDirectory(run), "train")
    if shards is None:
        raise DataError(f"{run}: its training texts are not in its directory: no baseline")
    subwords, special = classifier.tokenizer.subwords, (Vocab.bos, Vocab.eos)
    texts, labels = [], []
    for number in range(len(shards)):
        ids = shards.checked_sequence(TEXT, number, len(subwords)).tolist()
        texts.append(subwords.decode([each for each in ids if each not in special]))
        (label,) = shards.checked_sequence(LABEL, number, len(classifier.classes)).tolist()
        labels.append(label)
    return texts, np.array(labels)
