"""From blocks of raw text to pieces of documents as token ids: what one process does."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headwise.config import MaskedDataConfig, TextDataConfig
from headwise.data.text import LineReport, decode_line
from headwise.errors import DataError
from headwise.tasks.language_model.files import DocumentBlock, TextBlock
from headwise.tasks.language_model.text_tokenizer import LINE_BREAK, TextTokenizer

_ADVICE = "convert the file, or leave such lines out with --lenient"


@dataclass(kw_only=True)
class TextPiece:
    """Consecutive lines of one document."""

    lines: list[str] = field(default_factory=list)
    continues: bool
    """Whether it goes on with the document of the piece before, if that has not ended."""
    ends: bool = False
    """Whether its document ends with it. A piece without lines only says that."""
    num_bytes: int = 0
    """Of the original text: its line feeds, and blank lines after it, included."""
    words: int = 0
    """As white space parts them."""


@dataclass(frozen=True, kw_only=True)
class EncodedPiece:
    """A piece as token ids."""

    ids: NDArray[np.int64]
    num_lines: int
    continues: bool
    ends: bool
    num_bytes: int
    words: int


class Documents:
    """Tell where documents begin, piece by piece: a block does not know how the last one ended."""

    def __init__(self) -> None:
        self._is_open = False

    def continues(self, piece: TextPiece | EncodedPiece) -> bool:
        """Return whether a piece goes on with an open document."""
        continues = piece.continues and self._is_open
        self._is_open = not piece.ends
        return continues


@dataclass(frozen=True, kw_only=True)
class RecordReader:
    """Decode blocks and cut them into pieces of documents."""

    data: TextDataConfig | MaskedDataConfig
    lenient: bool = False
    span_bytes: int = 0
    """Where a document is cut into spans, the size from which one ends; 0: it is not cut."""

    def read(self, block: TextBlock | DocumentBlock) -> tuple[list[TextPiece], LineReport]:
        """Return the pieces of a block, and what became of its lines or rows."""
        if isinstance(block, DocumentBlock):
            return self._documents(block)
        return self._lines(block)

    def _lines(self, block: TextBlock) -> tuple[list[TextPiece], LineReport]:
        report = LineReport(pairs=len(block.lines))
        pieces: list[TextPiece] = []
        # The document that was open at the end of the block before, unless a file begins.
        continues = not block.is_first and self.data.documents != "line"
        is_open = False
        for number, raw in enumerate(block.lines, start=block.first_line):
            line = self._line(raw, block.name, number, report)
            if line is None:
                continue
            size = len(line.encode()) + 1
            if self.data.documents != "file" and not line.strip():
                if not pieces:
                    pieces.append(TextPiece(continues=continues))
                pieces[-1].num_bytes += size
                pieces[-1].ends = True
                continues = is_open = False
                continue
            if not is_open:
                pieces.append(TextPiece(continues=continues))
            piece = pieces[-1]
            piece.lines.append(line)
            piece.num_bytes += size
            piece.words += len(line.split())
            is_full = 0 < self.span_bytes <= piece.num_bytes
            is_open = self.data.documents != "line" and not is_full
            continues = is_full and self.data.documents != "line"
        return pieces, report

    def _line(self, raw: bytes, name: str, number: int, report: LineReport) -> str | None:
        """Decode a line; None where it is left out."""
        try:
            line = decode_line(raw, name, number, report, advice=_ADVICE)
        except DataError:
            if not self.lenient:
                raise
            report.drop("not readable", f"{name}:{number}")
            return None
        if "\0" in line:
            report.drop("a NUL character", f"{name}:{number}")
            return None
        report.kept += 1
        return line

    def _documents(self, block: DocumentBlock) -> tuple[list[TextPiece], LineReport]:
        report = LineReport()
        report.add(block.report)
        pieces = []
        for place, text in block.documents:
            if not text.strip():
                report.drop("an empty text", place)
            elif "\0" in text:
                report.drop("a NUL character", place)
            else:
                report.kept += 1
                pieces.append(
                    TextPiece(
                        lines=text.split(LINE_BREAK),
                        continues=False,
                        ends=True,
                        num_bytes=len(text.encode()) + 1,
                        words=len(text.split()),
                    )
                )
        return pieces, report


@dataclass(frozen=True, kw_only=True)
class RecordEncoder:
    """Read blocks and encode their pieces; it can be handed to another process."""

    reader: RecordReader
    tokenizer: TextTokenizer

    def encode(self, block: TextBlock | DocumentBlock) -> tuple[list[EncodedPiece], LineReport]:
        """Return the pieces of a block as ids."""
        tokenizer = self.tokenizer
        pieces, report = self.reader.read(block)
        lines = iter(tokenizer.subwords.encode_all([line for p in pieces for line in p.lines]))
        encoded = [
            EncodedPiece(
                ids=np.array(tokenizer.join(next(lines) for _ in piece.lines), dtype=np.int64),
                num_lines=len(piece.lines),
                continues=piece.continues,
                ends=piece.ends,
                num_bytes=piece.num_bytes,
                words=piece.words,
            )
            for piece in pieces
        ]
        return encoded, report
