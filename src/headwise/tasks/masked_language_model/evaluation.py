"""`headwise evaluate` for masked language models: how well masked tokens are predicted."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headwise.config import Vocab
from headwise.errors import DataError
from headwise.evaluation.table import text_table
from headwise.tasks.language_model.files import TextFiles, read_text_blocks
from headwise.tasks.language_model.records import Documents, RecordEncoder, RecordReader
from headwise.tasks.masked_language_model.filler import MaskFiller
from headwise.tasks.masked_language_model.masking import mask_block
from headwise.training.task import Progress
from headwise.visible import visible

_ROWS = 32
"""Blocks that are read at once."""


@dataclass(frozen=True, kw_only=True)
class RunMasks:
    """How one run predicts the masked tokens of a text."""

    run: str
    weights: str
    predicted: int
    nll: float
    """The sum over all of them, in nats."""
    right: int
    """Of how many the most probable token is the right one."""

    @property
    def perplexity(self) -> float:
        """The perplexity of a masked token."""
        return math.exp(self.nll / self.predicted)

    @property
    def accuracy(self) -> float:
        """The share of masked tokens that are the most probable ones."""
        return self.right / self.predicted

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return {**vars(self), "perplexity": self.perplexity, "accuracy": self.accuracy}


@dataclass(frozen=True, kw_only=True)
class MaskedEvaluation:
    """How several runs predict the masked tokens of the same text."""

    runs: tuple[RunMasks, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return {"runs": [run.to_dict() for run in self.runs]}

    def text(self) -> str:
        """Return a line for each run."""
        rows = [
            (
                visible(run.weights),
                f"{run.perplexity:.2f}",
                f"{100 * run.accuracy:.1f}",
                f"{run.predicted:,}",
            )
            for run in self.runs
        ]
        return text_table(("run", "perplexity of a masked token", "right, %", "masked"), rows)


def evaluate_runs(
    runs: Sequence[Path],
    files: TextFiles,
    *,
    checkpoint: str | None = None,
    on_progress: Progress = lambda *_: None,
) -> MaskedEvaluation:
    """Mask a text as validation does, and predict it with each run."""
    found = []
    for run in runs:
        filler = MaskFiller.load(run, checkpoint=checkpoint)
        found.append(_predicted(run, filler, files, on_progress))
    return MaskedEvaluation(runs=tuple(found))


def _predicted(run: Path, filler: MaskFiller, files: TextFiles, on_progress: Progress) -> RunMasks:
    vocab, model, config = filler.model.vocab, filler.model, filler.config
    device = model.output.weight.device
    nll, right, predicted = 0.0, 0, 0
    blocks = list(_blocks(filler, files))
    if not blocks:
        raise DataError(f"{files.paths[0]}: there is no text to evaluate on")
    with torch.inference_mode():
        for start in range(0, len(blocks), _ROWS):
            on_progress(f"masks of {run.name}", start, len(blocks))
            part = blocks[start : start + _ROWS]
            shape = (len(part), max(map(len, part)) + 2)
            read, targets = (np.full(shape, vocab.pad) for _ in range(2))
            for row, ids in enumerate(part):
                begins = np.ones(len(ids), dtype=np.bool_)
                if config.data.whole_words:
                    begins = filler.tokenizer.word_begins(ids)
                masked, wanted = mask_block(ids, begins, vocab, (config.train.seed, 0))
                read[row, 0], read[row, len(ids) + 1] = vocab.bos, vocab.eos
                read[row, 1 : len(ids) + 1], targets[row, 1 : len(ids) + 1] = masked, wanted
            hidden = model.hidden(torch.from_numpy(read).to(device))
            wanted_ids = torch.from_numpy(targets).to(device)
            chosen = wanted_ids != vocab.pad
            log_probs = model.output(hidden[chosen]).double().log_softmax(1)
            wanted_ids = wanted_ids[chosen]
            nll -= float(log_probs.gather(1, wanted_ids[:, None]).sum())
            right += int((log_probs.argmax(1) == wanted_ids).sum())
            predicted += len(wanted_ids)
    return RunMasks(run=str(run), weights=filler.name, predicted=predicted, nll=nll, right=right)


def _blocks(filler: MaskFiller, files: TextFiles) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
    """Cut a text into blocks as preparation does: documents are separated by eos."""
    data, text = filler.config.data, filler.tokenizer.text
    encoder = RecordEncoder(reader=RecordReader(data=data), tokenizer=text)
    documents, ids, is_first = Documents(), [], True
    for block in read_text_blocks(files, lenient=False):
        for piece in encoder.encode(block)[0]:
            continues = documents.continues(piece)
            if not piece.num_lines:
                continue
            if not is_first:
                ids.append(text.line_break if continues else Vocab.eos)
            is_first = False
            ids += piece.ids.tolist()
            while len(ids) >= data.context:
                yield np.array(ids[: data.context])
                ids = ids[data.context :]
    if ids:
        yield np.array(ids)
