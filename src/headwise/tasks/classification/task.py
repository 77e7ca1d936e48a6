"""Classification as training sees it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headwise.config import ClassificationConfig, Vocab, task_row
from headwise.data import TokenShards
from headwise.data.batches import Field, Rows, on_device, padded
from headwise.data.tokenizer import has_stream, load_stream
from headwise.errors import ConfigError, DataError
from headwise.evaluation import score_classes, score_labels
from headwise.files import Folder
from headwise.model.batch import check_ids
from headwise.model.classifier import class_probabilities
from headwise.runs.directory import RunDirectory
from headwise.tasks.classification.classifier import Classifier
from headwise.tasks.classification.files import LabelledFiles
from headwise.tasks.classification.inputs import labelled_files
from headwise.tasks.classification.objective import ClassificationStep
from headwise.tasks.classification.prepare import WEIGHT, ClassReport, notes, prepare_texts
from headwise.tasks.classification.report import report_contents
from headwise.tasks.classification.scores import ClassificationEvaluation, evaluate_runs
from headwise.tasks.classification.tokenizer import LABEL, TEXT, ClassTokenizer
from headwise.tasks.report import Contents
from headwise.training.distributed import World
from headwise.training.task import Progress, Task, ValidationData

_USUAL_TOKENS = 40


class ClassBatch(NamedTuple):
    """Padded ids, the weight of each text, and its class or its labels."""

    src: Tensor  # [B, S]
    weights: Tensor  # [B]
    labels: Tensor  # [B, 1] or [B, V]


class ClassificationTask:
    """A text in, its class out."""

    name = "classification"
    fields: tuple[Field, ...] = (
        Field(TEXT, vocab="source"),
        Field(WEIGHT, in_budget=False),
        Field(LABEL, vocab="target", in_budget=False),
    )
    unit = "texts"
    starts_from: Mapping[str, tuple[str, ...]] = {"masked-language-model": ("head.",)}

    def prepare(
        self,
        source: LabelledFiles,
        config: ClassificationConfig,
        directory: Path,
        *,
        valid: LabelledFiles | None,
        lenient: bool,
        processes: int | None,
        tokenizer_from: Folder | None,
        on_progress: Progress,
    ) -> ClassReport:
        """Learn subwords and list the classes, or use another run's, and encode the texts."""
        tokenizer = subwords = None
        if tokenizer_from is not None and has_stream(tokenizer_from, LABEL):
            tokenizer = ClassTokenizer.load(tokenizer_from)
        elif tokenizer_from is not None:
            subwords = load_stream(tokenizer_from, TEXT)
        return prepare_texts(
            source,
            config,
            directory,
            valid=valid,
            lenient=lenient,
            tokenizer=tokenizer,
            subwords=subwords,
            on_progress=on_progress,
        )

    def origin(self, train: TokenShards) -> dict[str, Any]:
        """Return how many texts there are."""
        return {"train_texts": len(train)}

    def vocab(self, config: ClassificationConfig, folder: Folder | None) -> Vocab:
        """Read how many subwords and classes there are."""
        if folder is None:
            return task_row(self.name).vocab(config)
        return ClassTokenizer.load(folder).vocab

    def objective(self, model: nn.Module, config: ClassificationConfig) -> ClassificationStep:
        """Predict the class, or every label."""
        return ClassificationStep(
            model,
            label_smoothing=config.train.label_smoothing,
            is_multi_label=config.data.multi_label,
        )

    def collate(self, rows: Rows, vocab: Vocab, key: tuple[int, int]) -> ClassBatch:
        """Pad texts, and check them and their labels."""
        src = padded(rows[TEXT], pad=vocab.pad)
        check_ids(TEXT, src, vocab.source_size, vocab)
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
            weights=torch.from_numpy(weights.reshape(-1)),
            labels=torch.from_numpy(labels.astype("int64").reshape(-1, width)),
        )

    def example_batch(
        self, config: ClassificationConfig, vocab: Vocab, tokens: int
    ) -> tuple[Tensor, ...]:
        """Make up texts of a usual length."""
        length = min(_USUAL_TOKENS, config.data.longest)
        count = max(1, tokens // length)
        first = max(vocab.pad, vocab.unk, vocab.bos, vocab.eos) + 1
        ids = torch.arange(count * length).view(count, length) % (vocab.source_size - first)
        width = vocab.target_size if config.data.multi_label else 1
        return ClassBatch(
            src=ids + first,
            weights=torch.ones(count),
            labels=torch.zeros(count, width, dtype=torch.long),
        )

    def evaluator(self, data: ValidationData, config: ClassificationConfig) -> "ClassEvaluator":
        """Measure the accuracy, or the F1 of labels."""
        return ClassEvaluator(data, config, self)

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
        return report_contents(run, predictor, values, on_progress)

    def evaluate(
        self,
        runs: Sequence[Path],
        values: Mapping[str, Any],
        *,
        checkpoint: str | None,
        overrides: Sequence[str],
        on_progress: Progress,
    ) -> ClassificationEvaluation:
        """Measure runs on the texts that --table names."""
        files = labelled_files(values, "table")
        if files is None:
            raise ConfigError("give the labelled texts to evaluate on with --table")
        if overrides:
            raise ConfigError("a classifier has no [decode] settings to change with --set")
        return evaluate_runs(
            runs,
            files,
            checkpoint=checkpoint,
            with_baseline=bool(values.get("baseline")),
            on_progress=on_progress,
        )


class ClassEvaluator:
    """Validation texts, all of which are classified at each validation."""

    def __init__(
        self, data: ValidationData, config: ClassificationConfig, task: ClassificationTask
    ) -> None:
        for key, value in notes(config.data).items():
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
                src, _, labels = on_device(batch, device)
                scores = model(src)
                found.append(class_probabilities(scores, is_multi_label=self._is_multi_label).cpu())
                gold.append(labels.cpu())
        names = [""] * self._vocab.target_size
        probabilities, right = torch.cat(found).numpy(), torch.cat(gold).numpy()
        if self._is_multi_label:
            scored = score_labels(right, probabilities, names, resamples=0)
        else:
            scored = score_classes(right[:, 0], probabilities, names, resamples=0)
        return [100 * scored.micro_f1, 100 * scored.macro_f1]


TASK: Task = ClassificationTask()
