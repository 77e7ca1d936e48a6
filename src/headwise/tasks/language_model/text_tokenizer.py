"""Text with line breaks as token ids, and back.

Each line is cut into subwords by itself, so that a word is the same token at the start of a line
and within one. A line break is a token of its own. The end of a document is eos, and the first
document follows an eos as all others do.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from headwise.config import Vocab
from headwise.data import Subwords
from headwise.data.subwords import SubwordSettings
from headwise.data.tokenizer import load_stream, save_streams
from headwise.errors import DataError
from headwise.files import Folder

STREAM = "text"
"""What the tokenizer and the field of the shards are called."""

LINE_BREAK = "\n"
_UNFINISHED = "\ufffd"
"""What decoding gives for bytes that are not a whole character, yet."""

_LONGEST_WINDOW = 64


class TextTokenizer:
    """Encode and decode text with line breaks; decode(encode(x)) = x as for `Subwords`."""

    def __init__(self, subwords: Subwords) -> None:
        self.subwords = subwords
        self.line_break = subwords.id_of(LINE_BREAK)
        if self.line_break == Vocab.unk:
            raise DataError("this tokenizer has no line break: it was not made for this task")

    @classmethod
    def learn(
        cls, lines: Iterable[str], data: SubwordSettings, *, controls: Sequence[str] = ()
    ) -> "TextTokenizer":
        """Learn subwords from lines; no text is encoded as one of `controls`."""
        return cls(Subwords.learn(lines, data, symbols=(LINE_BREAK,), controls=controls))

    @classmethod
    def load(cls, folder: Path | Folder) -> "TextTokenizer":
        """Load the tokenizer of prepared data or of a run."""
        return cls(load_stream(folder, STREAM))

    def save(self, directory: Path) -> None:
        """Write the tokenizer into a directory that is being made."""
        save_streams(directory, {STREAM: self.subwords})

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self.subwords)

    @property
    def vocab(self) -> Vocab:
        """The vocabulary of a model; the id before a document is the end of the one before."""
        return Vocab(source_size=len(self), target_size=len(self), start=Vocab.eos)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without eos."""
        return self.join(self.subwords.encode_all(text.split(LINE_BREAK)))

    def join(self, lines: Iterable[list[int]]) -> list[int]:
        """Put a line break between the ids of lines."""
        ids: list[int] = []
        for number, line in enumerate(lines):
            if number:
                ids.append(self.line_break)
            ids += line
        return ids

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids; special ids leave no trace in it."""
        lines: list[list[int]] = [[]]
        for number in ids:
            if number == self.line_break:
                lines.append([])
            else:
                lines[-1].append(number)
        return LINE_BREAK.join(map(self.subwords.decode, lines))


class TextStream:
    """Decode ids that come one at a time, after those of a prompt.

    The pieces of text, joined, are what decoding all ids at once adds to the text of the prompt. A
    character of several bytes comes when it is whole.
    """

    def __init__(self, tokenizer: TextTokenizer, prompt: list[int]) -> None:
        self._tokenizer = tokenizer
        breaks = [n for n, number in enumerate(prompt) if number == tokenizer.line_break]
        self._line = prompt[breaks[-1] + 1 :] if breaks else [*prompt]
        self._given = len(self._decoded())

    def add(self, number: int) -> str:
        """Return the text that an id completes; it may be empty."""
        if number == self._tokenizer.line_break:
            rest = self.finish()
            self._line, self._given = [], 0
            return rest + LINE_BREAK
        self._line.append(number)
        text = self._decoded()
        whole = text.rstrip(_UNFINISHED)
        piece, self._given = whole[self._given :], max(self._given, len(whole))
        if len(self._line) > _LONGEST_WINDOW and whole == text:
            # One id is enough to know whether a space before the next belongs to the text.
            self._line = self._line[-1:]
            self._given = len(self._decoded())
        return piece

    def finish(self) -> str:
        """Return what is left: bytes that are not a whole character, replaced."""
        text = self._decoded()
        piece, self._given = text[self._given :], len(text)
        return piece

    def _decoded(self) -> str:
        return self._tokenizer.subwords.decode(self._line)
