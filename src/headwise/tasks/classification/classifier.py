"""A trained classifier as a function from texts, images or sounds to classes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from headwise.config import AnyConfig
from headwise.errors import CheckpointError, HeadwiseError, RequestError
from headwise.model import SequenceClassifier, Trace, build_model
from headwise.model.classifier import class_probabilities
from headwise.runs.device import choose_device
from headwise.runs.directory import RunDirectory
from headwise.runs.model import load_trained
from headwise.tasks.classification.classes import Classes
from headwise.tasks.classification.kinds import kind_of
from headwise.tasks.classification.windows import windows
from headwise.tasks.encoders import Encoded, Encoder
from headwise.tasks.length_batches import length_batches
from headwise.tasks.table import require_task
from headwise.tasks.tracing import TracedPair

LABEL_THRESHOLD = 0.5
"""From this probability on, a label is an answer, where an example may have several."""

_MOST_TRACED = 2_000_000
"""Attention weights on a page."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A class and its probability."""

    label: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class Classification:
    """What an example is."""

    labels: tuple[str, ...]
    """The most probable class; or, where an example may have several, all that are probable."""
    answers: tuple[Answer, ...]
    """Classes with their probabilities, the most probable first: as many as were asked for."""
    is_cut: bool = False
    """Whether the text or the sound is longer than what is read of one."""

    @property
    def label(self) -> str:
        """The most probable class."""
        return self.answers[0].label

    @property
    def probability(self) -> float:
        """The probability of the most probable class."""
        return self.answers[0].probability


class Classifier:
    """Classify texts, images or sounds with a trained run. It is thread-safe.

    An image is a path, the bytes of a file, or an array of bytes [height, width] or [height, width,
    colours]. A sound is a path, the bytes of a file, or a pair of samples and their rate.
    """

    def __init__(
        self,
        model: SequenceClassifier,
        encoder: Encoder,
        classes: Classes,
        config: AnyConfig,
        *,
        name: str,
        batch_size: int | None = None,
    ) -> None:
        self.model, self.config = model.eval(), config
        self.encoder, self.names = encoder, classes
        self.name = name
        """Where the weights come from."""
        self._batch_size = batch_size

    @classmethod
    def load(
        cls,
        run: str | Path,
        *,
        checkpoint: str | None = None,
        device: str = "cpu",
        batch_size: int | None = None,
    ) -> "Classifier":
        """Load a run directory: its average, else its best checkpoint, else its last.

        With a batch size of 1, an answer depends on no other example.
        """
        directory = RunDirectory(Path(run))
        config = directory.config()
        require_task("classification", config, directory.path)
        try:
            encoder = kind_of(config).load(directory.folder, config.data)
            classes = Classes.load(directory.folder)
        except HeadwiseError as error:
            raise CheckpointError(f"{directory.path}: {error}") from error
        vocab = encoder.vocab(len(classes))
        model, weights = load_trained(
            directory,
            checkpoint,
            parameters=config.model.count_parameters(vocab, "classifier"),
            build=lambda: build_model(config.model, vocab, "classifier"),
        )
        return cls(
            model.to(choose_device(device)),
            encoder,
            classes,
            config,
            name=str(weights),
            batch_size=batch_size,
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes, in the order of the columns of `probabilities`."""
        return self.names.names

    @property
    def input(self) -> str:
        """What it classifies: "text", "images" or "audio"."""
        return self.config.row.input

    @property
    def is_multi_label(self) -> bool:
        """Whether an example may have any number of labels."""
        return bool(self.config.data.multi_label)

    def classify(self, examples: Any, *, top: int = 1) -> list[Classification]:
        """Classify one example or several; results come in their order, with `top` answers each.

        White space of any kind and length in a text counts as one space. A text or a sound is read
        up to what training read.
        """
        if top < 1:
            raise RequestError(f"top = {top} must be at least 1")
        results: list[Classification] = []
        for encoded in self._encoded([examples] if self._is_one(examples) else examples):
            found = self._probabilities(encoded)
            # Stable, so that classes of the same probability keep their order.
            orders = np.argsort(-found, axis=1, kind="stable")
            results += [
                self._classification(row, order, top, is_cut=each.is_cut)
                for row, order, each in zip(found, orders, encoded, strict=True)
            ]
        return results

    def probabilities(self, examples: Iterable[Any]) -> NDArray[np.float64]:
        """Return the probability of every class [N, C] for each example.

        They sum to 1, unless an example may have several labels.
        """
        several = [examples] if self._is_one(examples) else examples
        parts = [self._probabilities(encoded) for encoded in self._encoded(several)]
        return np.concatenate([np.zeros((0, len(self.classes))), *parts])

    def _is_one(self, example: Any) -> bool:
        """Return whether it is one example; a pair of samples and their rate is one sound."""
        if isinstance(example, tuple) and not isinstance(example, Encoded):
            is_pair = self.input == "audio" and len(example) == 2
            return is_pair and isinstance(example[1], int | float | np.number)
        is_known = isinstance(example, str | bytes | Path | np.ndarray | Encoded)
        return is_known or not isinstance(example, Iterable)

    def _encoded(self, examples: Iterable[Any]) -> Iterator[list[Encoded]]:
        """Yield the examples encoded, some at a time."""
        for window in windows((None, self._encode(example)) for example in examples):
            yield [encoded for _, encoded in window]

    def _encode(self, example: Any) -> Encoded:
        if isinstance(example, Encoded):
            return example
        return self.encoder.encode(self.encoder.given(example))

    def _probabilities(self, encoded: list[Encoded]) -> NDArray[np.float64]:
        found = np.zeros((len(encoded), len(self.classes)))
        device = self.model.head.weight.device
        with torch.inference_mode():
            lengths = [len(each.values) for each in encoded]
            for numbers in length_batches(lengths, 1, self._batch_size):
                values = np.concatenate([encoded[number].values for number in numbers])
                packed = values, np.array([lengths[number] for number in numbers])
                src, positions = self.encoder.padded(packed)
                scores = self.model(src.to(device), positions.to(device))
                probabilities = class_probabilities(scores, is_multi_label=self.is_multi_label)
                found[numbers] = probabilities.cpu().numpy()
        if not np.isfinite(found).all():
            raise CheckpointError(f"{self.name}: the model's scores are NaN: its weights are bad")
        return found

    def trace(self, source: Any, target: str | None = None, *, most_tokens: int) -> TracedPair:
        """Return the attention within an example, from the class token on."""
        if target is not None:
            raise RequestError(f"a classifier has no target: give the {_ONE[self.input]} alone")
        encoded = self._encode(source)
        tokens = self.encoder.tokens(encoded)
        picture = self.encoder.picture(encoded)
        if picture is None and len(tokens) == 1:
            raise RequestError("the text is empty: attention is between words")
        if picture is None and (len(tokens) - 1 > most_tokens or encoded.is_cut):
            raise RequestError(
                f"the text has {len(tokens) - 1:,} tokens or more, and attention is shown for "
                f"{most_tokens:,} at most: give a shorter one"
            )
        if picture is not None and not self.is_traceable(encoded):
            raise RequestError(
                f"the {_ONE[self.input]} has {len(tokens):,} positions, too many to show attention "
                "for in this model"
            )
        return TracedPair(
            source=source if isinstance(source, str) else _ONE[self.input],
            target=self.classify(encoded)[0].label,
            source_tokens=tokens,
            target_tokens=(),
            trace=self.traced(encoded),
            picture=picture,
        )

    def traced(self, encoded: Encoded) -> Trace:
        """Return the attention of all layers within an example."""
        trace = Trace()
        src, positions = self.encoder.padded((encoded.values, np.array([len(encoded.values)])))
        with torch.inference_mode():
            device = self.model.head.weight.device
            self.model(src.to(device), positions.to(device), trace=trace)
        return trace

    def is_traceable(self, encoded: Encoded) -> bool:
        """Return whether the attention within an image or a sound fits a page."""
        count = len(encoded.values) + 1
        return bool(self.config.model.count_attention_weights(count, 0) <= _MOST_TRACED)

    def _classification(
        self, row: NDArray[np.float64], order: NDArray[np.int64], top: int, *, is_cut: bool
    ) -> Classification:
        answers = tuple(
            Answer(label=self.classes[number], probability=float(row[number]))
            for number in order[:top]
        )
        chosen = order[:1]
        if self.is_multi_label:
            chosen = order[row[order] >= LABEL_THRESHOLD]
        return Classification(
            labels=tuple(self.classes[number] for number in chosen),
            answers=answers,
            is_cut=is_cut,
        )


_ONE = {"text": "text", "images": "image", "audio": "sound"}
