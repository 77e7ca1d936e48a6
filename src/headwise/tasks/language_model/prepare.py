"""Prepare text for a language model: learn its subwords, encode it, pack it into blocks.

Documents are joined by eos and cut into blocks whatever their ends; see packing.py. A prepared
directory is whole or not there at all:

    tokenizer/            the subwords
    train/, valid/        shards of blocks; the notes of valid/ count its bytes and words
    report.json           what was read, mended, left out and why
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwise.config import (
    LanguageModelConfig,
    MaskedDataConfig,
    MaskedLanguageModelConfig,
    TextDataConfig,
)
from headwise.data import LineReport, ShardWriter
from headwise.data.pool import in_processes
from headwise.data.subwords import sample_texts
from headwise.errors import DataError
from headwise.files import new_directory, write_file
from headwise.machine import num_cores
from headwise.seeding import hashed
from headwise.tasks.language_model.files import TextFiles, read_text_blocks
from headwise.tasks.language_model.packing import BlockWriter
from headwise.tasks.language_model.records import (
    Documents,
    EncodedPiece,
    RecordEncoder,
    RecordReader,
)
from headwise.tasks.language_model.text_tokenizer import STREAM, TextTokenizer
from headwise.training.task import Progress

_BYTES_FOR_ONE_PROCESS = 2_000_000
"""So much is encoded before other processes would have been started."""

_MOST_HELD_OUT = 0.1
_FEWEST_HELD_OUT = 10
"""Documents to expect in the part that is held out; where they are fewer, spans are held out."""


@dataclass(frozen=True, kw_only=True)
class TextReport:
    """What became of the training text and of the validation text."""

    train: LineReport
    valid: LineReport
    context: int
    train_blocks: int
    train_tokens: int
    valid_blocks: int
    valid_tokens: int
    vocab: int
    held_out: int
    """Documents, or spans, of the training text that were held out."""
    held_out_of: int
    unit: str
    """What they are called: "documents" or "spans"."""

    def to_dict(self) -> dict[str, object]:
        """Return the report as JSON can hold it."""
        return {**vars(self), "train": self.train.to_dict(), "valid": self.valid.to_dict()}

    def lines(self) -> list[str]:
        """Say it in sentences: what there is to train on, what was left out and why."""
        lines = [
            f"{self.train_blocks:,} blocks of {self.context:,} tokens to train on "
            f"({self.train_tokens:,} tokens), {self.valid_blocks:,} to validate on "
            f"({self.valid_tokens:,}), vocabulary {self.vocab:,}"
        ]
        if self.held_out_of:
            lines.append(
                f"held out {self.held_out:,} of {self.held_out_of:,} {self.unit} to validate on"
            )
        for name, part in (("training", self.train), ("validation", self.valid)):
            lines += [f"{name} text: {sentence}" for sentence in part.lines("lines")]
        return lines


def prepare_text(
    text: TextFiles,
    config: LanguageModelConfig | MaskedLanguageModelConfig,
    directory: Path,
    *,
    valid: TextFiles | None = None,
    lenient: bool = False,
    processes: int | None = None,
    tokenizer: TextTokenizer | None = None,
    controls: Sequence[str] = (),
    on_progress: Progress = lambda *_: None,
) -> TextReport:
    """Learn subwords from text, unless a tokenizer is given, and write a prepared directory.

    A tokenizer that is learned has an entry for each of `controls`. Without validation text,
    documents are held out by their number in the text; where there are too few documents, spans of
    them are. Memory does not grow with the text, and the result does not depend on the number of
    processes.
    """
    if directory.exists():
        raise DataError(f"{directory} exists already: choose another name, or remove it")
    data, seed = config.data, config.train.seed
    with new_directory(directory) as temporary:
        count = _Count()
        lines = count.lines(text, data, lenient, on_progress)
        # Where a tokenizer is given, the text is still read once: to count it and find faults.
        size = data.sample_lines if tokenizer is None else 1
        sample = sample_texts(((line,) for line in lines), size, seed, unit="lines")
        if not sample:
            raise DataError(f"nothing to train on: of {count.report.pairs:,} lines none has text")
        if tokenizer is None:
            on_progress("learning subwords", 0, None)
            tokenizer = TextTokenizer.learn((line for (line,) in sample), data, controls=controls)
        del sample
        encodes = tokenizer  # mypy: never None in the function below.
        tokenizer.save(temporary)
        if processes is None:
            processes = num_cores() if count.num_bytes > _BYTES_FOR_ONE_PROCESS else 1
        holdout = _Holdout.of(count, data, seed, is_wanted=valid is None)
        sizes = {STREAM: len(tokenizer)}
        train_report, valid_report = LineReport(), LineReport()

        def pieces(files: TextFiles, span_bytes: int, report: LineReport) -> Iterator[EncodedPiece]:
            reader = RecordReader(data=data, lenient=lenient, span_bytes=span_bytes)
            encoder = RecordEncoder(reader=reader, tokenizer=encodes)
            blocks = read_text_blocks(files, lenient=lenient)
            for found, counts in in_processes(encoder.encode, blocks, processes):
                report.add(counts)
                on_progress("encoding", report.pairs, count.report.pairs)
                yield from found

        with ShardWriter(temporary / "valid", sizes) as valid_shards:
            held_out = BlockWriter(valid_shards, data.context)
            with ShardWriter(temporary / "train", sizes) as train_shards:
                train = BlockWriter(train_shards, data.context)
                found = pieces(text, holdout.span_bytes, train_report)
                holdout.share_out(found, train, held_out, tokenizer.line_break)
                train.finish()
            if valid is not None:
                found = pieces(valid, 0, valid_report)
                _Holdout().share_out(found, held_out, held_out, tokenizer.line_break)
            held_out.finish()
            valid_shards.notes.update(
                bytes=held_out.num_bytes, words=held_out.words, context=data.context
            )
        if not len(train_shards):
            raise DataError(
                f"nothing to train on: all {holdout.units:,} {holdout.unit} were held out to "
                "validate on: give more text, or --valid-text"
            )
        report = TextReport(
            train=train_report,
            valid=valid_report,
            context=data.context,
            train_blocks=len(train_shards),
            train_tokens=train.tokens,
            valid_blocks=len(valid_shards),
            valid_tokens=held_out.tokens,
            vocab=len(tokenizer),
            held_out=holdout.held_out,
            held_out_of=holdout.units if valid is None else 0,
            unit=holdout.unit,
        )
        write_file(temporary / "report.json", json.dumps(report.to_dict(), indent=1).encode())
    return report


class _Count:
    """What is in a text, counted while its lines are read for the first time."""

    def __init__(self) -> None:
        self.report = LineReport()
        self.num_bytes = self.documents = 0

    def lines(
        self,
        text: TextFiles,
        data: TextDataConfig | MaskedDataConfig,
        lenient: bool,
        on_progress: Progress,
    ) -> Iterator[str]:
        reader, documents = RecordReader(data=data, lenient=lenient), Documents()
        for block in read_text_blocks(text, lenient=lenient):
            pieces, report = reader.read(block)
            self.report.add(report)
            on_progress("reading", self.report.pairs, None)
            for piece in pieces:
                self.num_bytes += piece.num_bytes
                if not documents.continues(piece):
                    self.documents += bool(piece.lines)
                yield from (line for line in piece.lines if line)


@dataclass(kw_only=True)
class _Holdout:
    """Which pieces of a text are held out to validate on: whole documents, or spans of them."""

    share: float = 0.0
    span_bytes: int = 0
    seed: int = 1
    units: int = 0
    """How many documents or spans there were so far."""
    held_out: int = 0

    @classmethod
    def of(
        cls, count: _Count, data: TextDataConfig | MaskedDataConfig, seed: int, *, is_wanted: bool
    ) -> "_Holdout":
        if not is_wanted:
            return cls()
        share = min(_MOST_HELD_OUT, data.holdout_bytes / max(1, count.num_bytes))
        span_bytes = 0
        if count.documents * share < _FEWEST_HELD_OUT:
            span_bytes = max(1, int(count.num_bytes * share / _FEWEST_HELD_OUT))
        return cls(share=share, span_bytes=span_bytes, seed=seed)

    @property
    def unit(self) -> str:
        return "spans" if self.span_bytes else "documents"

    def share_out(
        self,
        pieces: Iterator[EncodedPiece],
        train: BlockWriter,
        valid: BlockWriter,
        line_break: int,
    ) -> None:
        """Add each piece to one of two streams.

        A document that goes on in the same stream is joined by a line break; one of which the
        other stream has a part goes on as another document.
        """
        side, documents = train, Documents()
        for piece in pieces:
            before, continues = side, documents.continues(piece)
            if piece.num_lines and (self.span_bytes or not continues):
                side = valid if self._is_held_out() else train
            side.num_bytes += piece.num_bytes
            side.words += piece.words
            if piece.num_lines:
                joins = continues and side is before
                side.add(piece.ids, join=line_break if joins else None)

    def _is_held_out(self) -> bool:
        held_out = hashed(f"holdout {self.seed} {self.units}") < self.share * 2**64
        self.units += 1
        self.held_out += held_out
        return held_out
