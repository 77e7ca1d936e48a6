"""Prepare text for a masked language model: a language model's blocks, and where words begin.

A prepared directory is whole or not there at all; it is that of a language model with another
stream:

    train/, valid/        the ids of a block, without class token and eos; for each of them,
                          whether it can be masked apart from the one before; and a zero for each
                          that is to be predicted, for the sake of their number
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headwise.config import MaskedDataConfig, MaskedLanguageModelConfig
from headwise.data import ShardWriter, TokenShards
from headwise.data.tokenizer import copy_tokenizer
from headwise.files import Folder, new_directory, remove_directory, write_file
from headwise.tasks.language_model.files import TextFiles
from headwise.tasks.language_model.prepare import TextReport, prepare_text
from headwise.tasks.language_model.text_tokenizer import STREAM, TextTokenizer
from headwise.tasks.masked_language_model.masking import num_predicted
from headwise.tasks.masked_language_model.tokenizer import MASK, MaskTokenizer
from headwise.training.task import Progress

BEGINS = "begins"
"""The stream that says what can be masked by itself: 1 at the first token of a word."""

PREDICTED = "predicted"
"""The stream that has as many positions as are to be predicted."""


def prepare_blocks(
    text: TextFiles,
    config: MaskedLanguageModelConfig,
    directory: Path,
    *,
    valid: TextFiles | None = None,
    lenient: bool = False,
    processes: int | None = None,
    tokenizer: TextTokenizer | None = None,
    on_progress: Progress = lambda *_: None,
) -> TextReport:
    """Learn subwords from text, unless a tokenizer is given, and write a prepared directory."""
    with new_directory(directory) as temporary:
        plain = temporary / "plain"
        report = prepare_text(
            text,
            config,
            plain,
            valid=valid,
            lenient=lenient,
            processes=processes,
            tokenizer=tokenizer,
            controls=(MASK,),
            on_progress=on_progress,
        )
        copy_tokenizer(Folder.of(plain), temporary)
        words = _Words(MaskTokenizer.load(temporary), config.data)
        for part in ("train", "valid"):
            words.rewrite(TokenShards(plain / part), temporary / part)
        write_file(temporary / "report.json", (plain / "report.json").read_bytes())
        remove_directory(plain)
    return report


def notes(data: MaskedDataConfig) -> dict[str, Any]:
    """Return the settings that shards were made by, which a run of them must share."""
    return {"context": data.context, "whole_words": data.whole_words}


@dataclass(frozen=True)
class _Words:
    tokenizer: MaskTokenizer
    data: MaskedDataConfig

    def rewrite(self, blocks: TokenShards, directory: Path) -> None:
        """Write a language model's blocks again, with the second stream."""
        sizes = {STREAM: len(self.tokenizer.text), BEGINS: 2, PREDICTED: 1}
        with ShardWriter(directory, sizes) as shards:
            shards.notes.update(notes(self.data))
            for number in range(len(blocks)):
                # Each block begins with the last token of the one before.
                ids = blocks.sequence(STREAM, number)[1:]
                begins = np.ones(len(ids), dtype=np.bool_)
                if self.data.whole_words:
                    begins = self.tokenizer.word_begins(ids)
                length, predicted = np.array([len(ids)]), num_predicted(len(ids))
                shards.add(
                    {
                        STREAM: (ids, length),
                        BEGINS: (begins.astype(np.int64), length),
                        PREDICTED: (np.zeros(predicted, np.int64), np.array([predicted])),
                    }
                )
