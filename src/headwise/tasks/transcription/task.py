"""Transcription as training sees it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headwise.config import AnyConfig, Vocab
from headwise.data import TokenShards
from headwise.data.batches import Field, Rows, padded
from headwise.errors import ConfigError, DataError
from headwise.files import Folder
from headwise.model import Transformer
from headwise.model.batch import check_ids
from headwise.runs.directory import RunDirectory
from headwise.tasks.encoders import InputKind
from headwise.tasks.report import Contents
from headwise.tasks.transcription import inputs
from headwise.tasks.transcription.files import TranscribedFiles
from headwise.tasks.transcription.inputs import TranscriptionInputs
from headwise.tasks.transcription.lines import LINES
from headwise.tasks.transcription.objective import TranscriptionStep
from headwise.tasks.transcription.prepare import TranscriptionReport, prepare_examples
from headwise.tasks.transcription.report import report_contents
from headwise.tasks.transcription.scores import TranscriptionEvaluation, evaluate_runs
from headwise.tasks.transcription.targets import STREAM, load_targets
from headwise.tasks.transcription.transcriber import Transcriber
from headwise.tasks.transcription.validation import TranscriptionEvaluator
from headwise.tasks.vectors.audio import AUDIO as SOUNDS
from headwise.tasks.vectors.scaling import padded_vectors
from headwise.training.task import Progress, Task, ValidationData

_USUAL_POSITIONS, _USUAL_TOKENS = 100, 20
"""Of a line or a sound and of its text, about."""


class TranscriptionBatch(NamedTuple):
    """Padded vectors, and ids of texts."""

    src: Tensor  # [B, S-1, W]
    lengths: Tensor  # [B]
    tgt_in: Tensor  # [B, T]
    tgt_out: Tensor  # [B, T]


class TranscriptionTask:
    """Images or sounds in, a Transformer that writes them down out."""

    name = "transcription"

    def __init__(self, kind: InputKind, options: TranscriptionInputs) -> None:
        self._kind, self._inputs = kind, options
        self.fields: tuple[Field, ...] = (kind.field, Field(STREAM, extra=1, vocab="target"))
        self.unit = kind.unit

    def prepare(
        self,
        source: TranscribedFiles,
        config: AnyConfig,
        directory: Path,
        *,
        valid: TranscribedFiles | None,
        lenient: bool,
        processes: int | None,
        tokenizer_from: Folder | None,
        on_progress: Progress,
    ) -> TranscriptionReport:
        """Learn scales and targets, or do as another run does; and encode."""
        trained = None
        if tokenizer_from is not None:
            self._check_reads_alike(RunDirectory(tokenizer_from.path).config(), config)
            encoder = self._kind.load(tokenizer_from, config.data)
            trained = encoder, load_targets(tokenizer_from, config.data)
        return prepare_examples(
            source,
            config,
            directory,
            self._kind,
            valid=valid,
            lenient=lenient,
            trained=trained,
            on_progress=on_progress,
        )

    def _check_reads_alike(self, first: AnyConfig, config: AnyConfig) -> None:
        """Raise ConfigError if a run to start from reads or writes in another way."""
        for key in (*self._kind.settings, "targets"):
            # How much is read of an example changes nothing about the rest.
            theirs, ours = getattr(first.data, key, None), getattr(config.data, key)
            if theirs != ours and not key.startswith("longest"):
                raise ConfigError(
                    f"data.{key} = {ours!r} must be {theirs!r}, as in the run to start from"
                )

    def origin(self, train: TokenShards) -> dict[str, Any]:
        """Return how many examples there are."""
        return {"train_examples": len(train)}

    def vocab(self, config: AnyConfig, folder: Folder | None) -> Vocab:
        """Read how wide the vectors are, and the size of the vocabulary of texts."""
        if folder is None:
            return config.row.vocab(config)
        size = len(load_targets(folder, config.data))
        return self._kind.load(folder, config.data).vocab(size)

    def objective(self, model: nn.Module, config: AnyConfig) -> TranscriptionStep:
        """Predict each token, with label smoothing."""
        assert isinstance(model, Transformer)
        return TranscriptionStep(model, label_smoothing=config.train.label_smoothing)

    def augment(self, rows: Rows, config: AnyConfig, key: tuple[int, int]) -> Rows:
        """Change images or sounds at random, if the config says so."""
        stream = self._kind.stream
        return {**rows, stream: self._kind.augmented(rows[stream], config.data, key)}

    def collate(self, rows: Rows, vocab: Vocab, key: tuple[int, int]) -> TranscriptionBatch:
        """Pad examples and their texts, and check them."""
        values, _ = rows[self._kind.stream]
        if values.ndim != 2 or values.shape[1] != vocab.source_width:
            raise DataError(
                f"the {self.unit} have vectors of shape {list(values.shape[1:])}, and the model "
                f"reads {vocab.source_width:,} floats: prepare the data anew"
            )
        src, lengths = padded_vectors(rows[self._kind.stream])
        tgt_in = padded(rows[STREAM], pad=vocab.pad, before=vocab.start)
        tgt_out = padded(rows[STREAM], pad=vocab.pad, after=vocab.eos)
        check_ids("tgt_out", tgt_out, vocab.target_size, vocab)
        return TranscriptionBatch(src=src, lengths=lengths, tgt_in=tgt_in, tgt_out=tgt_out)

    def example_batch(self, config: AnyConfig, vocab: Vocab, tokens: int) -> tuple[Tensor, ...]:
        """Make up examples of a usual length."""
        length = min(_USUAL_POSITIONS, config.data.longest)
        count = max(1, tokens // length)
        first = max(vocab.pad, vocab.unk, vocab.bos, vocab.eos) + 1
        places = torch.arange(count * _USUAL_TOKENS).view(count, _USUAL_TOKENS)
        tgt = places % (vocab.target_size - first) + first
        return TranscriptionBatch(
            src=torch.zeros(count, length - 1, vocab.source_width),
            lengths=torch.full((count,), length),
            tgt_in=tgt,
            tgt_out=tgt,
        )

    def evaluator(self, data: ValidationData, config: AnyConfig) -> TranscriptionEvaluator:
        """Measure the error rates of `data.cer_examples` examples."""
        return TranscriptionEvaluator(data, config, self._kind)

    def predictor(self, run: Path, *, checkpoint: str | None = None) -> Transcriber:
        """Load a run as a Transcriber."""
        return Transcriber.load(run, checkpoint=checkpoint)

    def report_contents(
        self,
        run: RunDirectory,
        predictor: Transcriber,
        values: Mapping[str, Any],
        on_progress: Progress,
    ) -> Contents:
        """Describe a run for its report."""
        return report_contents(run, predictor, self._kind, self._inputs.files(values), on_progress)

    def evaluate(
        self,
        runs: Sequence[Path],
        values: Mapping[str, Any],
        *,
        checkpoint: str | None,
        overrides: Sequence[str],
        on_progress: Progress,
    ) -> TranscriptionEvaluation:
        """Measure runs on the tables that the options name."""
        files = self._inputs.files(values)
        if files is None:
            raise ConfigError(f"give what to evaluate on: {self._inputs.needed}")
        return evaluate_runs(
            runs,
            files,
            kind=self._kind,
            checkpoint=checkpoint,
            overrides=overrides,
            on_progress=on_progress,
        )


IMAGES: Task = TranscriptionTask(LINES, inputs.IMAGES)
AUDIO: Task = TranscriptionTask(SOUNDS, inputs.AUDIO)
