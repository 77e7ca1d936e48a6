"""Translation as training sees it."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headwise.config import Config, Vocab
from headwise.data import ParallelFiles, Text, TokenShards, load_subwords, prepare
from headwise.data.batches import Rows
from headwise.data.pairs import PAIR_FIELDS, PairBatch, collate_pairs
from headwise.data.prepare import PreparedReport
from headwise.files import Folder
from headwise.languages import is_known
from headwise.model import check_batch
from headwise.runs.directory import RunDirectory
from headwise.tasks.report import Contents
from headwise.tasks.translation.bleu import TranslationEvaluator
from headwise.tasks.translation.report import report_contents
from headwise.tasks.translation.translator import Translator
from headwise.training.step import TrainingStep
from headwise.training.task import Progress, Task, ValidationData

_USUAL_LENGTH = 25
"""Tokens of a sentence, about."""


class TranslationTask:
    """Pairs of sentences in, a Transformer out."""

    name = "translation"
    fields = PAIR_FIELDS
    unit = "pairs"

    def prepare(
        self,
        source: Text,
        config: Config,
        directory: Path,
        *,
        valid: Text | None,
        lenient: bool,
        processes: int | None,
        tokenizer_from: Folder | None,
        on_progress: Progress,
    ) -> PreparedReport:
        """Learn subwords, or use another run's, and encode the pairs."""
        return prepare(
            source,
            config,
            directory,
            valid=valid,
            lenient=lenient,
            processes=processes,
            subwords=None if tokenizer_from is None else load_subwords(tokenizer_from),
            on_progress=on_progress,
        )

    def complete(self, config: Config, source: Text | None, before: Config | None) -> Config:
        """Fill in the languages, from the names of the files or from the run."""
        if config.data.source_language or config.data.target_language:
            return config
        languages = _languages_of(source)
        if before is not None:
            languages = before.data.source_language, before.data.target_language
        data = replace(config.data, source_language=languages[0], target_language=languages[1])
        return replace(config, data=data)

    def origin(self, train: TokenShards) -> dict[str, Any]:
        """Return how many pairs there are, and the length of the longest source."""
        return {
            "longest_source": int(train.lengths("source").max(initial=0)),
            "train_pairs": len(train),
        }

    def vocab(self, config: Config, folder: Folder | None) -> Vocab:
        """Read the sizes of both vocabularies."""
        if folder is None:
            return Vocab.shared(config.data.vocab_size)
        source, target = load_subwords(folder)
        return Vocab(source_size=len(source), target_size=len(target))

    def objective(self, model: nn.Module, config: Config) -> TrainingStep:
        """Predict each target token, with label smoothing."""
        return TrainingStep(model, label_smoothing=config.train.label_smoothing)

    def collate(self, rows: Rows, vocab: Vocab, key: tuple[int, int]) -> PairBatch:
        """Pad pairs, and check their ids."""
        batch = collate_pairs(rows, vocab)
        check_batch(*batch, vocab)
        return batch

    def example_batch(self, config: Config, vocab: Vocab, tokens: int) -> tuple[Tensor, ...]:
        """Make up pairs of sentences of a usual length."""
        shape = (max(1, tokens // _USUAL_LENGTH), _USUAL_LENGTH)
        first = max(vocab.pad, vocab.unk, vocab.bos, vocab.eos) + 1
        places = torch.arange(math.prod(shape)).view(shape)
        src = places % (vocab.source_size - first) + first
        tgt = places % (vocab.target_size - first) + first
        return PairBatch(src=src, tgt_in=tgt, tgt_out=tgt)

    def evaluator(self, data: ValidationData, config: Config) -> TranslationEvaluator:
        """Measure perplexity of words, and BLEU if `train.bleu_pairs` says so."""
        return TranslationEvaluator(data, config)

    def predictor(self, run: Path, *, checkpoint: str | None = None) -> Translator:
        """Load a run as a Translator."""
        return Translator.load(run, checkpoint=checkpoint)

    def report_contents(
        self,
        run: RunDirectory,
        predictor: Translator,
        values: Mapping[str, Any],
        on_progress: Progress,
    ) -> Contents:
        """Describe a run: BLEU and chrF on a test set, samples beside their references."""
        return report_contents(run, predictor, values, on_progress)


def _languages_of(text: Text | None) -> tuple[str, str]:
    """Return the languages that files have in their names, as train.en and train.de.gz do."""
    if not isinstance(text, ParallelFiles):
        return "", ""
    source, target = ({_ending(path) for path in paths} for paths in (text.sources, text.targets))
    found = {*source, *target}
    if len(source) == len(target) == 1 and len(found) == 2 and all(map(is_known, found)):
        return source.pop(), target.pop()
    return "", ""


def _ending(path: Path) -> str:
    """Return what a file's name ends with, not counting how it is compressed."""
    name = path.with_suffix("") if path.suffix in (".gz", ".xz", ".zst") else path
    return name.suffix.removeprefix(".")


TASK: Task = TranslationTask()
