"""Parsing as training sees it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from headwise.config import ParsingConfig, Vocab
from headwise.data import TokenShards
from headwise.data.batches import Field, Rows, padded
from headwise.data.pairs import collate_pairs
from headwise.data.tokenizer import has_stream, load_stream
from headwise.errors import ConfigError
from headwise.evaluation import COLLINS, read_parameters
from headwise.files import Folder
from headwise.model import check_batch
from headwise.model.batch import check_aligned
from headwise.runs.directory import RunDirectory
from headwise.tasks.language_model.text_tokenizer import STREAM as MASKED_STREAM
from headwise.tasks.parsing.files import TreeFiles
from headwise.tasks.parsing.inputs import tree_files
from headwise.tasks.parsing.parser import Parser
from headwise.tasks.parsing.prepare import ALIGNED, TreeReport, prepare_trees
from headwise.tasks.parsing.report import report_contents
from headwise.tasks.parsing.scores import ParsingEvaluation, evaluate_runs
from headwise.tasks.parsing.tokenizer import SOURCE, TARGET, TreeTokenizer
from headwise.tasks.parsing.validation import TreeEvaluator
from headwise.tasks.report import Contents
from headwise.training.step import TrainingStep
from headwise.training.task import Progress, Task, ValidationData

_USUAL_WORDS, _USUAL_SYMBOLS = 25, 62
"""Of a sentence and of its tree, about."""


class TreeBatch(NamedTuple):
    """Padded ids and, for each target position, the source position of the next word."""

    src: Tensor  # [B, S]
    tgt_in: Tensor  # [B, T]
    aligned: Tensor  # [B, T]
    tgt_out: Tensor  # [B, T]


class ParsingTask:
    """Trees in, a Transformer that parses out."""

    name = "parsing"
    fields: tuple[Field, ...] = (
        Field(SOURCE, extra=1, vocab="source"),
        Field(ALIGNED, in_budget=False),
        Field(TARGET, extra=1, vocab="target"),
    )
    unit = "trees"
    starts_from: Mapping[str, tuple[str, ...]] = {
        "masked-language-model": ("decoder.", "target_embedding.", "target_positions.", "output.")
    }

    def prepare(
        self,
        source: TreeFiles,
        config: ParsingConfig,
        directory: Path,
        *,
        valid: TreeFiles | None,
        lenient: bool,
        processes: int | None,
        tokenizer_from: Folder | None,
        on_progress: Progress,
    ) -> TreeReport:
        """Learn subwords and symbols, or use another run's, and encode the trees."""
        tokenizer = subwords = None
        if tokenizer_from is not None and has_stream(tokenizer_from, TARGET):
            tokenizer = TreeTokenizer.load(tokenizer_from)
        elif tokenizer_from is not None:
            subwords = load_stream(tokenizer_from, MASKED_STREAM)
        return prepare_trees(
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
        """Return how many trees there are, and the length of the longest sentence."""
        return {
            "longest_source": int(train.lengths(SOURCE).max(initial=0)),
            "train_trees": len(train),
        }

    def vocab(self, config: ParsingConfig, folder: Folder | None) -> Vocab:
        """Read the sizes of both vocabularies."""
        if folder is None:
            return config.row.vocab(config)
        return TreeTokenizer.load(folder).vocab

    def objective(self, model: nn.Module, config: ParsingConfig) -> TrainingStep:
        """Predict each symbol, with label smoothing."""
        kind = TrainingStep if config.model.aligned_input else _UnalignedStep
        return kind(model, label_smoothing=config.train.label_smoothing)

    def collate(self, rows: Rows, vocab: Vocab, key: tuple[int, int]) -> TreeBatch:
        """Pad sentences and trees, and check them."""
        src, tgt_in, tgt_out = collate_pairs(rows, vocab)
        check_batch(src, tgt_in, tgt_out, vocab)
        aligned = padded(rows[ALIGNED], pad=0)
        check_aligned(aligned, src, tgt_in, vocab)
        return TreeBatch(src=src, tgt_in=tgt_in, aligned=aligned, tgt_out=tgt_out)

    def example_batch(self, config: ParsingConfig, vocab: Vocab, tokens: int) -> tuple[Tensor, ...]:
        """Make up sentences and trees of a usual length."""
        count = max(1, tokens // _USUAL_SYMBOLS)
        first = max(vocab.pad, vocab.unk, vocab.bos, vocab.eos) + 1
        src, tgt = (
            torch.arange(count * length).view(count, length) % (size - first) + first
            for length, size in (
                (_USUAL_WORDS, vocab.source_size),
                (_USUAL_SYMBOLS, vocab.target_size),
            )
        )
        aligned = torch.arange(_USUAL_SYMBOLS) * _USUAL_WORDS // _USUAL_SYMBOLS
        return TreeBatch(src=src, tgt_in=tgt, aligned=aligned.expand_as(tgt), tgt_out=tgt)

    def evaluator(self, data: ValidationData, config: ParsingConfig) -> TreeEvaluator:
        """Measure the bracket F1 of `data.f1_trees` trees."""
        return TreeEvaluator(data, config)

    def predictor(self, run: Path, *, checkpoint: str | None = None) -> Parser:
        """Load a run as a Parser."""
        return Parser.load(run, checkpoint=checkpoint)

    def report_contents(
        self,
        run: RunDirectory,
        predictor: Parser,
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
    ) -> ParsingEvaluation:
        """Measure runs on the trees that --trees names."""
        files, parameters = tree_files(values, "trees"), values.get("parameters")
        if files is None:
            raise ConfigError("give the trees to evaluate on with --trees")
        return evaluate_runs(
            runs,
            files,
            parameters=COLLINS if parameters is None else read_parameters(parameters),
            checkpoint=checkpoint,
            overrides=overrides,
            on_progress=on_progress,
        )


class _UnalignedStep(TrainingStep):
    """The step of a model without `aligned_input`, which takes no source positions."""

    def forward(self, *batch: Tensor) -> Any:
        src, tgt_in, _, tgt_out = batch
        return super().forward(src, tgt_in, tgt_out)


TASK: Task = ParsingTask()
