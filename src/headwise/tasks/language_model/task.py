"""The language model as training sees it."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headwise.config import LanguageModelConfig, Vocab
from headwise.data import TokenShards
from headwise.data.batches import Field, Rows, padded
from headwise.errors import ConfigError, DataError
from headwise.files import Folder
from headwise.model.batch import check_ids
from headwise.runs.directory import RunDirectory
from headwise.tasks.language_model.evaluation import TextEvaluation, evaluate_runs
from headwise.tasks.language_model.files import TextFiles
from headwise.tasks.language_model.generator import Generator
from headwise.tasks.language_model.inputs import text_files
from headwise.tasks.language_model.prepare import TextReport, prepare_text
from headwise.tasks.language_model.report import report_contents
from headwise.tasks.language_model.text_tokenizer import STREAM, TextTokenizer
from headwise.tasks.report import Contents
from headwise.training.distributed import World
from headwise.training.step import TrainingStep
from headwise.training.task import Progress, Task, ValidationData
from headwise.training.window import perplexity

_LONGEST_EXAMPLE = 128


class TextBatch(NamedTuple):
    """Padded ids: each target is the input after it."""

    inputs: Tensor  # [B, T]
    targets: Tensor  # [B, T]


class LanguageModelTask:
    """Text in, a decoder that continues text out."""

    name = "language-model"
    fields: tuple[Field, ...] = (Field(STREAM, extra=-1, vocab="target"),)
    unit = "blocks"

    def prepare(
        self,
        source: TextFiles,
        config: LanguageModelConfig,
        directory: Path,
        *,
        valid: TextFiles | None,
        lenient: bool,
        processes: int | None,
        tokenizer_from: Folder | None,
        on_progress: Progress,
    ) -> TextReport:
        """Learn subwords, or use another run's, and pack the text into blocks."""
        return prepare_text(
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
        """Return how many blocks and tokens to predict there are."""
        lengths = train.lengths(STREAM)
        return {"train_blocks": len(train), "train_tokens": int(lengths.sum() - len(lengths))}

    def vocab(self, config: LanguageModelConfig, folder: Folder | None) -> Vocab:
        """Read the size of the vocabulary."""
        if folder is not None:
            return TextTokenizer.load(folder).vocab
        size = config.data.vocab_size
        return Vocab(source_size=size, target_size=size, start=Vocab.eos)

    def objective(self, model: nn.Module, config: LanguageModelConfig) -> TrainingStep:
        """Predict each next token."""
        return TrainingStep(model, label_smoothing=config.train.label_smoothing)

    def collate(self, rows: Rows, vocab: Vocab, key: tuple[int, int]) -> TextBatch:
        """Pad blocks, check their ids, and shift them."""
        blocks = padded(rows[STREAM], pad=vocab.pad)
        check_ids(STREAM, blocks, vocab.target_size, vocab)
        return TextBatch(inputs=blocks[:, :-1].contiguous(), targets=blocks[:, 1:].contiguous())

    def example_batch(
        self, config: LanguageModelConfig, vocab: Vocab, tokens: int
    ) -> tuple[Tensor, ...]:
        """Make up blocks, of the context or of a usual length."""
        length = min(config.data.context, max(_LONGEST_EXAMPLE, tokens))
        shape = (max(1, tokens // length), length)
        first = max(vocab.pad, vocab.unk, vocab.bos, vocab.eos) + 1
        ids = torch.arange(math.prod(shape)).view(shape) % (vocab.target_size - first) + first
        return TextBatch(inputs=ids, targets=ids)

    def evaluator(self, data: ValidationData, config: LanguageModelConfig) -> "TextEvaluator":
        """Measure bits per byte and the perplexity of words."""
        return TextEvaluator(data, config.data.context)

    def predictor(self, run: Path, *, checkpoint: str | None = None) -> Generator:
        """Load a run as a Generator."""
        return Generator.load(run, checkpoint=checkpoint)

    def report_contents(
        self,
        run: RunDirectory,
        predictor: Generator,
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
    ) -> TextEvaluation:
        """Measure runs on the text that --text names."""
        files = text_files(values, "text")
        if files is None:
            raise ConfigError("give the text to evaluate on with --text")
        return evaluate_runs(
            runs, files, checkpoint=checkpoint, overrides=overrides, on_progress=on_progress
        )


class TextEvaluator:
    """The validation text's bytes and words, which its shards' notes count."""

    score = ""

    def __init__(self, data: ValidationData, context: int) -> None:
        notes = data.shards.notes
        if notes.get("context") != context:
            raise DataError(
                f"{data.shards.directory}: not prepared with data.context = {context}: "
                "prepare it anew, or give the context that it was prepared with"
            )
        counts = [notes.get(name) for name in ("bytes", "words")]
        if not all(type(count) is int and 0 < count < 2**62 for count in counts):
            raise DataError(
                f"{data.shards.directory}: its notes do not count bytes and words: prepare it anew"
            )
        self._bytes, self._words = notes["bytes"], notes["words"]

    def measure(self, model: nn.Module, nll: float, world: World) -> dict[str, float]:
        """Return the figures. The first tokens of a block have little context: see `evaluate`."""
        return {
            "bits_per_byte": nll / math.log(2) / self._bytes,
            "word_perplexity": perplexity(nll / self._words),
            "words": self._words,
            "bytes": self._bytes,
        }


TASK: Task = LanguageModelTask()
