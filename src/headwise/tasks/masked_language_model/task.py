"""The masked language model as training sees it."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from headwise.config import MaskedLanguageModelConfig, Vocab
from headwise.data import TokenShards
from headwise.data.batches import Field, Rows
from headwise.errors import ConfigError, DataError
from headwise.files import Folder
from headwise.model.batch import check_ids
from headwise.tasks.language_model.files import TextFiles
from headwise.tasks.language_model.inputs import text_files
from headwise.tasks.language_model.prepare import TextReport
from headwise.tasks.language_model.text_tokenizer import STREAM, TextTokenizer
from headwise.tasks.masked_language_model.evaluation import MaskedEvaluation, evaluate_runs
from headwise.tasks.masked_language_model.filler import MaskFiller
from headwise.tasks.masked_language_model.masking import mask_block
from headwise.tasks.masked_language_model.prepare import (
    BEGINS,
    PREDICTED,
    notes,
    prepare_blocks,
)
from headwise.tasks.masked_language_model.tokenizer import MaskTokenizer
from headwise.training.distributed import World
from headwise.training.step import TrainingStep
from headwise.training.task import Progress, Task, ValidationData

_LONGEST_EXAMPLE = 128


class MaskedBatch(NamedTuple):
    """Padded ids with masks among them, and the ids to predict; pad where there are none."""

    inputs: Tensor  # [B, S]
    targets: Tensor  # [B, S]


class MaskedLanguageModelTask:
    """Text in, an encoder that predicts masked tokens out."""

    name = "masked-language-model"
    fields: tuple[Field, ...] = (
        Field(BEGINS, in_budget=False),
        Field(STREAM, extra=2, vocab="source"),
        Field(PREDICTED, in_budget=False),
    )
    unit = "blocks"

    def prepare(
        self,
        source: TextFiles,
        config: MaskedLanguageModelConfig,
        directory: Path,
        *,
        valid: TextFiles | None,
        lenient: bool,
        processes: int | None,
        tokenizer_from: Folder | None,
        on_progress: Progress,
    ) -> TextReport:
        """Learn subwords, or use another run's, and cut the text into blocks."""
        return prepare_blocks(
            source,
            config,
            directory,
            valid=valid,
            lenient=lenient,
            processes=processes,
            tokenizer=None if tokenizer_from is None else TextTokenizer.load(tokenizer_from),
            on_progress=on_progress,
        )

    def origin(self, train: TokenShards) -> dict[str, Any]:
        """Return how many blocks and tokens there are."""
        return {"train_blocks": len(train), "train_tokens": int(train.lengths(STREAM).sum())}

    def vocab(self, config: MaskedLanguageModelConfig, folder: Folder | None) -> Vocab:
        """Read the size of the vocabulary and the id of the mask."""
        if folder is None:
            return config.row.vocab(config)
        return MaskTokenizer.load(folder).vocab

    def objective(self, model: nn.Module, config: MaskedLanguageModelConfig) -> TrainingStep:
        """Predict each masked token."""
        return TrainingStep(model, label_smoothing=config.train.label_smoothing)

    def collate(self, rows: Rows, vocab: Vocab, key: tuple[int, int]) -> MaskedBatch:
        """Mask blocks, put the class token before and eos after each, pad and check them."""
        (ids, lengths), (begins, _) = rows[STREAM], rows[BEGINS]
        shape = (len(lengths), int(lengths.max()) + 2)
        inputs, targets = (np.full(shape, vocab.pad, dtype=np.int64) for _ in range(2))
        inputs[:, 0] = vocab.bos
        ends = np.cumsum(lengths)
        for row, (start, end) in enumerate(zip(ends - lengths, ends, strict=True)):
            read, predicted = mask_block(
                ids[start:end].astype(np.int64), begins[start:end] > 0, vocab, key
            )
            after = 1 + len(read)
            inputs[row, 1:after], targets[row, 1:after] = read, predicted
            inputs[row, after] = vocab.eos
        batch = MaskedBatch(inputs=torch.from_numpy(inputs), targets=torch.from_numpy(targets))
        check_ids(STREAM, batch.inputs, vocab.source_size, vocab)
        return batch

    def example_batch(
        self, config: MaskedLanguageModelConfig, vocab: Vocab, tokens: int
    ) -> tuple[Tensor, ...]:
        """Make up blocks, of the context or of a usual length."""
        length = min(config.data.context, max(_LONGEST_EXAMPLE, tokens))
        shape = (max(1, tokens // length), length)
        ids = torch.arange(math.prod(shape)).view(shape) % (vocab.source_size - 4) + 4
        targets = torch.where(torch.arange(length) % 7 == 0, ids, vocab.pad)
        return MaskedBatch(inputs=ids, targets=targets)

    def evaluator(
        self, data: ValidationData, config: MaskedLanguageModelConfig
    ) -> "MaskedEvaluator":
        """Measure nothing but the loss of masked tokens."""
        return MaskedEvaluator(data, config)

    def predictor(self, run: Path, *, checkpoint: str | None = None) -> MaskFiller:
        """Load a run as a MaskFiller."""
        return MaskFiller.load(run, checkpoint=checkpoint)

    def evaluate(
        self,
        runs: Sequence[Path],
        values: Mapping[str, Any],
        *,
        checkpoint: str | None,
        overrides: Sequence[str],
        on_progress: Progress,
    ) -> MaskedEvaluation:
        """Measure runs on the text that --text names."""
        files = text_files(values, "text")
        if files is None:
            raise ConfigError("give the text to evaluate on with --text")
        return evaluate_runs(runs, files, checkpoint=checkpoint, on_progress=on_progress)


class MaskedEvaluator:
    """Check that validation data is that of the config; the loss says the rest."""

    score = ""

    def __init__(self, data: ValidationData, config: MaskedLanguageModelConfig) -> None:
        for key, value in notes(config.data).items():
            if data.shards.notes.get(key) != value:
                raise DataError(
                    f"{data.shards.directory}: not prepared with data.{key} = {value!r}: "
                    "prepare it anew, or give the value that it was prepared with"
                )

    def measure(self, model: nn.Module, nll: float, world: World) -> dict[str, float]:
        """Return no figures."""
        return {}


TASK: Task = MaskedLanguageModelTask()
