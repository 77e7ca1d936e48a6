"""A trained classifier as a function from texts to classes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from headwise.config import ClassificationConfig
from headwise.errors import CheckpointError, HeadwiseError, RequestError
from headwise.model import SequenceClassifier, Trace, build_model
from headwise.model.classifier import class_probabilities
from headwise.runs.device import choose_device
from headwise.runs.directory import RunDirectory
from headwise.runs.model import load_trained
from headwise.tasks.classification.files import plain
from headwise.tasks.classification.tokenizer import ClassTokenizer, EncodedText
from headwise.tasks.length_batches import length_batches
from headwise.tasks.table import require_task
from headwise.tasks.tracing import TracedPair, traceable_ids

LABEL_THRESHOLD = 0.5
"""From this probability on, a label is an answer, where a text may have several."""

_CLASS_TOKEN = "‹class›"  # noqa: S105 - what is shown for the first position
_HALF_PAIR = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A class and its probability."""

    label: str
    probability: float


@dataclass(frozen=True, kw_only=True)
class Classification:
    """What a text is."""

    labels: tuple[str, ...]
    """The most probable class; or, where a text may have several, all that are probable."""
    answers: tuple[Answer, ...]
    """Classes with their probabilities, the most probable first: as many as were asked for."""
    is_cut: bool = False
    """Whether the text is longer than what is read of one."""

    @property
    def label(self) -> str:
        """The most probable class."""
        return self.answers[0].label

    @property
    def probability(self) -> float:
        """The probability of the most probable class."""
        return self.answers[0].probability


class Classifier:
    """Classify texts with a trained run. It is thread-safe."""

    def __init__(
        self,
        model: SequenceClassifier,
        tokenizer: ClassTokenizer,
        config: ClassificationConfig,
        *,
        name: str,
        batch_size: int | None = None,
    ) -> None:
        self.model, self.tokenizer, self.config = model.eval(), tokenizer, config
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

        With a batch size of 1, an answer depends on no other text.
        """
        directory = RunDirectory(Path(run))
        config: ClassificationConfig = directory.config()  # type: ignore[assignment]
        require_task("classification", config, directory.path)
        try:
            tokenizer = ClassTokenizer.load(directory.folder)
        except HeadwiseError as error:
            raise CheckpointError(f"{directory.path}: {error}") from error
        vocab = tokenizer.vocab
        model, weights = load_trained(
            directory,
            checkpoint,
            parameters=config.model.count_parameters(vocab, "classifier"),
            build=lambda: build_model(config.model, vocab, "classifier"),
        )
        return cls(
            model.to(choose_device(device)),
            tokenizer,
            config,
            name=str(weights),
            batch_size=batch_size,
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes, in the order of the columns of `probabilities`."""
        return self.tokenizer.classes

    @property
    def is_multi_label(self) -> bool:
        """Whether a text may have any number of labels."""
        return self.config.data.multi_label

    def classify(self, texts: str | Sequence[str], *, top: int = 1) -> list[Classification]:
        """Classify one text or several; results come in their order, with `top` answers each.

        White space of any kind and length counts as one space. A text is read up to as many tokens
        as training read.
        """
        if top < 1:
            raise RequestError(f"top = {top} must be at least 1")
        encoded = self._encoded([texts] if isinstance(texts, str) else texts)
        found = self._probabilities(encoded)
        # Stable, so that classes of the same probability keep their order.
        orders = np.argsort(-found, axis=1, kind="stable")
        return [
            self._classification(row, order, top, is_cut=text.is_cut)
            for row, order, text in zip(found, orders, encoded, strict=True)
        ]

    def probabilities(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Return the probability of every class [N, C] for each text.

        They sum to 1, unless a text may have several labels.
        """
        return self._probabilities(self._encoded(texts))

    def _encoded(self, texts: Sequence[str]) -> list[EncodedText]:
        for text in texts:
            check_text(text)
        longest = self.config.data.longest
        return [self.tokenizer.encode(plain(text), longest) for text in texts]

    def _probabilities(self, encoded: list[EncodedText]) -> NDArray[np.float64]:
        found = np.zeros((len(encoded), len(self.classes)))
        device = self.model.head.weight.device
        with torch.inference_mode():
            lengths = [len(text.ids) for text in encoded]
            for numbers in length_batches(lengths, 1, self._batch_size):
                width = max(lengths[number] for number in numbers)
                src = torch.full((len(numbers), width), self.model.vocab.pad)
                for row, number in enumerate(numbers):
                    src[row, : lengths[number]] = torch.tensor(encoded[number].ids)
                scores = self.model(src.to(device))
                probabilities = class_probabilities(scores, is_multi_label=self.is_multi_label)
                found[numbers] = probabilities.cpu().numpy()
        if not np.isfinite(found).all():
            raise CheckpointError(f"{self.name}: the model's scores are NaN: its weights are bad")
        return found

    def trace(self, source: str, target: str | None = None, *, most_tokens: int) -> TracedPair:
        """Return the attention within a text, from the class token on."""
        if target is not None:
            raise RequestError("a classifier has no target: give the text alone")
        longest = min(most_tokens, self.config.data.longest - 2)
        ids = traceable_ids("text", plain(source), self.tokenizer.subwords, longest)
        vocab, trace = self.model.vocab, Trace()
        with torch.inference_mode():
            src = torch.tensor([[vocab.bos, *ids, vocab.eos]], device=self.model.head.weight.device)
            self.model(src, trace=trace)
        return TracedPair(
            source=source,
            target=self.classify(source)[0].label,
            source_tokens=(_CLASS_TOKEN, *self.tokenizer.subwords.tokens(ids)),
            target_tokens=(),
            trace=trace,
        )

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


def check_text(text: str) -> None:
    """Raise RequestError for what is no text."""
    if "\0" in text:
        raise RequestError("a text with a NUL character cannot be classified")
    if _HALF_PAIR.search(text):
        raise RequestError("a text with half of a surrogate pair is not Unicode text")
