"""Classification as training sees it, of each kind of input."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headwise.config import AnyConfig, Vocab
from headwise.data import TokenShards
from headwise.data.batches import Field, Rows, on_device, padded
from headwise.data.shards import Packed
from headwise.data.tokenizer import has_stream, load_stream, same_tokenizer
from headwise.errors import ConfigError, DataError
from headwise.evaluation import score_classes, score_labels
from headwise.files import Folder
from headwise.model.batch import check_ids
from headwise.model.classifier import class_probabilities
from headwise.runs.directory import RunDirectory
from headwise.tasks.classification import inputs, text
from headwise.tasks.classification.classes import LABEL, Classes
from headwise.tasks.classification.classifier import Classifier
from headwise.tasks.classification.files import LabelledFiles
from headwise.tasks.classification.inputs import ClassificationInputs
from headwise.tasks.classification.objective import ClassificationStep
from headwise.tasks.classification.prepare import WEIGHT, ClassReport, notes, prepare_examples
from headwise.tasks.classification.report import report_contents
from headwise.tasks.classification.scores import ClassificationEvaluation, evaluate_runs
from headwise.tasks.encoders import InputKind
from headwise.tasks.report import Contents
from headwise.tasks.vectors import audio, images
from headwise.tasks.vectors.scaling import padded_vectors
from headwise.training.distributed import World
from headwise.training.task import Progress, Task, ValidationData

_USUAL_POSITIONS = 40
_HEAD = ("head.",)


class ClassBatch(NamedTuple):
    """Padded ids or vectors, the positions and the weight of each example, and its labels."""

    src: Tensor  # [B, S], or [B, S-1, W]
    lengths: Tensor  # [B]
    weights: Tensor  # [B]
    labels: Tensor  # [B, 1] or [B, V]


class ClassificationTask:
    """A text, an image or a sound in, its class out."""

    name = "classification"

    def __init__(self, kind: InputKind, inputs: ClassificationInputs) -> None:
        self._kind, self._inputs = kind, inputs
        self.fields: tuple[Field, ...] = (
            kind.field,
            Field(WEIGHT, in_budget=False),
            Field(LABEL, vocab="target", in_budget=False),
        )
        self.unit = kind.unit
        self.starts_from = kind.starts_from

    def prepare(
        self,
        source: LabelledFiles,
        config: AnyConfig,
        directory: Path,
        *,
        valid: LabelledFiles | None,
        lenient: bool,
        processes: int | None,
        tokenizer_from: Folder | None,
        on_progress: Progress,
    ) -> ClassReport:
        """List the classes and learn to read examples, or do as another run does; and encode.

        Where the files have a label that the other run has not, the classes are those of the files.
        """
        trained = subwords = None
        if tokenizer_from is not None and has_stream(tokenizer_from, LABEL):
            self._check_reads_alike(RunDirectory(tokenizer_from.path).config(), config)
            trained = self._kind.load(tokenizer_from, config.data), Classes.load(tokenizer_from)
        elif tokenizer_from is not None:
            subwords = load_stream(tokenizer_from, self._kind.stream)
        return prepare_examples(
            source,
            config,
            directory,
            self._kind,
            valid=valid,
            lenient=lenient,
            trained=trained,
            subwords=subwords,
            on_progress=on_progress,
        )

    def _check_reads_alike(self, first: AnyConfig, config: AnyConfig) -> None:
        """Raise ConfigError if a run to start from reads its examples in another way."""
        if first.row.input != config.row.input:
            raise ConfigError(
                f"the run to start from is of classification of {first.row.input}, not of "
                f"{config.row.input}"
            )
        for key in self._kind.settings:
            # How much is read of an example changes nothing about the rest.
            theirs, ours = getattr(first.data, key, None), getattr(config.data, key)
            if theirs != ours and not key.startswith("longest"):
                raise ConfigError(
                    f"data.{key} = {ours!r} must be {theirs!r}, as in the run to start from"
                )

    def renewed(self, first: Folder, own: Folder) -> tuple[str, ...]:
        """Renew the head for other classes, if the rest of an example is read alike."""
        is_other = not same_tokenizer(first, own)
        return _HEAD if is_other and same_tokenizer(first, own, but_for=LABEL) else ()

    def origin(self, train: TokenShards) -> dict[str, Any]:
        """Return how many examples there are."""
        return {"train_examples": len(train)}

    def vocab(self, config: AnyConfig, folder: Folder | None) -> Vocab:
        """Read how many subwords there are, or how wide vectors are; and how many classes."""
        if folder is None:
            return config.row.vocab(config)
        return self._kind.load(folder, config.data).vocab(len(Classes.load(folder)))

    def objective(self, model: nn.Module, config: AnyConfig) -> ClassificationStep:
        """Predict the class, or every label."""
        return ClassificationStep(
            model,
            label_smoothing=config.train.label_smoothing,
            is_multi_label=config.data.multi_label,
        )

    def augment(self, rows: Rows, config: AnyConfig, key: tuple[int, int]) -> Rows:
        """Change images or sounds at random, if the config says so."""
        stream = self._kind.stream
        return {**rows, stream: self._kind.augmented(rows[stream], config.data, key)}

    def collate(self, rows: Rows, vocab: Vocab, key: tuple[int, int]) -> ClassBatch:
        """Pad examples, and check them and their labels."""
        src, positions = self._padded(rows[self._kind.stream], vocab)
        labels, lengths = rows[LABEL]
        width, classes = int(lengths[0]), vocab.target_size
        most = classes if width == 1 else 2
        if (lengths != width).any() or width not in (1, classes) or int(labels.max()) >= most:
            raise DataError(
                f"the labels are not those of {classes:,} classes: prepare the data anew"
            )
        weights, _ = rows[WEIGHT]
        return ClassBatch(
            src=src,
            lengths=positions,
            weights=torch.from_numpy(weights.reshape(-1)),
            labels=torch.from_numpy(labels.astype("int64").reshape(-1, width)),
        )

    def _padded(self, packed: Packed, vocab: Vocab) -> tuple[Tensor, Tensor]:
        values, lengths = packed
        if vocab.source_width:
            if values.ndim != 2 or values.shape[1] != vocab.source_width:
                raise DataError(
                    f"the {self.unit} have vectors of shape {list(values.shape[1:])}, and the "
                    f"model reads {vocab.source_width:,} floats: prepare the data anew"
                )
            return padded_vectors(packed)
        src = padded(packed, pad=vocab.pad)
        check_ids(self._kind.stream, src, vocab.source_size, vocab)
        return src, torch.from_numpy(lengths)

    def example_batch(self, config: AnyConfig, vocab: Vocab, tokens: int) -> tuple[Tensor, ...]:
        """Make up examples of a usual length."""
        length = config.data.longest
        if config.row.input != "images":
            length = min(_USUAL_POSITIONS, length)
        count = max(1, tokens // length)
        if vocab.source_width:
            src = torch.zeros(count, length - 1, vocab.source_width)
        else:
            first = max(vocab.pad, vocab.unk, vocab.bos, vocab.eos) + 1
            src = torch.arange(count * length).view(count, length) % (vocab.source_size - first)
            src = src + first
        width = vocab.target_size if config.data.multi_label else 1
        return ClassBatch(
            src=src,
            lengths=torch.full((count,), length),
            weights=torch.ones(count),
            labels=torch.zeros(count, width, dtype=torch.long),
        )

    def evaluator(self, data: ValidationData, config: AnyConfig) -> "ClassEvaluator":
        """Measure the accuracy, or the F1 of labels."""
        return ClassEvaluator(data, config, self, self._kind)

    def predictor(self, run: Path, *, checkpoint: str | None = None) -> Classifier:
        """Load a run as a Classifier."""
        return Classifier.load(run, checkpoint=checkpoint)

    def report_contents(
        self,
        run: RunDirectory,
        predictor: Classifier,
        values: Mapping[str, Any],
        on_progress: Progress,
    ) -> Contents:
        """Describe a run for its report."""
        return report_contents(
            run, predictor, self._kind, self._inputs.files(values), values, on_progress
        )

    def evaluate(
        self,
        runs: Sequence[Path],
        values: Mapping[str, Any],
        *,
        checkpoint: str | None,
        overrides: Sequence[str],
        on_progress: Progress,
    ) -> ClassificationEvaluation:
        """Measure runs on the labelled files that the options name."""
        files = self._inputs.files(values)
        if files is None:
            raise ConfigError(f"give what to evaluate on: {self._inputs.needed}")
        if overrides:
            raise ConfigError("a classifier has no [decode] settings to change with --set")
        return evaluate_runs(
            runs,
            files,
            kind=self._kind,
            checkpoint=checkpoint,
            with_baseline=bool(values.get("baseline")),
            on_progress=on_progress,
        )


class ClassEvaluator:
    """Validation examples, all of which are classified at each validation."""

    def __init__(
        self,
        data: ValidationData,
        config: AnyConfig,
        task: ClassificationTask,
        kind: InputKind,
    ) -> None:
        for key, value in notes(config.data, kind).items():
            if data.shards.notes.get(key) != value:
                raise DataError(
                    f"{data.shards.directory}: not prepared with data.{key} = {value!r}: "
                    "prepare it anew, or give the value that it was prepared with"
                )
        self._data, self._task = data, task
        self._is_multi_label = config.data.multi_label
        self._vocab = task.vocab(config, data.folder)

    @property
    def score(self) -> str:
        """The accuracy decides which checkpoint is best; of several labels, their F1."""
        return "micro_f1" if self._is_multi_label else "accuracy"

    def measure(self, model: nn.Module, nll: float, world: World) -> dict[str, float]:
        """Return the figures, in percent."""
        figures = [0.0, 0.0]
        if world.is_first:
            was_training = model.training
            figures = self._figures(model.eval(), world.device)
            model.train(was_training)
        first, macro = world.largest(figures)
        return {self.score: first, "macro_f1": macro}

    def _figures(self, model: nn.Module, device: torch.device) -> list[float]:
        found, gold = [], []
        with torch.inference_mode():
            for examples in self._data.batches.epoch(0):
                rows = self._data.batches.read(examples)
                batch = self._task.collate(rows, self._vocab, (0, 0))
                src, lengths, _, labels = on_device(batch, device)
                scores = model(src, lengths)
                found.append(class_probabilities(scores, is_multi_label=self._is_multi_label).cpu())
                gold.append(labels.cpu())
        names = [""] * self._vocab.target_size
        probabilities, right = torch.cat(found).numpy(), torch.cat(gold).numpy()
        if self._is_multi_label:
            scored = score_labels(right, probabilities, names, resamples=0)
        else:
            scored = score_classes(right[:, 0], probabilities, names, resamples=0)
        return [100 * scored.micro_f1, 100 * scored.macro_f1]


TEXT: Task = ClassificationTask(text.TEXT, inputs.TEXT)
IMAGES: Task = ClassificationTask(images.IMAGES, inputs.IMAGES)
AUDIO: Task = ClassificationTask(audio.AUDIO, inputs.AUDIO)
